"""The content of CSINode objects, as columns."""

from __future__ import annotations

from bayplan.api.meta import Object
from bayplan.state.cluster import Cluster
from bayplan.state.derived import derived
from bayplan.state.volumes import NO_LIMIT, CSINodes
from bayplan.testing.builders import make_csi_node, make_node

DRIVER = "csi.example.com"


def cluster_of(*objects: Object) -> Cluster:
    cluster = Cluster()
    for name in "nm":
        cluster.set_node(make_node(name))
    for item in objects:
        cluster.objects.put(item)
    return cluster


def test_csi_nodes_are_found_whether_they_or_their_nodes_come_first() -> None:
    cluster = cluster_of(make_csi_node("n", {DRIVER: 1}), make_csi_node("late", {DRIVER: 2}))
    assert derived(cluster, CSINodes).present.read.tolist() == [True, False]
    cluster.objects.put(make_csi_node("m", {DRIVER: None}))
    cluster.set_node(make_node("late"))
    csi_nodes = derived(cluster, CSINodes)
    assert csi_nodes.present.read.tolist() == [True, True, True]
    assert csi_nodes.is_limited.read.tolist() == [True, False, True]
    assert [csi_nodes.limits_of(row) for row in range(3)] == [{DRIVER: 1}, {}, {DRIVER: 2}]


def test_csi_nodes_follow_their_objects() -> None:
    cluster = cluster_of(make_csi_node("n", {DRIVER: 1, "other": 5}))
    derived(cluster, CSINodes)
    cluster.objects.put(make_csi_node("n", {DRIVER: 2}))
    assert derived(cluster, CSINodes).limits_of(0) == {DRIVER: 2}
    cluster.objects.remove(make_csi_node("n"))
    csi_nodes = derived(cluster, CSINodes)
    assert (csi_nodes.present.read.tolist(), csi_nodes.limits_of(0)) == ([False, False], {})


def test_a_row_that_another_node_takes_over_starts_again() -> None:
    cluster = cluster_of(make_csi_node("n", {DRIVER: 3}))
    limit = derived(cluster, CSINodes).limit(DRIVER)
    assert limit is not None
    assert limit.read.tolist() == [3, NO_LIMIT]
    cluster.remove_node("n")
    cluster.set_node(make_node("o"))
    assert cluster.nodes.row_of["o"] == 0
    assert derived(cluster, CSINodes).limits_of(0) == {}
    cluster.remove_node("o")
    cluster.set_node(make_node("n"))
    assert derived(cluster, CSINodes).limits_of(0) == {DRIVER: 3}
