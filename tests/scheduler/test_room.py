"""Identical members are counted in each domain and searched for in one: the decision is the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.releases import V1_37
from bayplan.runtime.room import room
from bayplan.runtime.search import Found, NotFound, Search, Steps, run_through
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.group_cycle import GroupCycle, GroupDecision
from bayplan.state.group_trees import tree_of
from bayplan.state.groups import GroupKey
from bayplan.testing import make_node, make_pod

from .behaviour.test_groups import make_group

GATES = {"GenericWorkload", "TopologyAwareWorkloadScheduling"}
RELEASE = V1_37.with_gates(V1_37.gates | GATES)
DOMAINS = 6


def make_core(seed: int, *, cache: bool = True) -> tuple[SchedulingCore, random.Random]:
    """Racks that differ in size and load; some nodes are tainted, cordoned or have few slots for pods."""
    rng = random.Random(seed)
    core = SchedulingCore(release=RELEASE, cache=cache)
    for number in range(rng.randrange(8, 30)):
        labels = {"rack": f"r{rng.randrange(DOMAINS)}"} if rng.random() < 0.9 else {}
        node = make_node(
            f"n{number}",
            cpu=str(rng.randrange(1, 9)),
            pods=rng.choice([2, 3, 110]),
            labels=labels,
            unschedulable=rng.random() < 0.1,
            taints=["dedicated=x:NoSchedule"] if rng.random() < 0.1 else (),
        )
        core.cluster.set_node(node)
        for other in range(rng.randrange(3)):
            pod = make_pod(f"other-{number}-{other}", cpu="500m", node=node.name)
            core.cluster.add_pod(pod, node.name)
    return core, rng


def make_members(rng: random.Random, **fields: Any) -> list[Pod]:
    named, cpu = PodSchedulingGroup(pod_group_name="g"), rng.choice(["500m", "1", "2"])
    count = rng.randrange(1, 14)
    return [make_pod(f"g-{number}", cpu=cpu, scheduling_group=named, **fields) for number in range(count)]


def decide(core: SchedulingCore, pods: list[Pod], min_count: int) -> GroupDecision:
    states, key = core.cluster.groups, GroupKey("default", "g")
    assert states is not None
    core.cluster.objects.put(make_group(min_count=min_count, key="rack"))
    group = states.group(key)
    assert group is not None
    framework = core.frameworks["default-scheduler"]
    return run_through(GroupCycle(framework, tree_of(states, group, pods)).decide())


def summary(decision: GroupDecision) -> object:
    members = [None if one is None else (one.node_name, one.message) for one in decision.decisions]
    return decision.status, decision.final, members


@pytest.mark.parametrize("seed", range(60))
def test_counting_decides_as_searching_every_domain(seed: int) -> None:
    results = []
    for cache in (True, False):
        core, rng = make_core(seed, cache=cache)
        pods = make_members(rng)
        results.append(summary(decide(core, pods, rng.randrange(1, len(pods) + 1))))
    assert results[0] == results[1]


@pytest.mark.parametrize("seed", range(20))
def test_the_number_is_that_of_placing_one_after_the_other(seed: int) -> None:
    core, rng = make_core(seed)
    pods, cluster = make_members(rng), core.cluster
    rows = np.array_split(cluster.order, 3)
    found = room(core.frameworks["default-scheduler"], pods, rows)
    placed = []
    for here in rows:
        cluster.undo.mark()
        count = 0
        for pod in pods:
            framework = core.frameworks["default-scheduler"]
            search = framework.begin(pod)
            search.rows = here
            result = run_through(framework.search(search))
            if isinstance(result, Found):
                cluster.add_pod(pod, result.node_name)
                count += 1
        cluster.undo.revert()
        placed.append(count)
    assert found == placed


@pytest.mark.parametrize(
    "case",
    ["two sizes", "host ports", "a nominated pod", "uncached"],
)
def test_members_are_placed_one_by_one_if_counting_could_be_wrong(case: str) -> None:
    core, rng = make_core(1, cache=case != "uncached")
    pods = make_members(rng, host_ports=[80] if case == "host ports" else ())
    if case == "two sizes":
        pods.append(make_pod("g-x", cpu="3"))
    if case == "a nominated pod":
        core.cluster.nominate(make_pod("other"), "n0")
    assert room(core.frameworks["default-scheduler"], pods, [core.cluster.order]) is None


def test_only_the_chosen_domain_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SchedulingCore(release=RELEASE)
    for number in range(30):
        core.cluster.set_node(make_node(f"n{number}", cpu="4", labels={"rack": f"r{number % 10}"}))
    named = PodSchedulingGroup(pod_group_name="g")
    pods = [make_pod(f"g-{number}", cpu="2", scheduling_group=named) for number in range(5)]
    framework, searched = core.frameworks["default-scheduler"], []
    search = framework.search

    def spy(one: Search) -> Steps[Found | NotFound]:
        searched.append(one.pod.name)
        return search(one)

    monkeypatch.setattr(framework, "search", spy)
    assert decide(core, pods, 5).status.is_success
    assert searched == [pod.name for pod in pods]
