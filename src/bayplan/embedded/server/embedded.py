"""The embedded API server, put together: store, API, HTTPS, and the files that clients need.

    async with EmbeddedServer(data_dir) as server:
        server.write_kubeconfig(Path("bayplan.kubeconfig"))
        server.api.create(PODS, {...}, "default")      # in this process
        ...                                            # or kubectl --kubeconfig bayplan.kubeconfig

Controllers, simulated kubelets and the scheduler are not part of it: they use `server.api`, or, for the
scheduler, `EmbeddedCluster(server.api)`.
"""

from __future__ import annotations

import secrets
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.embedded.server import kinds, kubeconfig
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.documents import HISTORY, MAX_STORE_BYTES, Document, DocumentStore
from bayplan.embedded.server.http.application import DEFAULT_LIMITS, Application
from bayplan.embedded.server.kinds import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.sqlite import SQLiteJournal
from bayplan.embedded.server.tls import Certificates, certificates_in
from bayplan.errors import ConfigError
from bayplan.files import read_private, warn_if_exposed, write_private
from bayplan.net.listening import BoundedServer, Limits, Listener
from bayplan.net.ports import bind

LOOPBACK: Final = "127.0.0.1"
NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_SYSTEM_CLASSES: Final = (
    ("system-node-critical", 2_000_001_000, "For pods without which a node cannot work."),
    ("system-cluster-critical", 2_000_000_000, "For pods without which the cluster cannot work."),
)


def open_api(
    journal: SQLiteJournal | None = None,
    *,
    clock: Callable[[], float] = time.time,
    seed: int | None = None,
    history: int = HISTORY,
    release: Release = DEFAULT_RELEASE,
    max_bytes: int = MAX_STORE_BYTES,
) -> ObjectAPI:
    """An API on the objects of a journal, or on an empty store, with the objects that every cluster has."""
    store = DocumentStore(journal=journal, history=history, max_bytes=max_bytes)
    api = ObjectAPI(store, Catalog(release=release), clock=clock, seed=seed)
    if journal is not None:
        _restore(api, journal)
    for name in NAMESPACES:
        if store.find(kinds.NAMESPACES, name) is None:
            api.create(kinds.NAMESPACES, {"metadata": {"name": name}})
    for name, priority, description in _SYSTEM_CLASSES:
        if store.find(kinds.PRIORITY_CLASSES, name) is None:
            content = {"metadata": {"name": name}, "value": priority, "description": description}
            api.create(kinds.PRIORITY_CLASSES, content)
    return api


def _restore(api: ObjectAPI, journal: SQLiteJournal) -> None:
    """CustomResourceDefinitions are restored first: they define other resources."""
    kept: dict[tuple[str, str], list[Document]] = {}
    for api_version, plural, document in journal.documents():
        kept.setdefault((api_version, plural), []).append(document)
    definitions = kinds.CUSTOM_RESOURCE_DEFINITIONS
    for document in kept.get((definitions.api_version, definitions.plural), ()):
        api.customs.define(document.parse())
    documents: list[tuple[Resource, Document]] = []
    for (api_version, plural), found in kept.items():
        group, _, version = api_version.rpartition("/")
        resource = api.catalog.find(group, version, plural)
        if resource is not None:
            documents += [(resource, document) for document in found]
    api.store.restore(documents, journal.committed)


