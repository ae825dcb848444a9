"""A pod that fits nowhere may preempt others; the search itself is tested in tests/preemption."""

from __future__ import annotations

import pytest

from bayplan.framework.points import Point
from bayplan.plugin import Action, Cluster, Code, Pod, PostFilterResult, Resource, Status
from bayplan.plugin.args import DefaultPreemptionArgs
from bayplan.plugin.preemption import Nomination
from bayplan.plugins.default_preemption import DefaultPreemption
from bayplan.plugins.inter_pod_affinity import InterPodAffinity
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.plugins.pod_topology_spread import PodTopologySpread
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import Profile
from bayplan.scheduler.cycle import decide
from bayplan.testing.builders import (
    make_node,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_spread,
)
from bayplan.testing.calling import FakeHandle, make_plugin

from .evaluating import points, registrations, requeues

HOST = "kubernetes.io/hostname"
WEB = {"app": "web"}


def crowded(*cpus: str, priority: int = 0) -> Cluster:
    """Nodes n0, n1, … of 4 cpus, each with one pod that takes so many."""
    cluster = Cluster()
    for number, cpu in enumerate(cpus):
        cluster.set_node(make_node(f"n{number}", cpu=4, labels={HOST: f"n{number}"}))
        if cpu:
            cluster.add_pod(make_pod(f"low-{number}", cpu=cpu, priority=priority, labels=WEB), f"n{number}")
    return cluster


def preempt(pod: Pod, cluster: Cluster, plugin: DefaultPreemption | None = None) -> PostFilterResult:
    filters = [make_plugin(NodeResourcesFit), make_plugin(PodTopologySpread), make_plugin(InterPodAffinity)]
    profile = Profile(
        "test",
        {
            Point.PRE_FILTER: filters,
            Point.FILTER: filters,
            Point.POST_FILTER: [plugin or make_plugin(DefaultPreemption)],
        },
        {},
    )
    answer = decide(Framework(profile, cluster), pod).post_filter
    assert answer is not None
    return answer


def high(**more: object) -> Pod:
    return make_pod("high", cpu=4, priority=100, **more)  # type: ignore[arg-type]  # by name


def test_extension_points() -> None:
    assert points(DefaultPreemption) == {"PreEnqueue", "PostFilter"}


def test_it_nominates_a_node_and_names_the_victims() -> None:
    answer = preempt(high(), crowded("4", "3"))
    assert answer.status.code is Code.SUCCESS
    assert answer.nomination == Nomination("n0")
    assert answer.eviction is not None
    assert [victim.name for victim in answer.eviction.victims] == ["low-0"]


def test_violated_budgets_are_counted() -> None:
    cluster = crowded("4")
    cluster.objects.put(make_pdb("web", WEB))
    answer = preempt(high(), cluster)
    assert answer.eviction is not None
    assert answer.eviction.pdb_violations == 1


def test_a_pod_that_may_not_preempt_keeps_its_nomination() -> None:
    answer = preempt(high(preemption_policy="Never"), crowded("4"))
    reason = "preemption: not eligible due to preemptionPolicy=Never."
    assert answer == PostFilterResult(Status(Code.UNSCHEDULABLE, (reason,), "DefaultPreemption"))


def test_where_it_helps_nowhere_the_nomination_is_cleared() -> None:
    cluster = crowded("1", "", priority=200)
    cluster.set_node(make_node("small", cpu=1))
    answer = preempt(make_pod("high", cpu=4, priority=100), cluster_without_room(cluster))
    reason = (
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )
    assert answer == PostFilterResult(
        Status(Code.UNSCHEDULABLE, (reason,), "DefaultPreemption"), Nomination("")
    )


def cluster_without_room(cluster: Cluster) -> Cluster:
    cluster.add_pod(make_pod("peer", cpu=1, priority=100), "n1")
    return cluster


@pytest.mark.parametrize("count", [3, 200])
def test_all_candidates_are_evaluated_unless_the_configuration_limits_them(count: int) -> None:
    """The last node is the best, and found however many there are."""
    cluster = crowded(*["4"] * count, priority=50)
    cluster.remove_pod(make_pod(f"low-{count - 1}").uid)
    cluster.add_pod(make_pod("lowest", cpu=4), f"n{count - 1}")
    assert preempt(high(), cluster).nomination == Nomination(f"n{count - 1}")


def test_with_a_limit_it_takes_the_first_that_helps_from_a_random_start() -> None:
    cluster = crowded(*["4"] * 10)
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1)
    plugin = make_plugin(DefaultPreemption, args, cluster)
    chosen = {preempt(high(), cluster, plugin).nomination for _ in range(20)}
    assert len(chosen) > 3


def test_affinity_to_victims_is_lost_with_them() -> None:
    """Preemption does not help a pod with affinity to its own victims."""
    cluster = crowded("4", "")
    near = make_pod_affinity(required=[make_pod_term(HOST, WEB)])
    answer = preempt(high(affinity=near), cluster)
    assert answer.nomination == Nomination("")
    assert "1 node(s) didn't match pod affinity rules" in answer.status.message


def test_pods_with_anti_affinity_can_be_evicted() -> None:
    cluster = crowded("", "4", priority=200)
    repels = make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "db"})])
    cluster.add_pod(make_pod("repels", affinity=repels), "n0")
    answer = preempt(make_pod("high", cpu=1, priority=100, labels={"app": "db"}), cluster)
    assert answer.nomination == Nomination("n0")


def test_pods_that_make_a_domain_too_full_can_be_evicted() -> None:
    cluster = crowded("1", "")
    cluster.add_pod(make_pod("peer", cpu=4, priority=200), "n1")
    pod = make_pod("high", cpu=1, priority=100, labels=WEB, spread=[make_spread(HOST, WEB)])
    assert preempt(pod, cluster).nomination == Nomination("n0")


# While victims are on their way out


def test_a_pod_whose_victims_are_being_evicted_waits() -> None:
    pod = make_pod("high")
    handle = FakeHandle()
    handle.preempting.add(pod.uid)
    waiting = DefaultPreemption(None, handle)
    reason = "waiting for the preemption for this pod to be finished"
    assert waiting.pre_enqueue(pod) == Status(Code.UNRESOLVABLE, (reason,))
    assert make_plugin(DefaultPreemption).pre_enqueue(pod) is None


def test_a_deleted_pod_is_left_to_other_plugins() -> None:
    """It registers for deletions so that it counts as a rejector, and never requeues a pod by itself."""
    plugin = make_plugin(DefaultPreemption)
    assert registrations(plugin) == [(Resource.POD, Action.DELETE)]
    gone = make_pod("gone", node="n0")
    assert not requeues(plugin, (Resource.ASSIGNED_POD, Action.DELETE), make_pod("high"), gone, None)
