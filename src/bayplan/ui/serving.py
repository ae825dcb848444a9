"""Puts the page on a port: that of an embedded cluster, or one of its own.

PageOfCluster   below /ui/ on the API server's port of `bayplan up`, without TLS on loopback
listen          a port of its own, for `bayplan ui`; beyond loopback only with TLS
recording       writes a recording for as long as it is entered
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.sources.loaded import Origin
from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.client.access import Access as ClusterAccess
from bayplan.client.http import KubernetesCluster
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.errors import InputError
from bayplan.net.listening import BoundedServer, Limits, Listener
from bayplan.net.ports import bind
from bayplan.net.tls import TLSSettings, server_context
from bayplan.process.history import History
from bayplan.process.recording import FLUSH_SECONDS, Recorder
from bayplan.scheduler.tasks import cancel_all
from bayplan.ui.access import POLICY, Access, in_url
from bayplan.ui.hub import ClusterFeed, Hub
from bayplan.ui.questions import Subject
from bayplan.ui.queue import Place, places_in
from bayplan.ui.server import MAX_BODY_BYTES, Page, link
from bayplan.ui.writing import Writer

LOOPBACK: Final = "127.0.0.1"
_BEYOND: Final = (
    "--address {address}: beyond loopback the page is served with TLS only; pass --tls-cert-file and "
    "--tls-private-key-file"
)
_HALF: Final = "pass both --tls-cert-file and --tls-private-key-file, or neither"
_NAMELESS: Final = (
    "--address {address}: pass --host-name NAME with the name or address that browsers use; requests for "
    "other hosts are rejected"
)
_NOT_READY: Final = "the cluster is starting: try again"


@asynccontextmanager
async def _given(api: ClusterAPI) -> AsyncIterator[ClusterAPI]:
    yield api


@asynccontextmanager
async def _connected(access: ClusterAccess) -> AsyncIterator[ClusterAPI]:
    async with KubernetesCluster(access, component="ui") as cluster:
        yield cluster


class PageOfCluster:
    """The page of `bayplan up`: created before the cluster, and attached to it once it has started."""

    def __init__(self) -> None:
        self.access = Access()
        self.page: Page | None = None

    def plain(self, limits: Limits) -> BoundedServer:
        """The server for clients without TLS (`LocalSettings.plain`)."""
        return BoundedServer(self._handle, limits, max_body_bytes=MAX_BODY_BYTES)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.page is None:
            return web.Response(status=503, text=_NOT_READY, headers=POLICY)
        return await self.page.handle(request)

    def attach(
        self, cluster: LocalCluster, settings: LocalSettings, name: str, *, writes: bool = False
    ) -> Hub:
        """Shows this cluster from now on; `writes`: viewers may change it."""
        kinds = [kind.record for kind in read_kinds([k for plugin in settings.plugins for k in plugin.kinds])]
        history = History(time.time)
        api = EmbeddedCluster(cluster.server.api)
        feed = ClusterFeed(partial(_given, api), kinds, cluster.observe if settings.schedules else None)
        hub = Hub(history, settings.release.accounting.assigned_requests, feed)
        subject = Subject(
            name,
            "cluster",
            settings.release,
            settings.config,
            tuple(settings.plugins),
            Origin.LIVE,
            frozenset(kind.__name__ for kind in kinds),
        )

        def places() -> list[Place]:
            return [] if cluster.scheduler is None else places_in(cluster.scheduler.context)

        self.access.listen(cluster.server.port)
        endpoint = cluster.server.endpoint
        own = ClusterAccess(endpoint.url, TLSSettings(ca_data=endpoint.ca), token=endpoint.token)
        self.page = Page(
            subject,
            hub,
            self.access,
            places=places if settings.schedules else None,
            writer=Writer(own) if writes else None,
        )
        self._port = cluster.server.port
        return hub

    def link(self) -> str:
        """The link that a user opens; it changes after each login."""
        return link("http", LOOPBACK, self._port, self.access.token)


def live_hub(access: ClusterAccess, kinds: Sequence[type[Object]], subject: Subject) -> Hub:
    """Watches the cluster of a kubeconfig, whose scheduler runs elsewhere."""
    feed = ClusterFeed(partial(_connected, access), kinds)
    return Hub(History(time.time), subject.release.accounting.assigned_requests, feed)


@dataclass(frozen=True, slots=True)
class Address:
    """Where `bayplan ui` listens."""

    host: str = LOOPBACK
    port: int = 0
    cert_file: str = ""
    key_file: str = ""
    names: tuple[str, ...] = ()
    """Host names and addresses that browsers use for it, besides `host`; links have the first."""

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None on loopback without certificate.

        Raises:
            InputError: it is beyond loopback and there is no certificate, or it cannot be loaded; no browser
                could use the address.
        """
        if bool(self.cert_file) != bool(self.key_file):
            raise InputError(_HALF)
        if not _is_loopback(self.host):
            if not self.cert_file:
                raise InputError(_BEYOND.format(address=self.host))
            if not self.names and _is_unspecified(self.host):
                raise InputError(_NAMELESS.format(address=self.host))
        if not self.cert_file:
            return None
        try:
            return server_context(self.cert_file, self.key_file)
        except OSError as error:
            raise InputError(f"the certificate cannot be loaded: {error}", source=self.cert_file) from None

    @property
    def shown(self) -> str:
        """The host of links."""
        return in_url(next(iter(self.names), self.host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@asynccontextmanager
async def listen(
    subject: Subject, hub: Hub, address: Address, writer: Writer | None = None
) -> AsyncIterator[Page]:
    """Serves a page on a port of its own; yields it when it listens.

    Args:
        writer: writes for viewers; None: they may not.
    """
    tls = address.tls()
    access = Access(secure=tls is not None)
    page = Page(subject, hub, access, writer=writer)
    limits = Limits()
    server = page.server(limits)
    runner = web.ServerRunner(server, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(server, limits, tls)
    try:
        port = listener.start(await bind(address.host, address.port))
        access.listen(port, address.host, *address.names)
        yield page
    finally:
        await listener.close()
        await hub.close()
        await runner.cleanup()


def link_of(page: Page, address: Address) -> str:
    """The link that a user opens to log in."""
    scheme = "https" if address.cert_file else "http"
    return link(scheme, address.shown, page.access.port, page.access.token)


@asynccontextmanager
async def recording(hub: Hub, path: Path, *, release: str, name: str) -> AsyncIterator[None]:
    """Writes a recording until it is left, or the file is full. It has everything from entering on.

    Raises:
        InputError: the file cannot be written.
    """
    recorder = Recorder(path, release=release, name=name)
    try:
        async with hub.viewing():
            recorder.begin(hub.history)
            hub.listeners.append(recorder.add)
            flushing = asyncio.ensure_future(_flush(recorder))
            try:
                yield
            finally:
                hub.listeners.remove(recorder.add)
                await cancel_all([flushing])
    finally:
        recorder.close()


async def _flush(recorder: Recorder) -> None:
    while not recorder.has_ended:
        await asyncio.sleep(FLUSH_SECONDS)
        recorder.flush()
