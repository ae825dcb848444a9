"""Whatever happens to a store and its connections, a client that lists and watches ends up with its state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.cluster_api import Change, PodStatusPatch
from bayplan.api.pod import Pod
from bayplan.errors import APIError
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_pod
from tests.faults.faulty_cluster import Fault, FaultyCluster

from .mirror import Mirror

NAMESPACE = "default"


def _update(store: MemoryStore, name: str) -> None:
    pod = store.get(Pod, name, NAMESPACE)
    labels = {"seen": store.resource_version}
    store.update(make_pod(name, uid="", labels=labels, node=pod.spec.node_name, phase=pod.status.phase))


WRITES: dict[str, Callable[[MemoryStore, str], object]] = {
    "create": lambda store, name: store.create(make_pod(name)),
    "create finished": lambda store, name: store.create(make_pod(name, phase="Failed")),
    "update": _update,
    "delete": lambda store, name: store.delete(Pod, name, NAMESPACE),
    "bind": lambda store, name: store.bind(name, NAMESPACE, "n1"),
    "nominate": lambda store, name: store.patch_pod_status(
        name, NAMESPACE, PodStatusPatch(nominated_node_name=store.resource_version)
    ),
    "run": lambda store, name: store.set_pod_running(name, NAMESPACE),
    "finish": lambda store, name: store.set_pod_phase(name, NAMESPACE, "Succeeded"),
    "bookmark": lambda store, name: store.send_bookmarks(),
    "compact": lambda store, name: store.compact(),
}


@dataclass(frozen=True)
class Step:
    write: str
    name: str
    wait: float


steps = st.lists(
    st.builds(
        Step,
        write=st.sampled_from(sorted(WRITES)),
        name=st.sampled_from("abcd"),
        wait=st.sampled_from([0.0, 0.0, 0.0, 0.5, 20.0]),
    ),
    max_size=60,
)


async def play(store: MemoryStore, script: list[Step]) -> None:
    """Runs the script; what the store rejects is left out."""
    for step in script:
        try:
            WRITES[step.write](store, step.name)
        except APIError:
            continue
        if step.wait:
            await asyncio.sleep(step.wait)


def visible(store: MemoryStore) -> dict[str, Pod]:
    return {pod.key: pod for pod in store.list(Pod) if not pod.is_finished}


WATCH_FAULTS = (
    Fault.DUPLICATE_EVENT,
    Fault.SLOW_WATCH,
    Fault.BREAK_WATCH,
    Fault.EXPIRE_WATCH,
    Fault.REJECT_WATCH,
    Fault.FAIL_READ,
    Fault.SLOW_REQUEST,
)


@settings(deadline=None)
@given(
    script=steps,
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.0, 0.05, 0.5]),
    history=st.sampled_from([2, 8, 1000]),
)
def test_a_client_ends_with_the_objects_of_the_store(
    script: list[Step], seed: int, rate: float, history: int
) -> None:
    async def main() -> None:
        store = MemoryStore(clock=current_loop().wall_time, history=history)
        faulty = FaultyCluster(MemoryCluster(store), seed=seed, rates=dict.fromkeys(WATCH_FAULTS, rate))
        mirror = Mirror(faulty, Pod)
        task = asyncio.create_task(mirror.run())
        await play(store, script)
        faulty.off()
        await asyncio.sleep(60)
        assert mirror.objects == visible(store)
        assert not task.done()

    run_virtual(main())


@settings(deadline=None)
@given(script=steps, late=steps)
def test_all_watchers_see_one_order_and_versions_never_decrease(script: list[Step], late: list[Step]) -> None:
    """A later one sees the rest of what the first one saw, and so does one that was suspended longer."""

    async def main() -> None:
        store = MemoryStore(clock=current_loop().wall_time)
        cluster = MemoryCluster(store)
        first, second = Mirror(cluster, Pod), Mirror(cluster, Pod)
        tasks = [asyncio.create_task(first.run())]
        await quiescent()
        await play(store, [step for step in script if step.write != "compact"])
        await quiescent()
        count = len(first.events)
        tasks.append(asyncio.create_task(second.run()))
        await quiescent()
        await play(store, late)
        await quiescent()
        assert second.events == first.events[count:]
        assert first.objects == second.objects == visible(store)
        changes = [
            int(event.resource_version) for event in first.events if event.change is not Change.BOOKMARK
        ]
        assert all(earlier < later for earlier, later in pairwise(changes))
        assert [int(event.resource_version) for event in first.events] == sorted(
            int(event.resource_version) for event in first.events
        )

    run_virtual(main())


@settings(deadline=None)
@given(script=steps)
def test_the_same_writes_give_the_same_store(script: list[Step]) -> None:
    async def main() -> tuple[list[Pod], str]:
        store = MemoryStore(clock=current_loop().wall_time, seed=7)
        await play(store, script)
        return list(store.list(Pod)), store.resource_version

    assert run_virtual(main()) == run_virtual(main())
