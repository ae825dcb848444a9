"""Changes as they come, however they are cut, and how a watch ends."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from bayplan.api.cluster_api import WatchEvent
from bayplan.api.kinds import KINDS
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client import list_watch
from bayplan.client.http import KubernetesCluster
from bayplan.client.list_watch import LineSplitter, watch_target
from bayplan.errors import APIError, ForbiddenError, GoneError, ServerError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod

from .api_server import ApiServer, ReceivedRequest, error_response, serving
from .clients import until, with_server


@given(st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"x", b"\n"))))
def test_lines_are_whole_and_nothing_is_lost(pieces: list[bytes]) -> None:
    splitter = LineSplitter()
    found = [splitter.feed(piece) for piece in pieces]
    whole = b"".join(pieces)
    assert b"".join(found) == whole[: whole.rfind(b"\n") + 1]
    assert all(lines == b"" or lines.endswith(b"\n") for lines in found)


def summaries(events: Sequence[WatchEvent[Pod]]) -> list[tuple[str, str, str]]:
    return [
        (event.change.value, event.object.name if event.object else "", event.resource_version)
        for event in events
    ]


async def collect(watch: AsyncIterator[Sequence[WatchEvent[Pod]]], count: int) -> list[tuple[str, str, str]]:
    """So many events, in however many batches."""
    found: list[tuple[str, str, str]] = []
    while len(found) < count:
        found += summaries(await anext(watch))
    return found


def changes(store: MemoryStore) -> None:
    """One of each."""
    store.create(make_pod("a"))
    store.bind("a", "default", "n1")
    store.create(make_pod("b"))
    store.delete(Pod, "b", "default")
    store.set_pod_phase("a", "default", "Succeeded")
    store.create(make_node("n1"))
    store.send_bookmarks()


CHANGES = [
    ("ADDED", "a", "1"),
    ("MODIFIED", "a", "2"),
    ("ADDED", "b", "3"),
    ("DELETED", "b", "4"),
    ("DELETED", "a", "5"),
    ("BOOKMARK", "", "6"),
]


@pytest.mark.parametrize("streaming", [True, False])
def test_changes_after_a_list(streaming: bool) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        _, version = await cluster.list(Pod)
        watch = cluster.watch(Pod, version)
        changes(server.store)
        return await collect(watch, 6)

    assert with_server(MemoryStore(), act, streaming=streaming) == CHANGES


def test_changes_of_the_past() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        changes(server.store)
        return await collect(cluster.watch(Pod, "2"), 4)

    assert with_server(MemoryStore(), act) == CHANGES[2:]


def test_the_stream_of_a_list_is_the_watch_that_follows() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        _, version = await cluster.list(Pod)
        server.store.create(make_pod("a"))
        return await collect(cluster.watch(Pod, version), 1), len(server.received)

    assert with_server(MemoryStore(), act) == ([("ADDED", "a", "1")], 1)


def test_events_that_came_with_the_end_of_a_list_are_not_lost() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        server.after_bookmark = [
            {"type": "ADDED", "object": {"metadata": {"name": "x", "resourceVersion": "1"}}}
        ]
        _, version = await cluster.list(Pod)
        server.store.create(make_pod("a"))
        return [name for _, name, _ in await collect(cluster.watch(Pod, version), 2)]

    assert with_server(MemoryStore(), act) == ["x", "a"]


@pytest.mark.parametrize("again", ["list", "other version"])
def test_a_stream_that_no_watch_takes_up_is_closed(again: str) -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.list(Pod)
        server.store.create(make_pod("a"))
        if again == "list":
            await cluster.list(Pod)
        else:
            server.store.create(make_pod("b"))
            assert await collect(cluster.watch(Pod, "1"), 1) == [("ADDED", "b", "2")]
        server.store.create(make_pod("c"))  # writing to it is how a server finds out
        await until(lambda: server.watches <= 1)

    with_server(MemoryStore(), act)


def test_a_watch_that_is_too_old() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        changes(server.store)
        server.store.compact()
        with pytest.raises(GoneError, match="too old resource version"):
            await anext(cluster.watch(Pod, "1"))

    with_server(MemoryStore(), act)


def test_a_watch_that_becomes_too_old() -> None:
    """The events before the error count."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        server.errors_after = 1
        watch = cluster.watch(Pod, "0")
        first = asyncio.ensure_future(anext(watch))
        await until(lambda: server.watches == 1)
        server.store.create(make_pod("a"))
        found = summaries(await first)
        with pytest.raises(GoneError):
            await anext(watch)
        return found

    assert with_server(MemoryStore(), act) == [("ADDED", "a", "1")]


