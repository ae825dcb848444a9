"""A plugin's own amounts by node: they follow pods, Reserve and hypotheses, with and without the cache."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from bayplan.plugin import (
    Amounts,
    Cluster,
    CycleState,
    Dependencies,
    IntColumn,
    Node,
    NodeAmounts,
    NodeColumns,
    NodeInfo,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    Status,
    unschedulable,
)
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import make_node, make_pod

REQUESTED, GIVEN, COUNT = "example.com/gpu-milli", "example.com/gpu", "example.com/gpus"


class GpuRequest(NamedTuple):
    milli: int
    given: int | None


def gpu_request(pod: Pod) -> GpuRequest | None:
    milli = int(pod.annotations.get(REQUESTED, 0))
    given = pod.annotations.get(GIVEN)
    return GpuRequest(milli, None if given is None else int(given)) if milli else None


class Gpus(NodeAmounts[GpuRequest]):
    def capacity(self, node: Node) -> Sequence[int]:
        return [1000] * int(node.annotations.get(COUNT, 0))

    def request(self, pod: Pod) -> GpuRequest | None:
        return gpu_request(pod)

    def place(self, request: GpuRequest, free: Amounts) -> Sequence[int]:
        """The fullest device with enough free, or the first one."""
        enough = np.flatnonzero(free >= request.milli)
        best = 0 if not len(enough) else int(enough[free[enough].argmin()])
        device = best if request.given is None else request.given
        return [request.milli if index == device else 0 for index in range(len(free))]


class GpuShare(Plugin):
    """The same for all nodes at once."""

    depends_on: Dependencies | None = Dependencies.of(gpu_request, usage=True)

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        wanted = gpu_request(pod)
        if wanted is not None:
            free = Gpus.of(nodes).free(nodes)
            yield Reject(free.max(axis=1) < wanted.milli, unschedulable("no GPU with enough free"))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        free = np.maximum(Gpus.of(nodes).free(nodes), 0)
        scores: IntColumn = np.minimum(100, free.sum(axis=1) // 100)
        return scores


class UncachedGpuShare(GpuShare):
    depends_on = None


class GpuShareByNode(NodePlugin):
    """The same, one node at a time."""

    depends_on = Dependencies.of(gpu_request, usage=True)

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status | None:
        wanted = gpu_request(pod)
        assert self.handle is not None
        if wanted is None or (Gpus.of(self.handle.cluster).free_on(node) >= wanted.milli).any():
            return None
        return unschedulable("no GPU with enough free")

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        assert self.handle is not None
        free = np.maximum(Gpus.of(self.handle.cluster).free_on(node), 0)
        return min(100, int(free.sum()) // 100)


def gpu_node(name: str, count: int) -> Node:
    return make_node(name, annotations={COUNT: str(count)})


def gpu_pod(name: str, milli: int, *, given: int | None = None, priority: int = 0) -> Pod:
    annotations = {REQUESTED: str(milli)} if given is None else {REQUESTED: str(milli), GIVEN: str(given)}
    return make_pod(name, cpu="10m", annotations=annotations, priority=priority)


def free(cluster: Cluster) -> list[list[int]]:
    found: list[list[int]] = Gpus.of(cluster).free(NodeColumns(cluster)).tolist()
    return found


def small_cluster() -> Cluster:
    cluster = Cluster()
    cluster.set_node(gpu_node("a", 2))
    cluster.set_node(gpu_node("b", 1))
    return cluster


def test_pods_that_are_added_and_removed() -> None:
    cluster = small_cluster()
    assert free(cluster) == [[1000, 1000], [1000, 0]]
    cluster.add_pod(gpu_pod("x", 600), "a")
    cluster.add_pod(gpu_pod("y", 300), "a")
    cluster.add_pod(gpu_pod("z", 500, given=0), "b")
    assert free(cluster) == [[100, 1000], [500, 0]]
    cluster.remove_pod(gpu_pod("x", 600).uid)
    assert free(cluster) == [[700, 1000], [500, 0]], "y stays where it was assigned"


def test_wider_nodes_come_later() -> None:
    cluster = small_cluster()
    cluster.add_pod(gpu_pod("x", 600), "a")
    assert free(cluster)[0] == [400, 1000]
    cluster.set_node(gpu_node("c", 3))
    assert free(cluster) == [[400, 1000, 0], [1000, 0, 0], [1000, 1000, 1000]]
    cluster.remove_node("c")
    assert free(cluster)[2] == [0, 0, 0]


def test_reserve_decides_and_unreserve_undoes_it() -> None:
    cluster = small_cluster()
    pod = gpu_pod("x", 600)
    cluster.add_pod(pod, "a")
    table = Gpus.of(cluster)
    table.reserve(pod, [0, 600])
    assert free(cluster)[0] == [1000, 400]
    taken = table.taken_by(pod)
    assert taken is not None
    assert taken.tolist() == [0, 600]
    table.unreserve(pod)
    assert free(cluster)[0] == [400, 1000]
    cluster.remove_pod(pod.uid)
    assert free(cluster)[0] == [1000, 1000]
    assert Gpus.of(cluster).taken_by(pod) is None


def test_what_was_reserved_stays_until_the_annotation_changes_it() -> None:
    cluster = small_cluster()
    pod = gpu_pod("x", 600)
    cluster.add_pod(pod, "a")
    Gpus.of(cluster).reserve(pod, [0, 600])
    cluster.update_pod(replace(pod, status=replace(pod.status, phase="Running")))
    cluster.add_pod(gpu_pod("y", 100), "a")
    assert free(cluster)[0] == [1000, 300]
    cluster.update_pod(gpu_pod("x", 600, given=0))
    assert free(cluster)[0] == [400, 900], "the annotation of an assigned pod changed"


def test_arrays_are_read_only() -> None:
    cluster = small_cluster()
    with pytest.raises(ValueError, match="read-only"):
        Gpus.of(cluster).free(NodeColumns(cluster))[0, 0] = 7


@pytest.mark.parametrize("plugin", [GpuShare, UncachedGpuShare, GpuShareByNode])
class TestDecisions:
    def test_pods_with_equal_values_share_results(self, plugin: type[Plugin]) -> None:
        core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, plugin])
        core.load([gpu_node("a", 1), gpu_node("b", 2)])
        for name, milli, node in (("x", 600, "b"), ("y", 700, "b"), ("z", 700, "a"), ("w", 700, "")):
            decision = core.decide(gpu_pod(name, milli))
            assert decision.node_name == node, decision.message
            if decision.fits:
                core.assume(decision)

    def test_preemption_gets_the_device_of_its_victim(self, plugin: type[Plugin]) -> None:
        core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, plugin])
        core.load([gpu_node("a", 1), gpu_node("b", 1), make_pod("idle", node="b", cpu="10m")])
        for name, milli, node in (("x", 900, "a"), ("y", 300, "b"), ("z", 600, "b")):
            core.cluster.add_pod(gpu_pod(name, milli), node)
        decision = core.decide(gpu_pod("urgent", 700, priority=5))
        assert decision.post_filter is not None
        assert decision.post_filter.eviction is not None
        victims = {victim.name for victim in decision.post_filter.eviction.victims}
        assert (decision.post_filter.eviction.node_name, victims) in (("a", {"x"}), ("b", {"z"}))
        # 300 of b are taken by y, which may stay: only one victim is needed there.
        assert "idle" not in victims
        core.cluster.nominate(gpu_pod("nominated", 700, priority=9), "a")
        decision = core.decide(gpu_pod("urgent", 700, priority=5))
        assert decision.post_filter is not None
        assert decision.post_filter.eviction is not None
        assert decision.post_filter.eviction.node_name == "b"


def test_after_an_exception_the_row_is_still_stale() -> None:
    """And what Reserve decided about its other pods is not forgotten."""
    cluster = Cluster()
    cluster.set_node(gpu_node("a", 2))
    reserved, valid = gpu_pod("reserved", 300), gpu_pod("other", 200)
    cluster.add_pod(reserved, "a")
    Gpus.of(cluster).reserve(reserved, [0, 300])
    cluster.add_pod(make_pod("other", cpu="10m", annotations={REQUESTED: "half"}), "a")
    for _ in range(2):
        with pytest.raises(ValueError, match="half"):
            Gpus.of(cluster)
    cluster.update_pod(valid)
    assert free(cluster) == [[1000, 500]]


def test_all_ways_agree() -> None:
    """Arrays, one node at a time and without a cache, while pods are added, deleted and preempt."""
    rng = random.Random(3)
    cores = {
        (plugin.__name__, cache): SchedulingCore(plugins=[*BUILTIN_PLUGINS, plugin], cache=cache)
        for plugin in (GpuShare, GpuShareByNode)
        for cache in (True, False)
    }
    for core in cores.values():
        core.load([gpu_node(f"n{i}", 1 + i % 3) for i in range(9)])
    running: list[Pod] = []
    for number in range(150):
        pod = gpu_pod(f"p{number}", rng.choice([0, 200, 500, 700]), priority=rng.choice([0, 0, 5]))
        outcomes = {}
        for key, core in cores.items():
            decision = core.decide(pod)
            answer = decision.post_filter
            eviction = None if answer is None else answer.eviction
            victims = () if eviction is None else tuple(victim.name for victim in eviction.victims)
            outcomes[key] = (decision.node_name, victims, decision.message)
            if decision.fits:
                core.assume(decision)
        assert len(set(outcomes.values())) == 1, outcomes
        node, victims, _ = next(iter(outcomes.values()))
        if node:
            running.append(pod)
        gone = {one.uid for one in running if one.name in victims}
        if rng.random() < 0.3 and running:
            gone.add(rng.choice(running).uid)
        running = [one for one in running if one.uid not in gone]
        for uid in sorted(gone):
            for core in cores.values():
                core.cluster.remove_pod(uid)
    tables = {str(free(core.cluster)) for core in cores.values()}
    assert len(tables) == 1
