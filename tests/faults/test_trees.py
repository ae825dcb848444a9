"""Fault runs with composite groups: nothing is forgotten or bound twice, and no tree is bound in part."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.groups import (
    CompositePodGroup,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod
from tests.effort import LONG_RUN
from tests.faults.life import play
from tests.faults.trees import RELEASE, BoundTrees, make_composite, waiting_trees


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(4), id="some seeds"),
        *(
            pytest.param(range(first, first + 8), marks=LONG_RUN, id=f"seeds {first} to {first + 7}")
            for first in range(4, 36, 8)
        ),
    ],
)
def test_lives_with_trees(seeds: range) -> None:
    found = {seed: play(seed, with_trees=True).problems for seed in seeds}
    assert {seed: problems for seed, problems in found.items() if problems} == {}


def store_with_tree(cpu: int) -> MemoryStore:
    """Two groups of one member each, which must run together, and a node with so many CPUs."""
    store = MemoryStore()
    store.create(make_node("n", cpu=cpu))
    store.create(make_composite("tree", None, 2, 0, namespace="default"))
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=1))
    for name in ("a", "b"):
        spec = PodGroupSpec(scheduling_policy=policy, priority=0, parent_composite_pod_group_name="tree")
        store.create(PodGroup(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))
        pod = make_pod(name, cpu=1)
        named = PodSchedulingGroup(pod_group_name=name)
        store.create(replace(pod, spec=replace(pod.spec, scheduling_group=named)))
    return store


@pytest.mark.parametrize(
    ("cpu", "found"),
    [
        pytest.param(2, ["tree tree waits, but would fit"], id="both groups fit"),
        pytest.param(1, [], id="one group fits"),
    ],
)
def test_a_tree_that_waits_although_it_fits_is_found(cpu: int, found: list[str]) -> None:
    store = store_with_tree(cpu)

    async def check() -> list[str]:
        scheduler = Scheduler(MemoryCluster(store), release=RELEASE)
        return [one.text.partition(";")[0] for one in waiting_trees(scheduler, store)]

    assert run_virtual(check()) == found


def test_a_tree_that_is_bound_in_part_is_found() -> None:
    store = store_with_tree(2)

    async def check() -> list[str]:
        scheduler = Scheduler(MemoryCluster(store), release=RELEASE)
        cluster, trees = scheduler.context.cluster, BoundTrees(store)
        for kind in (PodGroup, CompositePodGroup):
            for item in store.list(kind):
                cluster.objects.put(item)
        pod = store.get(Pod, "a", "default")
        cluster.add_pod(pod, "n")
        trees.bound(scheduler, pod)
        return trees.problems

    assert run_virtual(check()) == ["pod default/a is bound, but its tree default/tree has too few groups"]
