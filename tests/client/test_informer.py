"""An informer's copy ends up right and its handler is called once for every change, whatever gets lost."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, WatchEvent
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.informer import Informer, is_older_version
from bayplan.errors import APIError, GoneError, ServerError
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod
from tests.faults.faulty_cluster import Fault, FaultyCluster

P = ParamSpec("P")

ADDED, MODIFIED, DELETED, BOOKMARK = Change.ADDED, Change.MODIFIED, Change.DELETED, Change.BOOKMARK


class RecordingHandler:
    """Records the calls of an informer, and keeps a copy of its objects."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.copy: dict[str, Any] = {}

    def added(self, item: Any) -> None:
        assert item.key not in self.copy
        self.copy[item.key] = item
        self.lines.append(f"+{_summary(item)}")

    def updated(self, old: Any, new: Any) -> None:
        assert self.copy[new.key] is old
        self.copy[new.key] = new
        self.lines.append(f"{_summary(old)}>{_summary(new)}")

    def deleted(self, item: Any) -> None:
        assert self.copy.pop(item.key).uid == item.uid
        self.lines.append(f"-{_summary(item)}")


def _summary(item: Any) -> str:
    return f"{item.name}{item.metadata.resource_version}"


def pod(name: str, version: int, uid: str = "") -> Pod:
    made = make_pod(name, uid=uid or f"uid of {name}")
    return replace(made, metadata=replace(made.metadata, resource_version=str(version)))


def event(change: Change, item: Pod | None, version: int | None = None) -> WatchEvent[Pod]:
    if version is None:
        assert item is not None
        return WatchEvent(change, item, item.metadata.resource_version)
    return WatchEvent(change, item, str(version))


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


# Calls of the handler


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        pytest.param([event(ADDED, pod("a", 1))], ["+a1"], id="it is added"),
        pytest.param(
            [event(ADDED, pod("a", 1)), event(MODIFIED, pod("a", 2)), event(DELETED, pod("a", 3))],
            ["+a1", "a1>a2", "-a3"],
            id="it is added, updated and deleted in its last version",
        ),
        pytest.param([event(MODIFIED, pod("a", 2))], ["+a2"], id="an update of an unknown object adds it"),
        pytest.param([event(DELETED, pod("a", 2))], [], id="an unknown object is not deleted"),
        pytest.param([event(ADDED, pod("a", 1))] * 3, ["+a1"], id="it is added three times"),
        pytest.param(
            [
                event(ADDED, pod("a", 1)),
                *[event(MODIFIED, pod("a", 2))] * 3,
                *[event(DELETED, pod("a", 3))] * 3,
            ],
            ["+a1", "a1>a2", "-a3"],
            id="every event is delivered three times",
        ),
        pytest.param(
            [event(ADDED, pod("a", 1)), event(ADDED, pod("a", 5))],
            ["+a1", "a1>a5"],
            id="a second addition is an update",
        ),
        pytest.param(
            [event(ADDED, pod("a", 1, "one")), event(ADDED, pod("a", 5, "two"))],
            ["+a1", "-a1", "+a5"],
            id="another object of the name is added: the deletion of the old one was missed",
        ),
        pytest.param(
            [event(ADDED, pod("a", 1, "one")), event(MODIFIED, pod("a", 5, "two"))],
            ["+a1", "-a1", "+a5"],
            id="a namesake changes: the same",
        ),
        pytest.param(
            [event(ADDED, pod("a", 1, "one")), event(DELETED, pod("a", 9, "two"))],
            ["+a1", "-a1"],
            id="another object of the name is deleted without having been added: so is the old one",
        ),
        pytest.param(
            [event(ADDED, pod("a", 5)), event(MODIFIED, pod("a", 3))],
            ["+a5"],
            id="an older version is late",
        ),
        pytest.param(
            [
                event(ADDED, pod("a", 1, "one")),
                event(DELETED, pod("a", 2, "one")),
                event(ADDED, pod("a", 3, "two")),
                event(DELETED, pod("a", 2, "one")),
            ],
            ["+a1", "-a2", "+a3"],
            id="the old one is deleted again after its namesake was added",
        ),
        pytest.param(
            [
                event(ADDED, pod("a", 3, "two")),
                event(MODIFIED, pod("a", 2, "one")),
            ],
            ["+a3"],
            id="an update of the old one comes after its namesake was added",
        ),
        pytest.param([event(BOOKMARK, None, 7)], [], id="a bookmark is no change"),
    ],
)
def test_what_a_watch_reports(events: Sequence[WatchEvent[Pod]], lines: list[str]) -> None:
    async def main() -> list[str]:
        handler = RecordingHandler()
        informer = Informer(MemoryCluster(MemoryStore()), Pod, handler)
        informer.apply(events)
        return handler.lines

    assert run_virtual(main()) == lines


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        pytest.param([pod("a", 1), pod("b", 2)], [], id="nothing new"),
        pytest.param([pod("a", 1), pod("b", 2), pod("c", 3)], ["+c3"], id="something was added"),
        pytest.param([pod("b", 2)], ["-a1"], id="something is missing, so it was deleted"),
        pytest.param([pod("a", 1), pod("b", 5)], ["b2>b5"], id="something changed"),
        pytest.param([pod("a", 1), pod("b", 5, "new")], ["-b2", "+b5"], id="something is a namesake now"),
        pytest.param([], ["-a1", "-b2"], id="all were deleted"),
        pytest.param(
            [pod("c", 3), pod("b", 4)], ["-a1", "+c3", "b2>b4"], id="deletions first, then all in order"
        ),
    ],
)
def test_what_a_new_list_reports(items: list[Pod], lines: list[str]) -> None:
    async def main() -> list[str]:
        handler = RecordingHandler()
        informer = Informer(MemoryCluster(MemoryStore()), Pod, handler)
        informer.replace([pod("a", 1), pod("b", 2)], "2")
        handler.lines.clear()
        informer.replace(items, "9")
        assert informer.resource_version == "9"
        assert {known.key for known in informer.all()} == set(handler.copy)
        return handler.lines

    assert run_virtual(main()) == lines