@pytest.mark.parametrize("limit", [1, 50, 300, 500, 900, 1500])
def test_a_connection_cut_anywhere_loses_nothing(limit: int) -> None:
    """What came whole counts, and the next watch continues from there."""

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        found: list[tuple[str, str, str]] = []
        server.cut_after = iter([limit, 700, 900, None]).__next__
        changes(server.store)
        while len(found) < 6:
            version = found[-1][2] if found else "0"
            async for events in cluster.watch(Pod, version):
                found += summaries(events)
                if len(found) == 6:
                    break
        return found

    assert with_server(MemoryStore(), act) == CHANGES


def test_a_watch_without_events_ends_after_a_timeout() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        return [events async for events in cluster.watch(Pod, "0")]

    assert with_server(MemoryStore(), act, options={"idle_seconds": 0.05}) == []


def test_a_watch_ends_when_the_server_ends_it() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        server.watch_seconds = 0.05
        return [events async for events in cluster.watch(Pod, "0")]

    assert with_server(MemoryStore(), act) == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(APIError("no", code=403), ForbiddenError, id="not allowed"),
        pytest.param(ServerError("broken", code=500), ServerError, id="broken"),
        pytest.param(GoneError("old"), GoneError, id="too old"),
    ],
)
def test_a_watch_that_is_rejected(error: APIError, expected: type[APIError]) -> None:
    async def reject(received: ReceivedRequest) -> web.StreamResponse | None:
        return error_response(error)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        with pytest.raises(APIError) as raised:
            await anext(cluster.watch(Pod, "0"))
        return type(raised.value)

    assert with_server(MemoryStore(), act, interfere=reject) is expected


def test_after_too_many_requests_the_watch_starts_again_from_the_same_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_watch, "FIRST_BACKOFF_SECONDS", 0.01)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        async def busy(received: ReceivedRequest) -> web.StreamResponse | None:
            return error_response(ServerError("busy", code=429)) if len(server.received) < 3 else None

        server.interfere = busy
        changes(server.store)
        found = await collect(cluster.watch(Pod, "4"), 2)
        return (
            found,
            {received.query["resourceVersion"] for received in server.received},
            len(server.received),
        )

    assert with_server(MemoryStore(), act) == (CHANGES[4:], {"4"}, 3)


def test_a_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "FIRST_BACKOFF_SECONDS", 0.01)

    async def main() -> Any:
        store = MemoryStore()
        changes(store)
        async with serving(ApiServer(store)) as first:
            access = first.access
        async with KubernetesCluster(access, rng=random.Random(0)) as cluster:
            waiting = asyncio.ensure_future(collect(cluster.watch(Pod, "4"), 2))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            port = int(access.server.rpartition(":")[2])
            async with serving(ApiServer(store), port=port), asyncio.timeout(5):
                return await waiting

    assert asyncio.run(main()) == CHANGES[4:]


def test_watches_do_not_end_all_at_once() -> None:
    rng = random.Random(0)
    seconds = {
        int(part.partition("=")[2])
        for _ in range(200)
        for part in watch_target(KINDS.of(Node), rng).partition("?")[2].split("&")
        if part.startswith("timeoutSeconds")
    }
    assert len(seconds) > 50
    assert min(seconds) >= 300
    assert max(seconds) <= 600


def test_a_watch_that_is_closed_closes_the_connection() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        waiting = asyncio.ensure_future(collect(cluster.watch(Pod, "0"), 1))
        await until(lambda: server.watches == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        numbers = itertools.count()

        def is_closed() -> bool:
            # A server detects it when it writes; the first event may go before the client's end has arrived.
            server.store.create(make_pod(f"p{next(numbers)}"))
            return server.watches == 0

        await until(is_closed)

    with_server(MemoryStore(), act)
