"""A small extender for the tests: it serves on loopback, sends the given responses, and records requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from aiohttp import web

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.config.model import Extender as ExtenderConfig
from bayplan.config.model import ManagedResource
from bayplan.extender.chain import ExtenderChain, build_chain
from bayplan.extender.extender import Extender
from bayplan.framework.args import Duration
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Stream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PATIENT = 60.0
"""Seconds: nothing that ought to work fails because the machine is busy."""

VERBS = ("filter", "prioritize", "preempt", "bind")


class Webhook:
    """Answers by verb: a handler, bytes as they are, or anything that can be made JSON."""

    def __init__(self, answers: Mapping[str, Any], tls: ssl.SSLContext | None = None) -> None:
        self.answers = dict(answers)
        self.calls: list[tuple[str, Any]] = []
        """Verb and body of each call."""
        self.content_types: set[str] = set()
        self.connections: set[tuple[str, int]] = set()
        self.certificates: list[Any] = []
        """The certificate that the client showed, for each call."""
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{verb}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        verb = request.match_info["verb"]
        self.connections.add(request.transport.get_extra_info("peername"))
        self.certificates.append(request.transport.get_extra_info("peercert"))
        self.content_types.add(request.content_type)
        self.calls.append((verb, await request.json()))
        answer = self.answers[verb]
        if callable(answer):
            handled: web.StreamResponse = await answer(request)
            return handled
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="application/json")
        return web.json_response(answer)


@asynccontextmanager
async def raw_server(stream: Stream) -> AsyncIterator[str]:
    """The URL of a server that does with a connection whatever it likes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await stream(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def read_request(reader: asyncio.StreamReader) -> None:
    """Reads one request of a kept connection to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    await reader.readexactly(int(lengths[0].partition(b":")[2]))


def make_config(
    url: str,
    *verbs: str,
    timeout: float = PATIENT,
    manages: Iterable[str] = (),
    weight: int = 1,
    cache: bool = True,
    ignorable: bool = False,
) -> ExtenderConfig:
    """An extender's configuration, by default with every verb and a cache of nodes."""
    known = verbs or VERBS
    return ExtenderConfig(
        url_prefix=url,
        weight=weight,
        node_cache_capable=cache,
        ignorable=ignorable,
        http_timeout=Duration.of(timeout),
        managed_resources=tuple(ManagedResource(name=name) for name in manages),
        filter_verb="filter" if "filter" in known else "",
        prioritize_verb="prioritize" if "prioritize" in known else "",
        preempt_verb="preempt" if "preempt" in known else "",
        bind_verb="bind" if "bind" in known else "",
    )


def make_cluster(nodes: Iterable[Node | str] = (), pods: Iterable[Pod] = ()) -> Cluster:
    """A cluster of these nodes, with pods on the nodes that they name."""
    cluster = Cluster()
    for node in nodes:
        cluster.set_node(make_node(node) if isinstance(node, str) else node)
    for pod in pods:
        cluster.add_pod(pod, pod.spec.node_name)
    return cluster


@asynccontextmanager
async def chain_of(
    configs: Sequence[ExtenderConfig],
    nodes: Iterable[Node | str] = (),
    pods: Iterable[Pod] = (),
) -> AsyncIterator[ExtenderChain]:
    chain = build_chain(configs, make_cluster(nodes, pods))
    try:
        yield chain
    finally:
        await chain.close()


@asynccontextmanager
async def extender_of(
    config: ExtenderConfig,
    nodes: Iterable[Node | str] = (),
    pods: Iterable[Pod] = (),
) -> AsyncIterator[Extender]:
    async with chain_of([config], nodes, pods) as chain:
        (extender,) = chain.extenders
        yield extender
