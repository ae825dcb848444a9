"""CapacityScheduling with a failing API server: quotas hold at every binding, and nothing is lost.

Pods of three namespaces come and go while requests fail, watches break and responses are lost. Every binding
is checked against the quotas. Then the faults end, and all pods within the min of their quota must run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from bayplan.api.pod import Pod
from bayplan.api.workloads import ElasticQuota
from bayplan.framework.events import Action, ClusterEventWithHint, Resource, event_with_hint
from bayplan.framework.outcome import FilterOutcome
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.plugins.library.capacity_scheduling import CapacityScheduling
from bayplan.preemption.victims import MayEvict
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.state.view import NodeColumns
from bayplan.testing.builders import make_node
from tests.faults.faulty_cluster import Fault, FaultyCluster

from .quotas import make_config, make_quota, pod_of

SEEDS = range(24)
RATES: dict[Fault, float] = {
    fault: 0.05
    for fault in Fault
    # The scheduler cannot see a binding that is executed after it was given up.
    if fault is not Fault.LATE_BIND
}
CPUS = 12
QUOTAS = (
    make_quota("one", {"cpu": 4}, {"cpu": 8}),
    make_quota("two", {"cpu": 4}, {"cpu": 10}),
    make_quota("three", {"cpu": 4}),
)


class Checked(MemoryCluster):
    """Checks the quotas whenever a pod is bound."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.problems: list[str] = []
        self.bindings = 0
        self.evictions = 0

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        await super().bind(pod, node_name, annotations)
        self.bindings += 1
        total = 0
        for quota in self.store.list(ElasticQuota):
            used = cpus_of(self.store, quota.namespace)
            total += used
            limit = quota.spec.max.get("cpu")
            if limit is not None and used > int(limit):
                self.problems.append(f"{quota.namespace} uses {used} of {limit}")
        if total > CPUS:
            self.problems.append(f"all use {total} of {CPUS}")

    async def delete_pod(self, pod: Pod) -> None:
        self.evictions += 1
        await super().delete_pod(pod)


def cpus_of(store: MemoryStore, namespace: str) -> int:
    """Of bound pods, each of which has a whole number of cpus."""
    return sum(
        int(str(pod.spec.containers[0].resources.requests["cpu"]))
        for pod in store.list(Pod)
        if pod.namespace == namespace and pod.spec.node_name
    )


async def play(seed: int, plugin: type[CapacityScheduling] = CapacityScheduling) -> tuple[list[str], Checked]:
    rng = random.Random(seed)
    store = MemoryStore(clock=current_loop().wall_time)
    checked = Checked(store)
    faulty = FaultyCluster(checked, seed=seed, rates=RATES, delay_seconds=3)
    for item in (*QUOTAS, *(make_node(f"n{i}", cpu="6") for i in range(3))):
        store.create(item)
    scheduler = Scheduler(faulty, make_config(), plugins=[plugin], settings=LoopSettings(seed=seed))
    running = asyncio.ensure_future(scheduler.run())
    for number in range(60):
        await asyncio.sleep(rng.random() * 20)
        pods = store.list(Pod)
        if pods and rng.random() < 0.35:
            gone = rng.choice(pods)
            store.delete(Pod, gone.name, gone.namespace)
        else:
            namespace, cpu = rng.choice(["one", "two", "three"]), rng.choice(["1", "2"])
            store.create(pod_of(namespace, f"p{number}", cpu, priority=rng.choice([0, 5])))
    faulty.off()
    # Each namespace requests all that it is guaranteed, in pods that fit wherever there is room.
    for quota in QUOTAS:
        for pod in [pod for pod in store.list(Pod) if pod.namespace == quota.namespace]:
            if not pod.spec.node_name:
                store.delete(Pod, pod.name, pod.namespace)
        for number in range(4):
            store.create(pod_of(quota.namespace, f"last-{number}", "1", priority=3))
    await asyncio.sleep(900)
    running.cancel()
    problems = list(checked.problems)
    for quota in QUOTAS:
        used = cpus_of(store, quota.namespace)
        mine = [pod for pod in store.list(Pod) if pod.namespace == quota.namespace]
        waiting = [pod.name for pod in mine if not pod.spec.node_name]
        if used < 4 and waiting:
            problems.append(f"{quota.namespace} has only {used} of its 4 cpus, and {waiting} wait")
    return problems, checked


@pytest.mark.parametrize("seed", SEEDS)
def test_quotas_hold_and_are_given_back(seed: int) -> None:
    problems, checked = run_virtual(play(seed))
    assert problems == []
    assert checked.bindings > 10


def test_the_runs_preempt() -> None:
    """Otherwise they would not test giving back."""
    assert sum(run_virtual(play(seed))[1].evictions for seed in range(4)) > 3


class NoLimits(CapacityScheduling):
    """A mistake: quotas are not checked."""

    name: ClassVar = CapacityScheduling.name

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        super().pre_filter(state, pod, nodes)
        return None


class NoLenders(CapacityScheduling):
    """A mistake: what was borrowed is never given back."""

    name: ClassVar = CapacityScheduling.name

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        return lambda row, pods: []


class NoHints(CapacityScheduling):
    """A mistake: a pod that waits for quota is not tried again when others leave."""

    name: ClassVar = CapacityScheduling.name

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (event_with_hint(Resource.NODE, Action.ADD),)


@pytest.mark.parametrize(
    ("mistake", "problem"),
    [
        pytest.param(NoLimits, "uses", id="quotas are exceeded"),
        pytest.param(NoLenders, "has only", id="borrowed capacity is not given back"),
        pytest.param(NoHints, "wait", id="waiting pods are lost"),
    ],
)
def test_a_mistake_is_found(mistake: type[CapacityScheduling], problem: str) -> None:
    found = (run_virtual(play(seed, mistake))[0] for seed in SEEDS)
    assert any(problem in text for problems in found for text in problems)