class EmbeddedServer:
    """An API server on loopback. Without a data directory everything is gone when it stops."""

    api: ObjectAPI
    """For callers in the same process; set when the server is entered."""
    application: Application
    """Handles its requests."""
    token: str
    certificates: Certificates
    port: int

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        clock: Callable[[], float] = time.time,
        salvages: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        release: Release = DEFAULT_RELEASE,
        max_bytes: int = MAX_STORE_BYTES,
        rbac: bool = False,
        plain: Callable[[Limits], BoundedServer] | None = None,
    ) -> None:
        """`salvages`: keep the intact part of a damaged data directory, instead of raising an error.
        `release`: the release of Kubernetes whose API is served. `max_bytes`: of all objects.
        `rbac`: roles decide what users may do; otherwise every token may do everything.
        `plain`: makes the server for clients that use the port without TLS; it is not the API."""
        self._plain = plain
        self.release = release
        self._limits = limits
        self._max_bytes = max_bytes
        self.port = port
        self._data_dir = data_dir
        self._host = host
        self._clock = clock
        self._salvages = salvages
        self._rbac = rbac
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            directory = self._data_dir
            if directory is None:
                temporary = tempfile.TemporaryDirectory(prefix="bayplan-")
                directory = Path(stack.enter_context(temporary))
            # A temporary directory need not survive a power failure.
            journal = SQLiteJournal(directory, fsync=self._data_dir is not None, salvages=self._salvages)
            stack.push_async_callback(journal.close)
            self.api = open_api(journal, clock=self._clock, release=self.release, max_bytes=self._max_bytes)
            self.token = token_in(directory)
            self.certificates = certificates_in(directory, hosts=(self._host,))
            self.api.root_ca = self.certificates.ca.read_text(encoding="ascii")
            await self.api.store.durable()
            self.application = Application(self.api, [self.token], rbac=self._rbac)
            server = self.application.server(self._limits)
            runner = web.ServerRunner(server, shutdown_timeout=1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            plain = None if self._plain is None else self._plain(self._limits)
            if plain is not None:
                page = web.ServerRunner(plain, shutdown_timeout=1)
                await page.setup()
                stack.push_async_callback(page.cleanup)
            listener = Listener(server, self._limits, self.certificates.context(), plain=plain)
            stack.push_async_callback(listener.close)
            self.port = listener.start(await self._bound(directory / "port"))
            publish_service(self.api, self._host, self.port)
            self._exit = stack.pop_all()
        return self

    async def _bound(self, file: Path) -> list[socket.socket]:
        """Listens on the requested port, or where the last server of the data directory listened, so that
        kubeconfigs stay valid; if that port is taken now, on any."""
        known = file.read_text() if file.exists() else ""
        sockets: list[socket.socket] = []
        if not self.port and known.isascii() and known.isdecimal() and 0 < int(known[:6]) < 1 << 16:
            with suppress(OSError):
                sockets = await bind(self._host, int(known))
        sockets = sockets or await bind(self._host, self.port)
        file.write_text(str(sockets[0].getsockname()[1]))
        return sockets

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self.port}"

    @property
    def endpoint(self) -> kubeconfig.Endpoint:
        """URL, CA and token for clients."""
        return kubeconfig.Endpoint(self.url, self.certificates.ca.read_bytes(), self.token)

    def write_kubeconfig(self, path: Path) -> kubeconfig.Entry:
        """Adds the server to a kubeconfig, or makes one that only its owner may read.

        Raises:
            InputError: the file is there and is not a kubeconfig.
        """
        return kubeconfig.add(path, self.endpoint)


def token_in(directory: Path) -> str:
    """The token of a data directory; created if the file is missing or empty.

    Raises:
        ConfigError: the file has something that cannot be a token.
    """
    path = directory / "token"
    try:
        token = read_private(path).decode("ascii").strip()
    except FileNotFoundError:
        token = ""
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: a token has no characters but letters, digits and signs") from None
    if not token:
        token = secrets.token_urlsafe(32)
        write_private(path, f"{token}\n".encode())
    if not token.isprintable() or " " in token:
        raise ConfigError(f"{path}: a token has no characters but letters, digits and signs")
    warn_if_exposed(path, "token")
    return token


NAME: Final = "kubernetes"
NAMESPACE: Final = "default"
_LABELS: Final = {"component": "apiserver", "provider": "kubernetes"}


def publish_service(api: ObjectAPI, host: str, port: int) -> None:
    """Creates the service, and writes the current endpoint: after a restart it may be different."""
    service = {
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
    }
    addresses = {
        "metadata": {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port}]}],
    }
    slice_ = {
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
    }
    for resource, content in ((SERVICES, service), (ENDPOINTS, addresses), (ENDPOINT_SLICES, slice_)):
        _write(api, resource, content)


def _write(api: ObjectAPI, resource: Resource, content: dict[str, Any]) -> None:
    if api.store.find(resource, resource.key(NAME, NAMESPACE)) is None:
        api.create(resource, content, NAMESPACE)
    else:
        api.patch(resource, NAME, NAMESPACE, content)
