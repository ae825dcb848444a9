"""Requests through a proxy: tunnels to servers with TLS, forwarded requests to others, and failures."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bayplan.api.pod import Pod
from bayplan.client import connection_pool
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.client.requests import UnreachableError
from bayplan.net.tls import TLSSettings
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_pod

from .api_server import ApiServer, serving
from .certificates import authority, server_tls
from .raw_server import Peer, raw_server

TRUSTED = TLSSettings(ca_data=authority("cluster").certificate, server_name="kubernetes")


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    finally:
        writer.close()


async def proxy(peer: Peer) -> None:
    """Opens tunnels, and forwards other requests."""
    head = await peer.request()
    target = head.split()[1]
    port = int(target.removeprefix(b"http://").partition(b"/")[0].rpartition(b":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if head.startswith(b"CONNECT "):
        await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        writer.write(head)
    await asyncio.gather(pump(peer.reader, writer), pump(reader, peer.writer), return_exceptions=True)


@asynccontextmanager
async def client_through(
    handle: Callable[[Peer], Awaitable[None]],
    proxy_tls: ssl.SSLContext | None,
    server_url: str,
    user: str = "",
) -> AsyncIterator[tuple[KubernetesCluster, list[Peer]]]:
    async with raw_server(handle, proxy_tls) as through:
        url = f"{'http' if proxy_tls is None else 'https'}://{user}127.0.0.1:{through.port}"
        access = Access(
            server_url, tls=TRUSTED if server_url.startswith("https") else TLSSettings(), proxy=url
        )
        async with KubernetesCluster(access, qps=-1) as cluster, asyncio.timeout(30):
            yield cluster, through.peers


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["a plain proxy", "a proxy with TLS"])
@pytest.mark.parametrize("user", ["", "me:pass%40word@"], ids=["without a password", "with one"])
def test_through_a_tunnel(proxy_tls: bool, user: str) -> None:
    """The server is then the one with the right certificate."""

    async def main() -> tuple[str, list[bytes]]:
        store = MemoryStore()
        pod = store.create(make_pod("a"))
        served = serving(ApiServer(store), server_tls("cluster", "kubernetes"), Access(""))
        certificate = server_tls("cluster", "127.0.0.1") if proxy_tls else None
        async with (
            served as server,
            client_through(proxy, certificate, server.access.server, user) as (cluster, peers),
        ):
            await cluster.list(Pod)
            await cluster.bind(pod, "n1")
        return store.get(Pod, "a", pod.namespace).spec.node_name, [peer.heads[0] for peer in peers]

    node_name, heads = asyncio.run(main())
    assert node_name == "n1"
    credentials = b"\r\nProxy-Authorization: Basic " + b64encode(b"me:pass@word") + b"\r\n"
    for head in heads:
        assert head.startswith(b"CONNECT 127.0.0.1:")
        assert (credentials in head) is bool(user)


def test_requests_to_a_plain_server_are_forwarded() -> None:
    async def main() -> tuple[int, list[bytes]]:
        store = MemoryStore()
        store.create(make_pod("a"))
        async with (
            serving(ApiServer(store)) as server,
            client_through(proxy, None, server.access.server, "me:you@") as (cluster, peers),
        ):
            items, _ = await cluster.list(Pod)
            return len(items), [peer.heads[0] for peer in peers]

    count, (head, *_) = asyncio.run(main())
    assert count == 1
    assert head.startswith(b"GET http://127.0.0.1:")
    assert b"\r\nProxy-Authorization: Basic " in head


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Auth", id="rejected"),
        pytest.param(b"", "EOF", id="closed"),
        pytest.param(b"SSH-2.0\r\n\r\n", "malformed HTTP response", id="not HTTP"),
        pytest.param(b"x" * 10_000, "the response of the proxy is too large", id="without end"),
    ],
)
def test_a_proxy_that_opens_no_tunnel(answer: bytes, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_HEAD_BYTES", 5_000)

    async def reject(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        if len(answer) > 1_000:
            await peer.reader.read()

    async def main() -> None:
        async with client_through(reject, None, "https://127.0.0.1:1") as (cluster, _):
            with pytest.raises(UnreachableError, match=f'": proxyconnect tcp: {problem}'):
                await cluster.get(Pod, "a", "x")

    asyncio.run(main())


def test_a_proxy_that_is_not_there() -> None:
    async def main() -> None:
        async with KubernetesCluster(Access("https://kubernetes", proxy="http://127.0.0.1:9")) as cluster:
            with pytest.raises(UnreachableError, match=r"proxyconnect tcp: dial tcp 127.0.0.1:9: connect: "):
                await cluster.get(Pod, "a", "x")

    asyncio.run(main())
