"""Columns as they would be; `tests/scheduler/test_columns.py` holds them against clusters really changed."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.api.pod import HostPort
from bayplan.plugin import Cluster, NodeColumns, PodQuery, PodSelector, compile_selector
from bayplan.plugin.preemption import Hypothesis
from bayplan.state.terms import carried_terms
from bayplan.testing.builders import make_node, make_pod, make_pod_affinity, make_pod_term, make_selector

WEB = {"app": "web"}
REPELS = make_pod_affinity(anti_required=[make_pod_term("zone", WEB)])


def cluster_of() -> Cluster:
    """a with two pods, b with one, c empty; "new" is nominated to all of them."""
    cluster = Cluster()
    for name in "abc":
        cluster.set_node(make_node(name, cpu=4))
    cluster.add_pod(make_pod("a1", cpu=1, labels=WEB, host_ports=[80]), "a")
    cluster.add_pod(make_pod("a2", cpu=2, affinity=REPELS), "a")
    cluster.add_pod(make_pod("b1", cpu=3, labels=WEB), "b")
    return cluster


def suppose(cluster: Cluster, **changes: str) -> Hypothesis:
    """`a="-a1 +new =a2"`: on node a these pods gone, added, or as they are."""
    slot_of = {pod.name: slot for slot, pod in enumerate(cluster.pods.pod) if pod is not None}
    signs = {"-": -1, "+": 1, "=": 0}
    return Hypothesis.on_few_rows(
        cluster,
        [cluster.nodes.row_of[name] for name in changes],
        [[(slot_of[word[1:]], signs[word[0]]) for word in words.split()] for words in changes.values()],
    )


def test_pods_gone_and_added() -> None:
    cluster = cluster_of()
    cluster.nominate(make_pod("new", cpu="500m"), "c")
    view = suppose(cluster, a="-a1 =a2", b="-b1 +new", c="+new")
    assert view.pod_count.tolist() == [1, 1, 1]
    assert view.requested("cpu").tolist() == [2000, 500, 500]
    assert view.nonzero_cpu_milli.tolist() == [2000, 500, 500]
    assert [[pod.name for pod in view.pods_on(position)] for position in range(3)] == [
        ["a2"],
        ["new"],
        ["new"],
    ]
    assert view.node_info(0).free("cpu") == 2000


def test_each_row_is_its_own_hypothesis() -> None:
    """A pod removed from one node is still there when another node is evaluated."""
    cluster = cluster_of()
    view = suppose(cluster, a="-a1 -a2", b="")
    assert view.pod_count.tolist() == [0, 1]
    assert NodeColumns(cluster).pod_count.tolist() == [2, 1, 0]


def test_nothing_changes_without_pods() -> None:
    view = suppose(cluster_of(), a="", c="")
    assert view.pod_count.tolist() == [2, 0]
    assert view.changed_pods(0) == ([], [])


def test_some_of_the_rows() -> None:
    cluster = cluster_of()
    cluster.nominate(make_pod("new", cpu=1), "c")
    view = suppose(cluster, a="-a1 -a2", b="-b1", c="+new").subset(np.array([2, 0], dtype=np.intp))
    assert (view.names, view.pod_count.tolist()) == (["c", "a"], [1, 0])
    assert len(view.subset(np.array([], dtype=np.intp))) == 0


@pytest.mark.parametrize(
    ("alive", "expected"), [(False, [-1, -1, 1]), (True, [-1, -1, 1])], ids=["all", "those not being deleted"]
)
def test_how_many_more_pods_match(alive: bool, expected: list[int]) -> None:
    cluster = cluster_of()
    cluster.nominate(make_pod("new", labels=WEB), "c")
    query = PodQuery((PodSelector(None, compile_selector(make_selector(WEB))),), alive)
    view = suppose(cluster, a="-a1 -a2", b="-b1", c="+new")
    assert view.matching_change(query).tolist() == expected


def test_how_many_more_times_a_term_is_carried() -> None:
    cluster = cluster_of()
    cluster.nominate(make_pod("new", affinity=REPELS), "c")
    (carried,) = carried_terms(make_pod(affinity=REPELS))
    view = suppose(cluster, a="-a1 -a2", b="=b1", c="+new")
    assert view.carried_change(carried).tolist() == [-1, 0, 1]
    assert view.added_terms() == (carried,)
    assert suppose(cluster, a="-a2").added_terms() == ()


class TestPorts:
    def ports(self, view: Hypothesis, position: int = 0) -> set[int]:
        return {used.port for used in view.used_ports(position)}

    def test_removed_pods_free_their_ports(self) -> None:
        assert self.ports(suppose(cluster_of(), a="-a1")) == set()
        assert self.ports(suppose(cluster_of(), a="-a2")) == {80}

    def test_added_pods_have_their_ports(self) -> None:
        cluster = cluster_of()
        cluster.nominate(make_pod("new", host_ports=[81]), "c")
        view = suppose(cluster, a="=a1 +new", c="+new")
        assert (self.ports(view, 0), self.ports(view, 1)) == ({80, 81}, {81})
        assert view.positions_using_ports([HostPort("0.0.0.0", "TCP", 81)]).tolist() == [0, 1]

    def test_a_shared_port_is_released_with_the_first_of_two_pods(self) -> None:
        """Upstream keeps a set; the ports of candidates that stay are added again."""
        cluster = cluster_of()
        cluster.add_pod(make_pod("a3", host_ports=[80]), "a")
        assert self.ports(suppose(cluster, a="-a1")) == set()
        assert self.ports(suppose(cluster, a="-a1 =a3")) == {80}


def test_it_follows_the_signs_when_they_change() -> None:
    """The search for victims gives pods back by changing signs in place."""
    view = suppose(cluster_of(), a="-a1 -a2")
    assert view.requested("cpu").tolist() == [0]
    view.signs[0] = 0
    assert view.requested("cpu").tolist() == [1000]
