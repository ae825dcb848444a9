"""Which free volumes a pod's claims would get: what the plugin's tests do not show."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.plugin import Cluster, NodeColumns
from bayplan.state.derived import derived
from bayplan.state.volume_binding import VolumeMatches, VolumeOffers, assume_object, match_volumes
from bayplan.testing.builders import make_node, make_pv, make_pvc

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CLAIM = make_pvc("c", storage_class="k")


def cluster_of(nodes: int) -> Cluster:
    cluster = Cluster()
    for i in range(nodes):
        cluster.set_node(make_node(f"n{i}", labels={ZONE: f"z{i % 3}", HOST: f"n{i}"}))
    return cluster


def matched(cluster: Cluster, claims: int = 1) -> VolumeMatches:
    return match_volumes([CLAIM] * claims, derived(cluster, VolumeOffers), NodeColumns(cluster))


def put_volumes(cluster: Cluster, label: str, values: Iterable[str]) -> None:
    for value in values:
        cluster.objects.put(make_pv(f"on-{value}", storage_class="k", on_nodes_with={label: [value]}))


def test_claims_are_served_once_for_each_zone() -> None:
    cluster = cluster_of(30)
    put_volumes(cluster, ZONE, ("z0", "z1"))
    matches = matched(cluster)
    assert len(matches.chosen) == 3
    names = [None if v is None else v.name for (v,) in (matches.at(i) for i in range(3))]
    assert names == ["on-z0", "on-z1", None]


def test_claims_are_served_once_for_each_node_with_a_disk_of_its_own() -> None:
    cluster = cluster_of(30)
    put_volumes(cluster, HOST, ("n3", "n7", "elsewhere"))
    matches = matched(cluster)
    assert len(matches.chosen) == 3
    assert matches.missing(0).nonzero()[0].tolist() == [i for i in range(30) if i not in (3, 7)]


def test_volumes_that_could_not_serve_anyway_split_nothing() -> None:
    cluster = cluster_of(30)
    for i in range(30):
        cluster.objects.put(
            make_pv(f"v{i}", storage_class="k", capacity="1Mi", on_nodes_with={HOST: [f"n{i}"]})
        )
    assert len(matched(cluster).chosen) == 1


def test_a_claim_that_occurs_twice_gets_two_volumes() -> None:
    """As upstream, which does not check whether a pod has two volumes of one claim."""
    cluster = cluster_of(1)
    for name in "vw":
        cluster.objects.put(make_pv(name, storage_class="k"))
    chosen = matched(cluster, claims=2).at(0)
    assert [volume.name for volume in chosen if volume is not None] == ["v", "w"]


def test_names_decide_between_volumes_of_one_size() -> None:
    """So that it does not matter in which order they came."""
    cluster = cluster_of(1)
    for name in ("w", "v", "x"):
        cluster.objects.put(make_pv(name, storage_class="k"))
    (volume,) = matched(cluster).at(0)
    assert volume is not None
    assert volume.name == "v"


def offered(cluster: Cluster) -> tuple[list[str], int]:
    """Which volumes are free, and how many are reserved for the other claim."""
    offers = derived(cluster, VolumeOffers)
    return [offer.volume.name for offer in offers.free("k")], len(offers.reserved_for("default", "other"))


def test_offers_follow_what_changes() -> None:
    cluster = cluster_of(1)
    cluster.objects.put(make_pv("v", storage_class="k"))
    assert offered(cluster) == (["v"], 0)
    other = make_pvc("other", storage_class="k")
    assume_object(cluster.objects, make_pv("v", storage_class="k", claim=other))
    assert offered(cluster) == ([], 1)
    cluster.objects.put(make_pv("w", storage_class="k"))
    assert offered(cluster) == (["w"], 1)
    cluster.objects.remove(make_pv("w"))
    cluster.objects.remove(make_pv("v"))
    assert offered(cluster) == ([], 0)
