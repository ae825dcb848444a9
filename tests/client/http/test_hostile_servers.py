"""A server that never ends something, or always says no, costs neither memory nor requests without limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest
from aiohttp import web

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client import list_watch, requests, short_requests, transport
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.client.informer import Informer
from bayplan.client.list_watch import list_pages
from bayplan.errors import APIError, GoneError, ServerError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node

from ..test_informer import RecordingHandler
from .api_server import ApiServer, ReceivedRequest, error_response, json_response
from .clients import with_server
from .raw_server import Peer, raw_server

LIMIT = 1 << 20
ENOUGH = 32 * LIMIT
"""The endless responses end here, so that a client without a limit fails the test, and not the machine."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BIG_HEAD = "the head of the response is too large"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "MAX_LINE_BYTES", LIMIT)
    monkeypatch.setattr(transport, "MAX_HEAD_BYTES", LIMIT)
    for module in (requests, short_requests):
        monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", LIMIT)


@asynccontextmanager
async def client_of(
    first: bytes, more: Callable[[int], bytes]
) -> AsyncIterator[tuple[KubernetesCluster, list[int]]]:
    """A client of a server that responds with `first` and then with as much as is read, up to a limit.

    The list has the number of bytes sent on each connection.
    """
    sent: list[int] = []

    async def endless(peer: Peer) -> None:
        await peer.request()
        await peer.send(first)
        place = len(sent)
        sent.append(0)
        piece = more(1 << 16)
        while sent[place] < ENOUGH:
            await peer.send(piece)
            sent[place] += len(piece)

    async with (
        raw_server(endless) as server,
        KubernetesCluster(Access(f"http://127.0.0.1:{server.port}"), qps=-1) as cluster,
        asyncio.timeout(30),
    ):
        yield cluster, sent


def chunk(size: int) -> bytes:
    return b"%x\r\n" % size + b"x" * size + b"\r\n"


async def watch(cluster: KubernetesCluster) -> None:
    async for _ in cluster.watch(Pod, "1"):
        pass


async def get(cluster: KubernetesCluster) -> None:
    await cluster.get(Node, "n")


async def list_them(cluster: KubernetesCluster) -> None:
    await list_pages(cluster.requests, Pod)


@pytest.mark.parametrize(
    ("act", "first", "more", "problem"),
    [
        pytest.param(watch, CHUNKED, chunk, "a line of the watch is longer than 1 MiB", id="a line"),
        pytest.param(watch, HEAD, b"x".__mul__, BIG_HEAD, id="a head"),
        pytest.param(get, HEAD, b"x".__mul__, BIG_HEAD, id="a short head"),
        pytest.param(get, CHUNKED + b"1;", b"x".__mul__, BIG_HEAD, id="a chunk"),
        pytest.param(get, CHUNKED, chunk, "the response is larger than", id="a short response"),
        pytest.param(
            list_them,
            CHUNKED.replace(b"200 OK", b"500 No"),
            chunk,
            "the response is larger than",
            id="the error of a list",
        ),
    ],
)
def test_a_response_without_end(
    act: Callable[[KubernetesCluster], asyncio.Future[None]],
    first: bytes,
    more: Callable[[int], bytes],
    problem: str,
) -> None:
    async def main() -> list[int]:
        async with client_of(first, more) as (cluster, sent):
            with pytest.raises(APIError, match=problem):
                await act(cluster)
            return sent

    # What the sockets and the streams buffer comes on top.
    assert max(asyncio.run(main())) < ENOUGH / 2


def pages_without_end() -> Callable[[ReceivedRequest], object]:
    numbers = count()

    async def interfere(received: ReceivedRequest) -> web.StreamResponse | None:
        if received.is_watch:
            return error_response(ServerError("no stream", 500))
        metadata = {"resourceVersion": "1", "continue": f"page {next(numbers)}"}
        return json_response({"metadata": metadata, "items": [{"metadata": {"name": "n"}}]})

    return interfere


def test_pages_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "MAX_PAGES", 20)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> int:
        with pytest.raises(APIError, match=r"the list of nodes .v1. has more than 20 pages"):
            async with asyncio.timeout(10):
                await cluster.list(Node)
        return len(server.lists())

    assert with_server(MemoryStore(), act, interfere=pages_without_end()) == 20


@pytest.mark.parametrize("also_lists", [True, False], ids=["lists and watches", "watches"])
def test_a_storm_of_410_is_answered_with_backoff(also_lists: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def interfere(received: ReceivedRequest) -> web.StreamResponse | None:
        is_plain_watch = received.is_watch and "sendInitialEvents" not in received.query
        return error_response(GoneError("too old")) if also_lists or is_plain_watch else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> int:
        informer = Informer(cluster, Node, RecordingHandler())
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await informer.run()
        return len(server.received)

    store = MemoryStore()
    store.create(make_node("n"))
    with caplog.at_level(logging.INFO, "bayplan.client.informer"):
        received = with_server(store, act, interfere=interfere, streaming=False)
    # Twice at once, and then after at least 0.8 s; listing takes up to four requests.
    assert received <= 3 * 5
    assert "watch of Node is too old, listing again" in caplog.text
    assert caplog.text.count("watches of Node keep expiring, listing with backoff") == 1


@pytest.mark.parametrize("digits", [11, 400, 5000])
def test_a_huge_retry_after_is_clamped(
    digits: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(requests, "MAX_RETRY_SECONDS", 0)
    answers = [web.Response(status=429, headers={"Retry-After": "9" * digits})]

    async def interfere(received: ReceivedRequest) -> web.StreamResponse | None:
        return answers.pop() if answers else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> int:
        async with asyncio.timeout(10):
            await cluster.get(Node, "n")
        return len(server.received)

    store = MemoryStore()
    store.create(make_node("n"))
    assert with_server(store, act, interfere=interfere) == 2
    assert f"retrying in 0 s although the server asks for {'9' * min(digits, 20)} s" in caplog.text
