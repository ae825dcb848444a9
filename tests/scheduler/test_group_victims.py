"""Units that a group may evict are removed only if that can help, and added back in as few checks as
possible: the victims are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.releases import V1_37
from bayplan.framework.outcome import Eviction
from bayplan.plugin import CycleState, FilterPlugin, NodeColumns, Plugin, Reject
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.search import run_through
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.group_cycle import GroupCycle, GroupDecision
from bayplan.state.group_trees import tree_of
from bayplan.state.groups import GroupKey
from bayplan.state.pods import PodInfo
from bayplan.testing import make_node, make_pod

from .behaviour.test_groups import make_group, members

RELEASE = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
TOPOLOGY = RELEASE.with_gates(RELEASE.gates | {"TopologyAwareWorkloadScheduling"})
SIZES = ["500m", "1", "1", "2"]


class ReadsTheCluster(Plugin, FilterPlugin):
    """Rejects no node. Its results are not cached, so all members are checked with each unit."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        return iter(())


def make_core(seed: int, *plugins: type[Plugin]) -> SchedulingCore:
    """Nodes full of pods, many of them identical, and one group that is evicted as one."""
    rng = random.Random(seed)
    core = SchedulingCore(release=RELEASE, plugins=(*BUILTIN_PLUGINS, *plugins))
    core.cluster.objects.put(make_group("low", min_count=1, as_one=True))
    for number in range(rng.randrange(2, 8)):
        node, used = make_node(f"n{number}", cpu="8", pods=rng.choice([8, 110])), 0.0
        core.cluster.set_node(node)
        while used < 7:
            cpu = rng.choice(SIZES)
            used += 0.5 if cpu == "500m" else float(cpu)
            named = PodSchedulingGroup(pod_group_name="low") if rng.random() < 0.1 else None
            pod = make_pod(
                f"p{number}-{used}",
                cpu=cpu,
                node=node.name,
                priority=0 if named else rng.choice([0, 0, 5, 1000]),
                scheduling_group=named,
                annotations={"kind": rng.choice("ab")},
            )
            core.cluster.add_pod(pod, node.name)
    return core


def decide(
    core: SchedulingCore, pods: list[Pod], min_count: int | None = None, key: str = ""
) -> GroupDecision:
    states = core.cluster.groups
    assert states is not None
    least = len(pods) if min_count is None else min_count
    core.cluster.objects.put(make_group(min_count=least, priority=100, key=key))
    group = states.group(GroupKey("default", "g"))
    assert group is not None
    return run_through(
        GroupCycle(core.frameworks["default-scheduler"], tree_of(states, group, pods)).decide()
    )


def names(eviction: Eviction | None) -> list[str]:
    return [] if eviction is None else [pod.name for pod in eviction.victims]


@pytest.mark.parametrize("seed", range(60))
def test_victims_are_those_of_checking_all_members_with_each_unit(seed: int) -> None:
    rng, results = random.Random(seed), []
    pods = members(rng.randrange(1, 7), cpu=rng.choice(["1", "2", "3"]), priority=100)
    for core in (make_core(seed), make_core(seed, ReadsTheCluster)):
        decision = decide(core, pods)
        results.append((decision.final, names(decision.eviction), decision.nominations))
    assert results[0] == results[1]


def test_of_identical_pods_that_do_not_fit_on_a_node_one_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    core, added = SchedulingCore(release=RELEASE), []
    core.cluster.set_node(make_node("n", cpu="10"))
    for number in range(10):
        core.cluster.add_pod(make_pod(f"p{number}", cpu="1", node="n"), "n")
    add_pod = core.cluster.add_pod

    def spy(pod: Pod, node_name: str, info: PodInfo | None = None) -> int:
        added.append(pod.name)
        return add_pod(pod, node_name, info)

    monkeypatch.setattr(core.cluster, "add_pod", spy)
    decision = decide(core, members(1, cpu="10", priority=100))
    assert len(names(decision.eviction)) == 10
    assert set(added) - {"g-0"} == {"p0"}


def make_room_core(seed: int, *, cache: bool) -> tuple[SchedulingCore, list[Pod], int, str]:
    """Nodes in racks, some of them full of pods of lower or higher priority, and the members of a group."""
    rng = random.Random(seed)
    release = rng.choice([RELEASE, TOPOLOGY])
    core = SchedulingCore(release=release, cache=cache)
    core.cluster.objects.put(make_group("low", min_count=1, as_one=True, priority=rng.choice([0, 200])))
    for number in range(rng.randrange(3, 9)):
        node = make_node(
            f"n{number}",
            cpu=str(rng.randrange(2, 9)),
            pods=rng.choice([3, 110]),
            labels={"rack": f"r{number % 3}"},
            taints=["dedicated=x:NoSchedule"] if rng.random() < 0.2 else (),
        )
        core.cluster.set_node(node)
        for other in range(rng.randrange(4)):
            named = PodSchedulingGroup(pod_group_name="low") if rng.random() < 0.2 else None
            priority = 0 if named else rng.choice([0, 50, 200])
            pod = make_pod(
                f"p{number}-{other}", cpu="1", node=node.name, priority=priority, scheduling_group=named
            )
            core.cluster.add_pod(pod, node.name)
    pods = members(rng.randrange(1, 12), cpu=rng.choice(["2", "3", "5"]), priority=100)
    return core, pods, rng.randrange(len(pods) + 1), rng.choice(["", "rack"]) if release is TOPOLOGY else ""


@pytest.mark.parametrize("seed", range(100))
def test_that_a_group_would_not_fit_is_counted_as_by_placing_it(seed: int) -> None:
    """Nothing is counted if nothing is cached: then the members are placed without the other pods."""
    results = []
    for cache in (True, False):
        core, pods, min_count, key = make_room_core(seed, cache=cache)
        decision = decide(core, pods, min_count, key)
        results.append(
            (decision.status, decision.final, names(decision.eviction), decision.nominations),
        )
    assert results[0] == results[1]


def test_no_pod_is_removed_for_a_group_that_would_not_fit_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = SchedulingCore(release=RELEASE)
    for number in range(3):
        core.cluster.set_node(make_node(f"n{number}", cpu="4"))
        core.cluster.add_pod(make_pod(f"p{number}", cpu="3", node=f"n{number}"), f"n{number}")
    monkeypatch.setattr(core.cluster, "remove_pods", lambda slots: pytest.fail("pods were removed"))
    decision = decide(core, members(8, cpu="2", priority=100))
    _, _, preemption = decision.final.message.partition("pod group preemption: ")
    assert preemption == "minCount (8) cannot be satisfied: 6 scheduled, 1 remaining"


@pytest.mark.parametrize("is_group", [False, True], ids=["a single pod preempts", "a group preempts"])
def test_a_pod_of_a_deleted_group_is_more_important_than_a_single_pod(is_group: bool) -> None:
    """The single pod has run for longer, which would decide between two of them."""
    core = SchedulingCore(release=RELEASE)
    core.cluster.set_node(make_node("n", cpu="2"))
    for day, name in enumerate(("single", "member"), start=1):
        named = PodSchedulingGroup(pod_group_name="deleted") if name == "member" else None
        started = datetime(2026, 1, day, tzinfo=UTC)
        pod = make_pod(name, cpu="1", node="n", scheduling_group=named, started=started)
        core.cluster.add_pod(pod, "n")
    if is_group:
        eviction = decide(core, members(1, priority=100)).eviction
    else:
        result = core.decide(make_pod("high", cpu="1", priority=100)).post_filter
        eviction = None if result is None else result.eviction
    assert names(eviction) == ["single"]
