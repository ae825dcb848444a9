"""The order in which nodes are evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bayplan.state.cluster import Cluster
from bayplan.state.nodes import NodeTree, zone_of
from bayplan.testing.builders import make_node, make_pod

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ""),
        ({ZONE: "z"}, ":\0:z"),
        ({REGION: "r"}, "r:\0:"),
        ({REGION: "r", ZONE: "z"}, "r:\0:z"),
        ({REGION: "r", ZONE: "z", OLD_ZONE: "y"}, "r:\0:y"),
        ({REGION: "r", ZONE: "z", OLD_REGION: "q"}, "q:\0:z"),
        ({ZONE: "z", OLD_ZONE: ""}, ""),
        ({ZONE: "", REGION: ""}, ""),
    ],
)
def test_zones(labels: Mapping[str, str], expected: str) -> None:
    """Region and zone together, the old labels before the new ones."""
    assert zone_of(labels) == expected


def tree_of(*nodes: str) -> NodeTree:
    """Nodes named after their zone: x1 is in zone x."""
    tree = NodeTree()
    for name in nodes:
        tree.add(name, {ZONE: name[0]})
    return tree


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("a1 a2 a3", "a1 a2 a3", id="one zone: in the order of addition"),
        pytest.param("a1 a2 b1 b2", "a1 b1 a2 b2", id="round and round"),
        pytest.param("b1 a1 b2 a2", "b1 a1 b2 a2", id="zones in the order they were first seen"),
        pytest.param("a1 b1 b2 b3 c1 c2", "a1 b1 c1 b2 c2 b3", id="zones of different sizes"),
    ],
)
def test_round_robin(nodes: str, expected: str) -> None:
    assert list(tree_of(*nodes.split()).names()) == expected.split()


def test_an_empty_zone_is_dropped() -> None:
    """When it comes back it is the last."""
    tree = tree_of("a1", "b1", "b2")
    tree.remove("a1")
    tree.add("a2", {ZONE: "a"})
    assert list(tree.names()) == ["b1", "a2", "b2"]


def test_a_node_that_changes_its_zone_moves_to_the_end_of_the_new_one() -> None:
    tree = tree_of("a1", "a2", "b1", "b2")
    tree.update("a1", {ZONE: "b"})
    assert list(tree.names()) == ["a2", "b1", "b2", "a1"]
    tree.update("b1", {ZONE: "b"})
    assert list(tree.names()) == ["a2", "b1", "b2", "a1"]
    assert len(tree) == 4


class TestOfACluster:
    """The list is created again only when a node enters or leaves."""

    def cluster(self, *nodes: str) -> Cluster:
        cluster = Cluster()
        for name in nodes:
            cluster.set_node(make_node(name, labels={ZONE: name[0]}))
        return cluster

    def order(self, cluster: Cluster) -> Sequence[str]:
        return [cluster.nodes.name[row] for row in cluster.order]

    def test_a_changed_zone_alone_changes_nothing(self) -> None:
        cluster = self.cluster("a1", "a2", "b1")
        assert self.order(cluster) == ["a1", "b1", "a2"]
        cluster.set_node(make_node("a1", labels={ZONE: "c"}))
        assert self.order(cluster) == ["a1", "b1", "a2"]

    def test_but_is_seen_when_the_list_is_created_again(self) -> None:
        cluster = self.cluster("a1", "a2", "b1")
        cluster.set_node(make_node("a1", labels={ZONE: "c"}))
        assert self.order(cluster) == ["a2", "b1", "a1"]
        cluster.set_node(make_node("a2", labels={ZONE: "b"}))
        cluster.set_node(make_node("d1", labels={ZONE: "d"}))
        assert self.order(cluster) == ["b1", "a1", "d1", "a2"]

    def test_a_node_that_was_deleted_and_came_back_between_two_reads_keeps_its_position(self) -> None:
        cluster = self.cluster("a1", "a2", "a3")
        assert self.order(cluster) == ["a1", "a2", "a3"]
        cluster.remove_node("a1")
        cluster.set_node(make_node("a1", labels={ZONE: "a"}))
        assert self.order(cluster) == ["a1", "a2", "a3"]

    def test_a_node_that_was_read_as_missing_does_not(self) -> None:
        cluster = self.cluster("a1", "a2", "a3")
        cluster.remove_node("a1")
        assert self.order(cluster) == ["a2", "a3"]
        cluster.set_node(make_node("a1", labels={ZONE: "a"}))
        assert self.order(cluster) == ["a2", "a3", "a1"]

    def test_rows_are_right_even_where_names_stay(self) -> None:
        """A node that came back may be in another row."""
        cluster = self.cluster("a1", "a2")
        assert cluster.order.tolist() == [0, 1]
        cluster.remove_node("a1")
        cluster.remove_node("a2")
        for name in ("a1", "a2"):
            cluster.set_node(make_node(name, labels={ZONE: "a"}))
        assert self.order(cluster) == ["a1", "a2"]

    def test_rows_without_a_node_are_not_listed(self) -> None:
        cluster = self.cluster("a1")
        cluster.add_pod(make_pod("early"), "unseen")
        assert (self.order(cluster), cluster.node_count) == (["a1"], 1)

    def test_the_topic_changes_when_the_list_does(self) -> None:
        cluster = self.cluster("a1", "a2")
        _ = cluster.order
        before = cluster.changes.order.changed_at
        cluster.set_node(make_node("a1", cpu=9, labels={ZONE: "a"}))
        assert cluster.changes.order.changed_at == before
        cluster.set_node(make_node("a3", labels={ZONE: "a"}))
        after = cluster.changes.order.changed_at
        assert after > before
        _ = cluster.order
        assert cluster.changes.order.changed_at == after
