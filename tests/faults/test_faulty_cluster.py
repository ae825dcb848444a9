"""Each fault has its effect and its rate, and is the same again from the same seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bayplan.api.cluster_api import ClusterAPI, PodStatusPatch
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import (
    APIError,
    ConflictError,
    GoneError,
    NotFoundError,
    ServerError,
    UnknownOutcomeError,
)
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_node, make_pod
from tests.faults.faulty_cluster import Fault, FaultyCluster


def make_cluster(store: MemoryStore, *faults: Fault, rate: float = 1.0, seed: int = 1) -> FaultyCluster:
    return FaultyCluster(MemoryCluster(store), seed=seed, rates=dict.fromkeys(faults, rate), delay_seconds=4)


WRITES: dict[str, Callable[[ClusterAPI, Pod], Awaitable[object]]] = {
    "bind": lambda cluster, pod: cluster.bind(pod, "n1"),
    "patch": lambda cluster, pod: cluster.patch_pod_status(pod, PodStatusPatch(nominated_node_name="n1")),
    "delete": lambda cluster, pod: cluster.delete_pod(pod),
    "create": lambda cluster, pod: cluster.create(make_node("n1")),
    "update": lambda cluster, pod: cluster.update(make_pod("a", uid="", labels={"a": "b"})),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("fault", "error", "is_done", "takes_time"),
    [
        pytest.param(Fault.CONFLICT, ConflictError, False, False, id="409 and not done"),
        pytest.param(Fault.NOT_FOUND, NotFoundError, False, False, id="404 and not done"),
        pytest.param(Fault.SERVER_ERROR, ServerError, False, False, id="500 and not done"),
        pytest.param(Fault.TIMEOUT_BEFORE, UnknownOutcomeError, False, True, id="no answer and not done"),
        pytest.param(Fault.TIMEOUT_AFTER, UnknownOutcomeError, True, True, id="no answer but done"),
        pytest.param(Fault.SLOW_REQUEST, None, True, True, id="done late"),
        pytest.param(Fault.SLOW_ANSWER, None, True, True, id="done, answered late"),
    ],
)
def test_a_write_fails(
    write: str, fault: Fault, error: type[APIError] | None, is_done: bool, takes_time: bool
) -> None:
    async def main() -> None:
        store = MemoryStore()
        pod = store.create(make_pod("a"))
        cluster = make_cluster(store, fault)
        raised: APIError | None = None
        try:
            await WRITES[write](cluster, pod)
        except APIError as caught:
            raised = caught
        assert type(raised) is (error or type(None))
        assert (store.resource_version == "2") is is_done
        assert (0 < current_loop().time() <= 4) is takes_time
        assert cluster.counts == {fault: 1}

    run_virtual(main())


def test_a_slow_request_is_done_late_and_a_slow_answer_at_once() -> None:
    def done_at_once(fault: Fault) -> bool:
        async def main() -> bool:
            store = MemoryStore()
            pod = store.create(make_pod("a"))
            task = asyncio.ensure_future(make_cluster(store, fault).bind(pod, "n1"))
            await asyncio.sleep(0)
            is_bound = bool(store.get(Pod, "a", "default").spec.node_name)
            await task
            return is_bound

        return run_virtual(main())

    assert [done_at_once(Fault.SLOW_REQUEST), done_at_once(Fault.SLOW_ANSWER)] == [False, True]


@pytest.mark.parametrize(
    ("bound_elsewhere", "node_name"),
    [
        pytest.param(False, "n1", id="it is done"),
        pytest.param(True, "n2", id="it is late"),
    ],
)
def test_a_binding_that_is_done_after_the_caller_gave_up(bound_elsewhere: bool, node_name: str) -> None:
    async def main() -> str:
        store = MemoryStore()
        pod = store.create(make_pod("a"))
        cluster = make_cluster(store, Fault.LATE_BIND)
        with pytest.raises(UnknownOutcomeError):
            await cluster.bind(pod, "n1")
        assert not store.get(Pod, "a", "default").spec.node_name
        if bound_elsewhere:
            store.bind("a", "default", "n2")
        await asyncio.sleep(4)
        assert cluster.counts == {Fault.LATE_BIND: 1}
        return store.get(Pod, "a", "default").spec.node_name

    assert run_virtual(main()) == node_name


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda cluster: cluster.list(Pod), id="a list"),
        pytest.param(lambda cluster: cluster.get(Pod, "a", "default"), id="a get"),
        pytest.param(lambda cluster: anext(cluster.watch(Pod, "0")), id="the start of a watch"),
    ],
)
def test_a_read_fails(read: Callable[[ClusterAPI], Awaitable[object]]) -> None:
    async def main() -> None:
        store = MemoryStore()
        store.create(make_pod("a"))
        cluster = make_cluster(store, Fault.FAIL_READ)
        with pytest.raises(ServerError):
            await read(cluster)
        cluster.off(Fault.FAIL_READ)
        assert await read(cluster)
        assert cluster.counts == {Fault.FAIL_READ: 1}

    run_virtual(main())


async def watched(cluster: ClusterAPI) -> list[str]:
    """The versions that a watch from the beginning sees until it breaks, and how it ends."""
    seen: list[str] = []
    try:
        async for batch in cluster.watch(Node, "0"):
            seen += [event.resource_version for event in batch]
            if seen[-1] == "4":
                return [*seen, "all"]
    except GoneError:
        return [*seen, "410"]
    return [*seen, "end"]


@pytest.mark.parametrize(
    ("fault", "seed", "seen"),
    [
        pytest.param(Fault.DUPLICATE_EVENT, 1, "1 1 2 2 3 3 4 4 all", id="every event twice"),
        pytest.param(Fault.SLOW_WATCH, 1, "1 2 3 4 all", id="late, but all"),
        pytest.param(Fault.BREAK_WATCH, 0, "1 2 3 end", id="interrupted in a batch"),
        pytest.param(Fault.BREAK_WATCH, 2, "end", id="interrupted before the first event"),
        pytest.param(Fault.EXPIRE_WATCH, 5, "1 2 410", id="interrupted for good"),
        pytest.param(Fault.REJECT_WATCH, 1, "410", id="rejected"),
    ],
)
def test_a_watch_fails(fault: Fault, seed: int, seen: str) -> None:
    async def main() -> None:
        store = MemoryStore()
        for number in range(4):
            store.create(make_node(f"n{number}"))
        cluster = make_cluster(store, fault, seed=seed)
        assert " ".join(await watched(cluster)) == seen
        slow = fault in (Fault.SLOW_WATCH, Fault.BREAK_WATCH, Fault.EXPIRE_WATCH)
        assert (current_loop().time() > 0) is slow
        assert cluster.counts[fault] == (4 if fault is Fault.DUPLICATE_EVENT else 1)

    run_virtual(main())


def test_a_watch_that_broke_can_be_taken_up_where_it_broke() -> None:
    async def main() -> list[str]:
        store = MemoryStore()
        for number in range(50):
            store.create(make_node(f"n{number}"))
        cluster = make_cluster(store, Fault.BREAK_WATCH)
        version, names = "0", list[str]()
        while len(names) < 50:
            async for batch in cluster.watch(Node, version):
                names += [event.object.name for event in batch if event.object]
                version = batch[-1].resource_version
        assert cluster.counts[Fault.BREAK_WATCH] > 1
        return names

    assert run_virtual(main()) == [f"n{number}" for number in range(50)]


async def binds(cluster: FaultyCluster, count: int) -> str:
    """The outcome of each of many binds of one pod, a letter each."""
    outcome = ""
    pod = make_pod("missing")
    for _ in range(count):
        try:
            await cluster.bind(pod, "n1")
        except APIError as error:
            outcome += type(error).__name__[0]
    return outcome


def test_faults_follow_from_the_seed() -> None:
    def run(seed: int) -> tuple[str, float, dict[Fault, int]]:
        async def main() -> tuple[str, float, dict[Fault, int]]:
            cluster = FaultyCluster(
                MemoryCluster(MemoryStore()), seed=seed, rates=dict.fromkeys(Fault, 0.2), delay_seconds=1
            )
            return await binds(cluster, 50), current_loop().time(), dict(cluster.counts)

        return run_virtual(main())

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_faults_strike_at_the_given_rate() -> None:
    async def main() -> int:
        cluster = make_cluster(MemoryStore(), Fault.CONFLICT, rate=0.1)
        outcome = await binds(cluster, 2000)
        assert outcome.count("C") == cluster.counts[Fault.CONFLICT]
        return outcome.count("C")

    assert 150 < run_virtual(main()) < 250


def test_faults_can_be_turned_off_one_by_one_and_all_at_once() -> None:
    async def main() -> list[str]:
        cluster = make_cluster(MemoryStore(), Fault.CONFLICT, Fault.SERVER_ERROR)
        outcomes = [await binds(cluster, 2)]
        cluster.off(Fault.CONFLICT)
        outcomes.append(await binds(cluster, 2))
        cluster.off()
        return [*outcomes, await binds(cluster, 2)]

    assert run_virtual(main()) == ["CC", "SS", "NN"]
