"""Cached values that must be invalidated: each once was stale, or could have been.

Every scenario is played on a core with a cache and on one that computes everything again; both must agree
after every step, and the last decision is spelt out where it matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import (
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_spread,
)

from .life import outcome

HOST = "kubernetes.io/hostname"


class Both:
    """A core with a cache and one without, with the same events."""

    def __init__(self, *nodes: Node) -> None:
        self.cores = (SchedulingCore(cache=True), SchedulingCore(cache=False))
        for core in self.cores:
            for node in nodes:
                core.cluster.set_node(node)

    def do(self, change: Callable[[Cluster], Any]) -> None:
        for core in self.cores:
            change(core.cluster)

    def decide(self, pod: Pod) -> dict[str, Any]:
        cached, uncached = (outcome(core.decide(pod), core.cluster) for core in self.cores)
        assert cached == uncached
        return cached

    def place(self, pod: Pod) -> str:
        """The node of the pod, which is then assigned."""
        node = str(self.decide(pod)["node"])
        assert node
        self.do(lambda cluster: cluster.add_pod(pod, node))
        return node


def zoned(name: str, zone: str, **more: Any) -> Node:
    return make_node(name, labels={"zone": zone, HOST: name}, **more)


def test_a_node_that_changes_its_zone_is_scored_by_the_new_one() -> None:
    """The columns of nodes that fit are shared by pods of a template, labels included."""
    both = Both(zoned("a", "z0"), zoned("b", "z0"), zoned("c", "z1"), zoned("d", "z1"))

    def pod(number: int) -> Pod:
        spread = make_spread("zone", {"app": "x"}, max_skew=50)
        near = make_pod_affinity(preferred=[(50, make_pod_term("zone", {"app": "y"}))])
        return make_pod(f"p{number}", labels={"app": "x"}, spread=[spread], affinity=near)

    both.do(lambda cluster: cluster.add_pod(make_pod("y", labels={"app": "y"}), "a"))
    assert both.decide(pod(1))["node"] == "b"
    both.do(lambda cluster: cluster.set_node(zoned("b", "z1")))
    both.do(lambda cluster: cluster.set_node(zoned("d", "z0")))
    assert both.decide(pod(2))["node"] == "d"


def test_a_pod_on_an_unseen_node_changes_no_sums() -> None:
    """The table grows by a row that must not be read; sums over domains have no place for it."""
    both = Both(zoned("a", "z0"), zoned("b", "z1"))

    def pod(number: int) -> Pod:
        return make_pod(
            f"p{number}",
            labels={"app": "x"},
            spread=[make_spread("zone", {"app": "x"}), make_spread(HOST, {"app": "x"}, hard=False)],
            affinity=make_pod_affinity(anti_required=[make_pod_term("rack", {"app": "x"})]),
        )

    first = both.place(pod(1))
    both.do(lambda cluster: cluster.add_pod(make_pod("early", labels={"app": "x"}), "unseen"))
    assert {first, both.place(pod(2))} == {"a", "b"}


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(make_pod("p", claims=["missing"]), id="that PreFilter ended"),
        pytest.param(make_pod("p", nominated_node="b"), id="that took the nominated node"),
        pytest.param(make_pod("p"), id="that evaluated all nodes"),
    ],
)
def test_nodes_are_listed_at_the_beginning_of_every_attempt(attempt: Pod) -> None:
    """A node that was missing then comes back at the end of its zone."""
    both = Both(make_node("a"), make_node("b"), make_node("c"))
    both.decide(make_pod("first"))
    both.do(lambda cluster: cluster.remove_node("a"))
    both.decide(attempt)
    both.do(lambda cluster: cluster.set_node(make_node("a")))
    names = both.cores[0].cluster.nodes.name
    assert [names[row] for row in both.cores[0].cluster.order] == ["b", "c", "a"]


def test_an_attempt_without_nodes_lists_none() -> None:
    both = Both(make_node("a"), make_node("b"))
    both.decide(make_pod("first"))
    both.do(lambda cluster: cluster.remove_node("a"))
    both.do(lambda cluster: cluster.remove_node("b"))
    both.decide(make_pod("second"))
    both.do(lambda cluster: (cluster.set_node(make_node("b")), cluster.set_node(make_node("a"))))
    names = both.cores[0].cluster.nodes.name
    assert [names[row] for row in both.cores[0].cluster.order] == ["b", "a"]


# Preemption by pods with affinity or anti-affinity: results of the other filters are cached


WEB = {"app": "web"}


def particular(name: str, **more: Any) -> Pod:
    return make_pod(name, cpu=2, priority=10, labels=WEB, **more)


def evicts(both: Both, pod: Pod) -> list[str]:
    """Evaluated twice, because the second time most of it is cached."""
    first = both.decide(pod)
    assert both.decide(pod) == first
    _, victims, _ = first.get("eviction", ("", [], 0))
    return [key.removeprefix("default/") for key in victims]


def full(*nodes: str) -> Both:
    """Nodes of 4 cpus, each with two pods that may be evicted."""
    both = Both(*(zoned(name, f"z{name}", cpu=4) for name in nodes))
    for name in nodes:
        for which in "12":
            both.do(lambda cluster, n=name, w=which: cluster.add_pod(make_pod(n + w, cpu=2), n))  # type: ignore[misc]
    return both


def test_pods_that_the_affinity_of_the_preemptor_needs_are_not_victims() -> None:
    """The pod fits because of them, and no longer without them."""
    both = full("b")
    both.do(lambda cluster: cluster.set_node(zoned("a", "za", cpu=2)))
    both.do(lambda cluster: cluster.add_pod(make_pod("peer", cpu=2, labels=WEB), "a"))
    near = make_pod_affinity(required=[make_pod_term("zone", WEB)])
    assert evicts(both, make_pod("p", cpu=2, priority=10, affinity=near)) == []


def test_anti_affinity_to_a_nominated_pod_counts() -> None:
    """There would be room for both."""
    both, away = full("a"), make_pod_affinity(anti_required=[make_pod_term(HOST, WEB)])
    assert evicts(both, particular("first", affinity=away)) == ["a2"]
    both.do(lambda cluster: cluster.remove_pod(make_pod("a2").uid))
    both.do(lambda cluster: cluster.nominate(particular("first", affinity=away), "a"))
    assert evicts(both, particular("second", affinity=away)) == []
    both.do(lambda cluster: cluster.set_node(zoned("b", "zb", cpu=1)))
    assert evicts(both, particular("first", affinity=away)) == [], "its own place is free"


def test_a_domain_that_gets_too_full_is_left_out_from_then_on() -> None:
    both, spread = full("a", "b"), [make_spread("zone", WEB)]
    assert evicts(both, particular("first", spread=spread)) == ["a2"]
    both.do(lambda cluster: cluster.remove_pod(make_pod("a2").uid))
    both.do(lambda cluster: cluster.add_pod(particular("first"), "a"))
    assert evicts(both, particular("second", spread=spread)) == ["b2"]


def test_cached_results_are_shared_only_between_pods_with_equal_dependencies() -> None:
    both, away = full("a", "b"), make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "batch"})])
    both.do(lambda cluster: cluster.set_node(zoned("c", "zc", cpu=4)))
    both.do(lambda cluster: cluster.add_pod(make_pod("c1", cpu=4, labels={"app": "batch"}), "c"))
    both.do(lambda cluster: cluster.remove_node("a"))
    assert evicts(both, particular("plain")) == ["b2"]
    assert evicts(both, particular("away", affinity=away)) == ["b2"]
    both.do(lambda cluster: cluster.remove_node("b"))
    assert evicts(both, particular("plain")) == evicts(both, particular("away", affinity=away)) == ["c1"]
