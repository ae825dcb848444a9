"""The table of nodes, and the order in which nodes are evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bayplan.state.cluster import Cluster
from bayplan.state.columns import ABSENT
from bayplan.state.nodes import NodeChange, NodeTable, NodeTree, zone_of
from bayplan.testing.builders import make_node, make_pod

GPU = "example.com/gpu"


def table_of(*nodes: Any) -> NodeTable:
    table = NodeTable()
    for node in nodes:
        table.set_node(table.row_for(node.name), node)
    return table


def test_amounts() -> None:
    """cpu in thousandths, all else in whole units, rounded up; what is not tracked is left out."""
    table = table_of(
        make_node(
            "a",
            cpu="1500m",
            memory="1Ki",
            pods=7,
            resources={GPU: 2, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1500m", "unknown": 5},
        )
    )
    amounts = {name: int(table.resource(name).allocatable.cell[0]) for name in table.resource_names()}
    assert amounts == {
        "cpu": 1500,
        "memory": 1024,
        "ephemeral-storage": 2,
        GPU: 2,
        "hugepages-2Mi": 4 * 2**20,
    }
    assert table.allowed_pods.cell[0] == 7


def test_a_resource_that_a_node_no_longer_has() -> None:
    table = table_of(make_node("a", resources={GPU: 2}), make_node("b", resources={GPU: 3}))
    table.set_node(0, make_node("a"))
    assert table.resource(GPU).allocatable.read.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({}, NodeChange.NOTHING),
        ({"cpu": 9}, NodeChange.ALLOCATABLE),
        ({"labels": {"a": "b"}}, NodeChange.LABELS),
        ({"taints": ["a:NoSchedule"]}, NodeChange.TAINTS),
        ({"unschedulable": True}, NodeChange.TAINTS),
        ({"images": {"a": 1}}, NodeChange.IMAGES),
        ({"declared_features": ["A"]}, NodeChange.FEATURES),
        ({"annotations": {"a": "b"}}, NodeChange.OTHER),
        ({"cpu": 9, "labels": {"a": "b"}}, NodeChange.ALLOCATABLE | NodeChange.LABELS),
    ],
)
def test_what_changed(fields: dict[str, Any], change: NodeChange) -> None:
    table = table_of(make_node("a"))
    assert table.set_node(0, make_node("a", **fields)) == change
    assert table.set_node(0, make_node("a", **fields)) == NodeChange.NOTHING


class TestLabels:
    """A column for each label that is used."""

    def test_it_is_made_from_all_nodes_on_first_use(self) -> None:
        table = table_of(
            make_node("a", labels={"zone": "x"}), make_node("b"), make_node("c", labels={"zone": ""})
        )
        zone = table.label("zone")
        values = [*zone.values.values, None]
        assert [values[value] for value in zone.column.read] == ["x", None, ""]
        assert table.label("zone") is zone

    def test_it_follows_nodes_from_then_on(self) -> None:
        table = table_of(make_node("a", labels={"zone": "x"}))
        zone = table.label("zone")
        table.set_node(table.row_for("b"), make_node("b", labels={"zone": "y"}))
        table.set_node(0, make_node("a"))
        assert zone.column.read.tolist() == [ABSENT, zone.values.find("y")]

    def test_no_node_has_it(self) -> None:
        assert table_of(make_node("a")).label("zone").column.read.tolist() == [ABSENT]


def test_taints_and_features_are_distinguished_by_id() -> None:
    table = table_of(
        make_node("a", taints=["x:NoSchedule"], declared_features=["A", "B"]),
        make_node("b", taints=["x:NoSchedule"], declared_features=["B", "A"]),
        make_node("c"),
    )
    assert table.taint_set.read.tolist() == [0, 0, 1]
    assert table.feature_set.read.tolist() == [0, 0, 1]


def test_a_resource_is_listed_even_if_there_is_none_of_it() -> None:
    table = table_of(
        make_node("a", resources={"x.com/y": "0"}),
        make_node("b", resources={"x.com/y": "2"}),
        make_node("c"),
    )
    listed = [table.listed_resources.values[number] for number in table.listed_set.read]
    assert ["x.com/y" in names for names in listed] == [True, True, False]
    table.set_node(0, make_node("a"))
    assert table.listed_set.read.tolist() == [1, 0, 1]


class TestImages:
    def test_the_size_is_that_of_the_first_node(self) -> None:
        table = table_of(make_node("a", images={"i": 5}), make_node("b", images={"i": 7}))
        assert (table.images["i"].size_bytes, table.images["i"].rows) == (5, {0, 1})

    def test_it_stays_so_while_some_node_has_it(self) -> None:
        table = table_of(make_node("a", images={"i": 5}), make_node("b", images={"i": 7}))
        table.set_node(0, make_node("a"))
        assert (table.images["i"].size_bytes, table.images["i"].rows) == (5, {1})

    def test_when_the_last_node_loses_it_it_is_dropped(self) -> None:
        table = table_of(make_node("a", images={"i": 5}))
        table.set_node(0, make_node("a"))
        assert table.images == {}
        table.set_node(0, make_node("a", images={"i": 7}))
        assert table.images["i"].size_bytes == 7

    def test_the_only_node_may_change_its_depend_on_it(self) -> None:
        table = table_of(make_node("a", images={"i": 5}))
        table.set_node(0, make_node("a", images={"i": 7}))
        assert table.images["i"].size_bytes == 7

    def test_images_of_a_deleted_node_are_dropped(self) -> None:
        table = table_of(make_node("a", images={"i": 5, "j": 5}), make_node("b", images={"i": 5}))
        table.clear_node(0)
        assert {name: state.rows for name, state in table.images.items()} == {"i": {1}}


def test_of_a_node_that_is_gone_only_what_runs_there_is_left() -> None:
    node = make_node(
        "a", cpu=4, labels={"zone": "x"}, taints=["x:NoSchedule"], unschedulable=True, declared_features=["A"]
    )
    table = table_of(node)
    zone = table.label("zone")
    table.resource("cpu").requested.cell[0] = 700
    table.pod_count.cell[0] = 3
    table.clear_node(0)
    assert (table.exists.cell[0], table.unschedulable.cell[0], table.allowed_pods.cell[0]) == (
        False,
        False,
        0,
    )
    for column in (table.taint_set, table.feature_set, table.listed_set, zone.column):
        assert column.cell[0] == ABSENT
    assert (table.resource("cpu").allocatable.cell[0], table.resource("cpu").requested.cell[0]) == (0, 700)
    assert table.pod_count.cell[0] == 3
    assert table.set_node(0, node) & NodeChange.LABELS
    assert zone.column.cell[0] == zone.values.find("x")


def test_a_released_row_is_reused_for_the_next_name() -> None:
    table = table_of(make_node("a"), make_node("b"))
    table.clear_node(0)
    table.release(0)
    assert (table.row_for("c"), table.name, "a" in table.row_of) == (0, ["c", "b"], False)


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
