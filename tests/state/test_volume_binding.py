"""Decisions about volumes that are not written yet, and which free volumes a pod's claims would get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Object
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.plugin import Cluster, NodeColumns
from bayplan.scheduler.core import SchedulingCore
from bayplan.state import volume_matching
from bayplan.state.derived import derived
from bayplan.state.objects import Objects
from bayplan.state.volume_binding import (
    AssumedVolume,
    OutOfSyncError,
    VolumeOffers,
    assume_object,
    expected_claim,
    expected_volume,
    restore_object,
)
from bayplan.state.volume_matching import VolumeMatches, match_volumes
from bayplan.testing.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class


def at(version: str, item: Any, **annotations: str) -> Any:
    meta = replace(item.metadata, resource_version=version, annotations=annotations)
    return replace(item, metadata=meta)


def volume(version: str, **annotations: str) -> PersistentVolume:
    return at(version, make_pv("v"), **annotations)  # type: ignore[no-any-return]  # at() keeps the type


def claim(version: str, **annotations: str) -> PersistentVolumeClaim:
    return at(version, make_pvc("c"), **annotations)  # type: ignore[no-any-return]  # at() keeps the type


@pytest.fixture
def objects() -> Objects:
    made = Objects()
    made.put(volume("1"))
    made.put(claim("7"))
    return made


def test_a_decision_is_seen_instead_of_the_object(objects: Objects) -> None:
    assume_object(objects, volume("1", decided="yes"))
    assume_object(objects, claim("7", decided="yes"))
    assert expected_volume(objects, "v") == volume("1", decided="yes")
    assert expected_claim(objects, "c", "default") == claim("7", decided="yes")
    assert objects.of(PersistentVolume).get("v") == volume("1")


def test_without_a_decision_the_object_is_seen(objects: Objects) -> None:
    assert expected_volume(objects, "v") == volume("1")
    assert expected_claim(objects, "c", "default") == claim("7")
    assert expected_volume(objects, "x") is None


def test_a_decision_that_was_taken_back_is_not_seen(objects: Objects) -> None:
    assume_object(objects, volume("1", decided="yes"))
    restore_object(objects, volume("1"))
    restore_object(objects, claim("7"))
    assert expected_volume(objects, "v") == volume("1")


def test_taking_back_an_old_decision_leaves_a_newer_one(objects: Objects) -> None:
    """Two pods may use one claim: the first that fails does not undo what the second has decided since."""
    first, second = claim("7", decided="first"), claim("8", decided="second")
    assume_object(objects, first)
    objects.put(claim("8"))
    assume_object(objects, second)
    restore_object(objects, first)
    assert expected_claim(objects, "c", "default") == second


@pytest.mark.parametrize("version", ["2", "0", "01"])
def test_any_other_version_ends_a_decision(objects: Objects, version: str) -> None:
    """Versions are compared as texts."""
    assume_object(objects, volume("1", decided="yes"))
    objects.put(volume(version))
    assert expected_volume(objects, "v") == volume(version)


def test_an_assumed_object_is_dropped_with_its_object(objects: Objects) -> None:
    assume_object(objects, volume("1", decided="yes"))
    objects.remove(volume("1"))
    assert expected_volume(objects, "v") is None


def test_a_decision_has_to_rest_on_the_current_version(objects: Objects) -> None:
    with pytest.raises(OutOfSyncError) as raised:
        assume_object(objects, claim("6"))
    assert str(raised.value) == '"default/c" is out of sync (stored: 7, assume: 6)'


def test_a_decision_needs_an_object(objects: Objects) -> None:
    with pytest.raises(OutOfSyncError) as raised:
        assume_object(objects, make_pv("x"))
    assert str(raised.value) == 'persistentvolumes "x" not found'


def test_deciding_and_taking_back_are_changes_of_a_kind(objects: Objects) -> None:
    before = objects.of(AssumedVolume).changes.changed_at
    assume_object(objects, volume("1"))
    decided = objects.of(AssumedVolume).changes.changed_at
    restore_object(objects, volume("1"))
    assert before < decided < objects.of(AssumedVolume).changes.changed_at


def test_decisions_that_were_carried_out_do_not_pile_up(objects: Objects) -> None:
    for i in range(1000):
        item = at("1", make_pv(f"v{i}"))
        objects.put(item)
        assume_object(objects, item)
        objects.put(at("2", item))
    assert len(objects.of(AssumedVolume)) < 10


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


def test_each_volume_is_evaluated_once_for_equal_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod with a hundred claims must not compare each of them with every volume."""
    evaluated = 0
    is_suitable = volume_matching._Suitability.__call__

    def counting(self: Any, offer: Any) -> bool:
        nonlocal evaluated
        evaluated += 1
        return is_suitable(self, offer)

    monkeypatch.setattr(volume_matching._Suitability, "__call__", counting)
    core = SchedulingCore()
    objects: list[Object] = [
        make_node("a"),
        make_storage_class("local", provisioner="kubernetes.io/no-provisioner"),
    ]
    objects += [make_pv(f"v{i}", storage_class="local", capacity=f"{i + 1}Mi") for i in range(100)]
    objects += [make_pvc(f"c{i}", storage_class="local", storage=f"{i % 3 + 1}Mi") for i in range(98)]
    core.load(objects)
    decision = core.decide(make_pod(claims=[f"c{i}" for i in range(98)]))
    assert decision.node_name == "a"
    assert evaluated <= 3 * 100
