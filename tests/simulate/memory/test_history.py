"""The ring of events, and watchers that are slower than it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from bayplan.api.cluster_api import Change, WatchEvent
from bayplan.api.node import Node
from bayplan.errors import APIError, GoneError, ServerError
from bayplan.simulate.memory.history import History, Watch
from bayplan.simulate.memory.store import MemoryStore
from bayplan.simulate.virtual_time import quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod


def make_history(size: int, events: int) -> History[WatchEvent[Node]]:
    history: History[WatchEvent[Node]] = History(size)
    for version in range(1, events + 1):
        history.append(WatchEvent(Change.ADDED, make_node(f"n{version}"), str(version)))
    return history


def watch(history: History[WatchEvent[Node]], version: int) -> Watch[Node]:
    return Watch(history, str(version), lambda text: history.position_after(int(text)))


def versions(batch: Sequence[WatchEvent[Node]]) -> list[int]:
    return [int(event.resource_version) for event in batch]


@pytest.mark.parametrize(
    ("events", "known", "seen"),
    [
        pytest.param(3, 0, [1, 2, 3], id="from the beginning"),
        pytest.param(3, 2, [3], id="only what is newer"),
        pytest.param(8, 4, [5, 6, 7, 8], id="the younger half when the older was dropped"),
    ],
)
def test_a_batch_is_everything_since(events: int, known: int, seen: list[int]) -> None:
    async def first_batch() -> Sequence[WatchEvent[Node]]:
        return await anext(watch(make_history(4, events), known))

    assert versions(run_virtual(first_batch())) == seen


def test_a_watch_from_before_the_oldest_event_is_gone() -> None:
    async def main() -> None:
        watching = watch(make_history(4, 8), 3)
        with pytest.raises(GoneError, match=r"too old resource version: 3 \(4\)"):
            await anext(watching)
        with pytest.raises(StopAsyncIteration):
            await anext(watching)

    run_virtual(main())


def test_a_watcher_that_lags_behind_the_ring_is_cut_off() -> None:
    """It holds nothing itself, so the ring's size bounds the memory of all watchers together."""

    async def main() -> None:
        history = make_history(4, 1)
        watching = watch(history, 0)
        assert versions(await anext(watching)) == [1]
        for version in range(2, 10):
            history.append(WatchEvent(Change.ADDED, make_node("n"), str(version)))
        with pytest.raises(GoneError, match=r"too old resource version: 1 \(4\)"):
            await anext(watching)
        with pytest.raises(StopAsyncIteration):
            await anext(watching)

    run_virtual(main())


def test_a_watcher_that_keeps_up_is_not_cut_off_by_compaction() -> None:
    async def main() -> list[int]:
        history = make_history(4, 3)
        watching = watch(history, 0)
        await anext(watching)
        history.compact(10)
        history.append(WatchEvent(Change.ADDED, make_node("n"), "11"))
        return versions(await anext(watching))

    assert run_virtual(main()) == [11]


def test_one_resumption_delivers_all_earlier_events() -> None:
    async def main() -> list[list[int]]:
        history = make_history(100, 0)
        batches: list[list[int]] = []

        async def follow() -> None:
            async for batch in watch(history, 0):
                batches[len(batches) :] = [versions(batch)]

        task = asyncio.create_task(follow())
        for round_ in range(2):
            await quiescent()
            for version in range(3):
                history.append(WatchEvent(Change.ADDED, make_node("n"), str(10 * round_ + version + 1)))
        await quiescent()
        task.cancel()
        return batches

    assert run_virtual(main()) == [[1, 2, 3], [11, 12, 13]]


def test_a_watcher_that_was_cancelled_leaves_nothing_behind() -> None:
    def futures() -> int:
        gc.collect()
        return sum(isinstance(item, asyncio.Future) for item in gc.get_objects())

    async def main() -> list[int]:
        history = make_history(100, 0)
        before = futures()
        for _ in range(50):
            task = asyncio.create_task(anext(watch(history, 0)))
            await quiescent()
            task.cancel()
            await quiescent()
            assert task.cancelled()
        assert futures() - before < 10
        history.append(WatchEvent(Change.ADDED, make_node("n"), "1"))
        return versions(await anext(watch(history, 0)))

    assert run_virtual(main()) == [1]


@pytest.mark.parametrize(
    ("version", "error", "message"),
    [
        pytest.param("2", GoneError, r"too old resource version: 2 \(3\)", id="a version that was compacted"),
        pytest.param("9", ServerError, "Too large resource version: 9, current: 3", id="a version to come"),
        pytest.param("x", APIError, 'Invalid value: "x"', id="no version at all"),
        pytest.param("", APIError, 'Invalid value: ""', id="nothing"),
    ],
)
def test_rejects_to_watch_from(version: str, error: type[APIError], message: str) -> None:
    async def main() -> None:
        store = MemoryStore()
        for name in "abc":
            store.create(make_pod(name))
        store.compact()
        with pytest.raises(error, match=message):
            await anext(store.watch(Node, version))

    run_virtual(main())
