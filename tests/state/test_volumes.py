"""Which volumes the pods of each node use."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Object
from bayplan.state.cluster import Cluster
from bayplan.state.derived import derived
from bayplan.state.volumes import VolumeId, VolumeUses
from bayplan.testing.builders import (
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)

DRIVER = "csi.example.com"


def cluster_of(*objects: Object, nodes: str = "nm") -> Cluster:
    cluster = Cluster()
    for name in nodes:
        cluster.set_node(make_node(name))
    for item in objects:
        cluster.objects.put(item)
    return cluster


def counts(cluster: Cluster) -> list[int]:
    column = derived(cluster, VolumeUses).count(DRIVER)
    return [] if column is None else [int(count) for count in column.read]


BOUND = [
    make_pvc("a", volume="a"),
    make_pv("a", driver=DRIVER),
    make_pvc("b", volume="b"),
    make_pv("b", driver=DRIVER),
]
ATTACHED = make_volume_attachment("x", driver=DRIVER, node="n", volume="b")


def test_counts_follow_pods() -> None:
    cluster, seen = cluster_of(*BOUND), []
    cluster.add_pod(make_pod("p", claims=["a"]), "n")
    seen.append(counts(cluster))
    cluster.add_pod(make_pod("q", claims=["a", "b"]), "n")
    seen.append(counts(cluster))
    cluster.add_pod(make_pod("r", claims=["b"]), "m")
    cluster.remove_pod("pod/default/q")
    seen.append(counts(cluster))
    cluster.remove_pod("pod/default/p")
    seen.append(counts(cluster))
    assert seen == [[1, 0], [2, 0], [1, 1], [0, 1]]


def test_counts_follow_attachments_and_their_volumes() -> None:
    cluster, seen = cluster_of(*BOUND), []
    cluster.add_pod(make_pod("p", claims=["a"]), "n")
    seen.append(counts(cluster))
    cluster.objects.put(ATTACHED)
    seen.append(counts(cluster))
    cluster.objects.put(replace(ATTACHED, spec=replace(ATTACHED.spec, node_name="m")))
    seen.append(counts(cluster))
    cluster.objects.remove(make_pv("b"))
    seen.append(counts(cluster))
    cluster.objects.put(make_pv("b", driver=DRIVER))
    seen.append(counts(cluster))
    cluster.objects.remove(ATTACHED)
    seen.append(counts(cluster))
    assert seen == [[1, 0], [2, 0], [1, 1], [1, 0], [1, 1], [1, 0]]


def test_a_claim_that_gets_its_volume_counts_as_that_volume() -> None:
    storage_class = make_storage_class("k", provisioner=DRIVER)
    cluster = cluster_of(storage_class, make_pvc("a", storage_class="k"))
    cluster.add_pod(make_pod("p", claims=["a"]), "n")
    to_be_made, made = VolumeId(DRIVER, "", "default/a"), VolumeId(DRIVER, "v")
    assert set(derived(cluster, VolumeUses).rows_using(to_be_made)) == {0}
    cluster.objects.put(make_pvc("a", storage_class="k", volume="v"))
    cluster.objects.put(make_pv("v", driver=DRIVER))
    uses = derived(cluster, VolumeUses)
    assert (set(uses.rows_using(to_be_made)), set(uses.rows_using(made))) == (set(), {0})
    assert counts(cluster) == [1, 0]


@pytest.mark.parametrize(
    ("change", "count"),
    [
        pytest.param(make_storage_class("k", provisioner="other"), 0, id="another driver"),
        pytest.param(make_storage_class("k", provisioner="kubernetes.io/aws-ebs"), 0, id="an in-tree plugin"),
        pytest.param(make_storage_class("j", provisioner="other"), 1, id="another class"),
    ],
)
@pytest.mark.parametrize(
    "volume", [pytest.param("", id="no volume yet"), pytest.param("lost", id="lost volume")]
)
def test_counts_follow_classes(change: Object, count: int, volume: str) -> None:
    claim = make_pvc("a", storage_class="k", volume=volume)
    cluster = cluster_of(make_storage_class("k", provisioner=DRIVER), claim)
    cluster.add_pod(make_pod("p", claims=["a"]), "n")
    assert counts(cluster) == [1, 0]
    cluster.objects.put(change)
    assert counts(cluster) == [count, 0]


def test_a_row_that_another_node_takes_over_starts_again() -> None:
    cluster = cluster_of(*BOUND, ATTACHED)
    assert counts(cluster) == [1, 0]
    cluster.remove_node("n")
    cluster.set_node(make_node("o"))
    assert cluster.nodes.row_of["o"] == 0
    assert counts(cluster) == [0, 0]
    cluster.remove_node("o")
    cluster.set_node(make_node("n"))
    assert counts(cluster) == [1, 0]
