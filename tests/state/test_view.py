"""What a plugin sees of the nodes: the same columns over all rows and over a few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bayplan.api.pod import HostPort
from bayplan.plugin import Cluster, NodeColumns
from bayplan.state.view import OneNode
from bayplan.testing.builders import make_node, make_pod

GPU = "example.com/gpu"


def cluster_of() -> Cluster:
    cluster = Cluster()
    cluster.set_node(make_node("a", cpu=4, labels={"zone": "x", "cores": "4"}, unschedulable=True))
    cluster.set_node(make_node("b", cpu=8, pods=5, labels={"zone": "y"}, taints=["t:NoSchedule"]))
    cluster.set_node(make_node("c", cpu=2, resources={GPU: 1}, labels={"zone": ""}, declared_features=["F"]))
    cluster.add_pod(make_pod("p", cpu=1, host_ports=[80]), "b")
    cluster.add_pod(make_pod("early"), "unseen")
    cluster.set_node(make_node("d"))
    return cluster


ALL = ["a", "b", "c", "unseen", "d"]
SOME = [2, 0, 4]


def views(cluster: Cluster) -> list[tuple[NodeColumns, list[int]]]:
    return [
        (NodeColumns(cluster), list(range(5))),
        (NodeColumns(cluster, np.array(SOME, dtype=np.intp)), SOME),
        (NodeColumns(cluster, np.array([], dtype=np.intp)), []),
    ]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(lambda v: v.names, ALL, id="names"),
        pytest.param(lambda v: v.rows, [0, 1, 2, 3, 4], id="rows"),
        pytest.param(lambda v: v.exists, [True, True, True, False, True], id="exists"),
        pytest.param(lambda v: v.unschedulable, [True, False, False, False, False], id="unschedulable"),
        pytest.param(lambda v: v.allocatable("cpu"), [4000, 8000, 2000, 0, 4000], id="allocatable"),
        pytest.param(lambda v: v.allocatable(GPU), [0, 0, 1, 0, 0], id="a resource that few have"),
        pytest.param(lambda v: v.allocatable("example.com/none"), [0] * 5, id="one that no node has"),
        pytest.param(lambda v: v.requested("cpu"), [0, 1000, 0, 0, 0], id="requested"),
        pytest.param(lambda v: v.allowed_pods, [110, 5, 110, 0, 110], id="allowed pods"),
        pytest.param(lambda v: v.pod_count, [0, 1, 0, 1, 0], id="pod count"),
        pytest.param(lambda v: v.nonzero_cpu_milli, [0, 1000, 0, 100, 0], id="nonzero cpu"),
        pytest.param(lambda v: v.is_named("c"), [False, False, True, False, False], id="is named"),
        pytest.param(lambda v: v.is_named("absent"), [False] * 5, id="no node is named so"),
        pytest.param(lambda v: v.label("zone") == "x", [True, False, False, False, False], id="a label"),
        pytest.param(lambda v: v.label("zone") != "x", [False, True, True, True, True], id="not that label"),
        pytest.param(lambda v: v.label("zone") == "unknown", [False] * 5, id="a value that no node has"),
        pytest.param(lambda v: v.label("zone") == None, [False, False, False, True, True], id="no label"),  # noqa: E711
        pytest.param(lambda v: v.label("zone").exists(), [True, True, True, False, False], id="any label"),
        pytest.param(
            lambda v: v.label("zone").isin(["x", ""]), [True, False, True, False, False], id="one of several"
        ),
        pytest.param(
            lambda v: v.label("zone").isin(["y", "?"]), [False, True, False, False, False], id="one of them"
        ),
        pytest.param(lambda v: v.label("zone").isin([]), [False] * 5, id="one of none"),
        pytest.param(
            lambda v: v.label("cores").map(int, absent=-1), [4, -1, -1, -1, -1], id="a function of it"
        ),
        pytest.param(lambda v: v.taints(v.taint_lookup(len)), [0, 1, 0, 0, 0], id="a function of taints"),
        pytest.param(
            lambda v: v.features(v.feature_lookup(len)), [0, 0, 1, 0, 0], id="a function of features"
        ),
        pytest.param(lambda v: v.gather(np.arange(5) * 10), [0, 10, 20, 30, 40], id="gather"),
    ],
)
def test_columns(read: Any, expected: list[Any]) -> None:
    cluster = cluster_of()
    for view, rows in views(cluster):
        assert len(view) == len(rows)
        assert list(read(view)) == [expected[row] for row in rows]


def test_positions() -> None:
    """Where rows of the table are in a view, and which rows use a port."""
    cluster = cluster_of()
    few = NodeColumns(cluster, np.array([4, 1], dtype=np.intp))
    assert few.positions_of([1, 0]).tolist() == [1]
    ports = [HostPort("10.0.0.1", "TCP", 80), HostPort("10.0.0.1", "TCP", 81)]
    assert few.positions_using_ports(ports).tolist() == [1]
    assert NodeColumns(cluster).positions_using_ports(ports).tolist() == [1]
    assert few.positions_using_ports([HostPort("0.0.0.0", "UDP", 80)]).tolist() == []
    assert [pod.name for pod in few.pods_on(1)] == ["p"]
    assert [used.port for used in few.used_ports(1)] == [80]
    assert few.used_ports(0) == set()


def test_nothing_is_supposed() -> None:
    view = NodeColumns(cluster_of())
    assert view.added_terms() == ()


@pytest.mark.parametrize(
    "write",
    [
        lambda v: v.pod_count,
        lambda v: v.exists,
        lambda v: v.allocatable("cpu"),
        lambda v: v.label("zone").ids,
    ],
)
def test_columns_cannot_be_written(write: Any) -> None:
    column = write(NodeColumns(cluster_of()))
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_a_label_that_changes_is_seen_by_the_next_view() -> None:
    cluster = cluster_of()
    everything = NodeColumns(cluster)
    assert (everything.label("zone") == "x").tolist()[0]
    cluster.set_node(make_node("a", labels={"zone": "z"}))
    assert (everything.label("zone") == "z").tolist()[0]
    assert (NodeColumns(cluster, np.array([0], dtype=np.intp)).label("zone") == "z").tolist() == [True]


class TestOneNode:
    """Plain numbers where the others give arrays."""

    def test_columns_are_numbers(self) -> None:
        one: Any = OneNode(cluster_of(), 1)
        assert len(one) == 1
        values: list[Any] = [one.pod_count, one.allowed_pods, one.allocatable("cpu"), one.requested("cpu")]
        assert values == [1, 5, 8000, 1000]
        assert {type(value) for value in values} == {int}
        assert one.exists is True
        assert one.unschedulable is False

    def test_operations_are_those_of_columns(self) -> None:
        cluster = cluster_of()
        everything = NodeColumns(cluster)
        formulas: tuple[Callable[[Any], Any], ...] = (
            lambda v: v.where(v.pod_count > 0, v.allowed_pods, -1),
            lambda v: v.minimum(v.allocatable("cpu"), 3000),
            lambda v: v.maximum(v.allocatable("cpu") - 5000, 0),
            lambda v: v.trunc(v.sqrt(v.allocatable("cpu") * 2.0)),
            lambda v: v.trunc(-1.5 * v.pod_count),
        )
        for row in range(5):
            one = OneNode(cluster, row)
            for formula in formulas:
                assert formula(one) == formula(everything)[row]

    def test_any(self) -> None:
        one = OneNode(cluster_of(), 1)
        assert one.any(one.pod_count > 0) is True
        assert NodeColumns.any(np.array([False, True])) is True
        assert NodeColumns.any(np.zeros(0, dtype=np.bool_)) is False


class TestNodeInfo:
    """One node as an object."""

    def test_its_properties(self) -> None:
        cluster = cluster_of()
        info = NodeColumns(cluster).node_info(1)
        assert (info.name, info.labels, info.unschedulable, info.annotations) == (
            "b",
            {"zone": "y"},
            False,
            {},
        )
        assert [taint.key for taint in info.taints] == ["t"]
        assert (info.allocatable("cpu"), info.requested("cpu"), info.free("cpu")) == (8000, 1000, 7000)
        assert (info.allocatable(GPU), info.requested(GPU), info.free("memory")) == (0, 0, 32 * 2**30)
        assert [pod.name for pod in info.pods] == ["p"]
        assert info.node is cluster.nodes.node[1]

    def test_of_a_view(self) -> None:
        assert NodeColumns(cluster_of(), np.array([2, 0], dtype=np.intp)).node_info(1).name == "a"