@virtual
async def test_lookup_by_name() -> None:
    informer = Informer(MemoryCluster(MemoryStore()), Pod, RecordingHandler())
    informer.apply([event(ADDED, pod("a", 1))])
    found = informer.get("a", "default")
    assert found is not None
    assert found.name == "a"
    assert informer.get("a", "elsewhere") is None
    assert informer.get("b", "default") is None


@virtual
async def test_everything_up_to_a_bookmark_has_been_handled() -> None:
    informer = Informer(MemoryCluster(MemoryStore()), Pod, RecordingHandler())
    assert informer.is_up_to("")
    assert not informer.is_up_to("7")
    informer.apply([event(BOOKMARK, None, 7)])
    assert informer.is_up_to("7")
    assert not informer.is_up_to("8")


# Keeping up


class Cluster(MemoryCluster):
    """A cluster whose watches and lists can be made to fail."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(clock=current_loop().wall_time))
        self.requests: list[tuple[float, str]] = []
        self.list_errors: list[APIError] = []
        self.ends: list[APIError | None] = []
        """How the next watches end, each at once: with an error, or just so."""

    @property
    def verbs(self) -> Sequence[str]:
        return [what for _, what in self.requests]

    async def list(self, kind: type[Any]) -> Any:
        self.requests.append((asyncio.get_running_loop().time(), "list"))
        if self.list_errors:
            raise self.list_errors.pop(0)
        return await super().list(kind)

    def watch(self, kind: type[Any], resource_version: str) -> Any:
        self.requests.append((asyncio.get_running_loop().time(), f"watch {resource_version}"))
        return self._watch(kind, resource_version)

    async def _watch(self, kind: type[Any], resource_version: str) -> AsyncIterator[Any]:
        if self.ends:
            end = self.ends.pop(0)
            if end is not None:
                raise end
            return
        async for batch in super().watch(kind, resource_version):
            yield batch


@asynccontextmanager
async def informed(cluster: Any) -> AsyncIterator[tuple[Informer[Node], RecordingHandler]]:
    """An informer of nodes at work."""
    handler = RecordingHandler()
    informer = Informer(cluster, Node, handler, rng=random.Random(0))
    task = asyncio.ensure_future(informer.run())
    await quiescent()
    try:
        yield informer, handler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@virtual
async def test_it_lists_and_then_watches_from_there() -> None:
    cluster = Cluster()
    cluster.store.create(make_node("a"))
    async with informed(cluster) as (informer, handler):
        assert informer.synced.is_set()
        cluster.store.create(make_node("b"))
        cluster.store.delete(Node, "a")
        await quiescent()
        assert handler.lines == ["+a1", "+b2", "-a3"]
        assert cluster.verbs == ["list", "watch 1"]


@virtual
async def test_a_watch_that_is_too_old_is_followed_by_a_list_at_once() -> None:
    cluster = Cluster()
    cluster.store.create(make_node("a"))
    cluster.ends.append(GoneError("410"))
    async with informed(cluster) as (_, handler):
        assert cluster.verbs == ["list", "watch 1", "list", "watch 1"]
        assert handler.lines == ["+a1"]
        assert {when for when, _ in cluster.requests} == {0.0}


@virtual
async def test_a_history_that_is_compacted_under_a_watch_is_made_up_for_by_a_list() -> None:
    cluster = Cluster()
    cluster.store.create(make_node("a"))
    async with informed(cluster) as (informer, handler):
        cluster.store.create(make_node("b"))
        cluster.store.delete(Node, "a")
        cluster.store.compact()
        await quiescent()
        assert handler.lines == ["+a1", "-a1", "+b2"]
        assert informer.resource_version == cluster.store.resource_version


@virtual
async def test_a_list_that_fails_is_tried_again_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.list_errors.extend(ServerError("starting up") for _ in range(8))
    async with informed(cluster) as (informer, _):
        await asyncio.sleep(1000)
        times = [when for when, what in cluster.requests if what == "list"]
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(base <= wait <= 2 * base for base, wait in zip(BACKOFFS, waits, strict=True))
        assert informer.synced.is_set()
    assert caplog.text.count("cannot list or watch Node, trying again: starting up") == 1


BACKOFFS = (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0)


@virtual
async def test_after_two_quiet_minutes_it_starts_with_the_shortest_wait_again() -> None:
    cluster = Cluster()
    cluster.list_errors.extend(ServerError("down") for _ in range(4))
    async with informed(cluster) as (_, handler):
        await asyncio.sleep(300)
        cluster.list_errors.append(ServerError("down"))
        cluster.store.create(make_node("a"))
        cluster.store.compact()
        await quiescent()
        assert handler.lines == []
        await asyncio.sleep(1.6)
        assert handler.lines == ["+a1"]


@virtual
async def test_a_watch_that_ends_is_taken_up_where_it_was() -> None:
    cluster = Cluster()

    async def ends_after_one(kind: type[Any], resource_version: str) -> AsyncIterator[Any]:
        async for batch in MemoryCluster.watch(cluster, kind, resource_version):
            yield batch
            return

    cluster._watch = ends_after_one  # type: ignore[method-assign]  # a cluster whose watches are short
    async with informed(cluster) as (_, handler):
        for name in "abc":
            cluster.store.create(make_node(name))
            await quiescent()
        assert handler.lines == ["+a1", "+b2", "+c3"]
        assert cluster.verbs == ["list", "watch 0", "watch 1", "watch 2", "watch 3"]


@virtual
async def test_a_watch_that_ends_at_once_without_events_counts_as_failed() -> None:
    """Else it would be taken up again and again without a pause."""
    cluster = Cluster()
    cluster.ends.extend([None] * 3)
    async with informed(cluster):
        await asyncio.sleep(20)
        assert cluster.verbs == ["list", "watch 0"] * 4
        assert len({when for when, _ in cluster.requests}) == 4


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_to_watches_the_copy_ends_up_right(seed: int) -> None:
    """Duplicated events, breaks, 410, 500, delays; a random life of a few nodes."""

    async def main() -> None:
        rng = random.Random(seed)
        store = MemoryStore(clock=current_loop().wall_time)
        rates = {
            Fault.DUPLICATE_EVENT: 0.3,
            Fault.SLOW_WATCH: 0.1,
            Fault.BREAK_WATCH: 0.1,
            Fault.EXPIRE_WATCH: 0.1,
            Fault.REJECT_WATCH: 0.1,
            Fault.FAIL_READ: 0.1,
        }
        faulty = FaultyCluster(MemoryCluster(store), seed=seed, rates=rates)
        async with informed(faulty) as (informer, handler):
            for _ in range(300):
                name = rng.choice("abcd")
                there = {node.name for node in store.list(Node)}
                if name not in there:
                    store.create(make_node(name))
                elif rng.random() < 0.3:
                    store.delete(Node, name)
                else:
                    node = store.get(Node, name)
                    labels = {"n": str(rng.random())}
                    store.update(replace(node, metadata=replace(node.metadata, labels=labels)))
                await asyncio.sleep(rng.random())
            assert sum(faulty.counts.values()) > 20
            faulty.off()
            await asyncio.sleep(120)
            assert {node.key: node for node in informer.all()} == handler.copy
            assert sorted(handler.copy.values(), key=lambda node: node.name) == list(store.list(Node))

    logging.disable(logging.WARNING)
    try:
        run_virtual(main())
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("10", "11", True),
        ("a", "b", False),
        ("b", "a", False),
        ("1", "b", False),
        ("", "7", False),
    ],
)
def test_a_version_is_older_if_both_are_numbers(theirs: str, ours: str, expected: bool) -> None:
    assert is_older_version(theirs, ours) is expected
