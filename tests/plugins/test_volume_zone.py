"""VolumeZone: a pod fits where its volumes are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.pod import EphemeralVolumeSource
from bayplan.plugin import SKIP, Action, Code, Object, Resource, Status, unresolvable
from bayplan.plugin.storage import StorageClass, Volume
from bayplan.plugins.volume_zone import (
    NO_CLAIM_NAME,
    NO_VOLUME,
    NO_VOLUME_AND_NO_CLASS,
    REASON,
    VolumeZone,
)
from bayplan.testing.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class
from bayplan.testing.calling import make_plugin

from .evaluating import points, registrations, requeues
from .volume_evaluating import evaluate, storage_cluster

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
REJECTED = (Code.UNRESOLVABLE, frozenset({REASON}))

POD = make_pod(claims=["c"])
BOUND = make_pvc("c", volume="v")


def test_its_points_are_upstreams() -> None:
    assert points(VolumeZone) == {"PreFilter", "Filter"}


@pytest.mark.parametrize(
    ("volume", "node", "fits"),
    [
        pytest.param({ZONE: "a"}, {ZONE: "a"}, True, id="the same zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, False, id="another zone"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, True, id="one of several zones"),
        pytest.param({ZONE: " a __ b "}, {ZONE: "b"}, True, id="blanks around a zone are not part of it"),
        pytest.param({ZONE: "a__b"}, {ZONE: "c"}, False, id="none of several zones"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, False, id="another region"),
        pytest.param({ZONE: "a"}, {}, True, id="a node without labels is in the only zone there is"),
        pytest.param({ZONE: "a"}, {REGION: "r"}, False, id="a node with a region and no zone"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "a"}, True, id="the old label is found under today's name"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "b"}, False, id="and must agree there"),
        pytest.param(
            {BETA_ZONE: "a"}, {BETA_ZONE: "a", ZONE: "b"}, True, id="a node's old label has precedence"
        ),
        pytest.param(
            {ZONE: "a"}, {BETA_ZONE: "a"}, False, id="today's label is not found under the old name"
        ),
        pytest.param({BETA_REGION: "r"}, {REGION: "r"}, True, id="regions have an old label too"),
    ],
)
def test_a_node_fits_if_it_is_where_the_volume_is(
    volume: dict[str, str], node: dict[str, str], fits: bool
) -> None:
    cluster = storage_cluster([make_node("n", labels=node)], BOUND, make_pv("v", labels=volume))
    assert evaluate(make_plugin(VolumeZone), POD, cluster) == ({} if fits else {"n": REJECTED})


@pytest.mark.parametrize(
    ("objects", "answer"),
    [
        pytest.param([BOUND, make_pv("v")], SKIP, id="a volume without labels is skipped"),
        pytest.param([BOUND, make_pv("v", labels={ZONE: "a__"})], SKIP, id="so is one with an empty part"),
        pytest.param([BOUND, make_pv("v", labels={ZONE: ""})], SKIP, id="and one with an empty label"),
        pytest.param([], unresolvable('persistentvolumeclaim "c" not found'), id="no claim"),
        pytest.param([BOUND], unresolvable('persistentvolume "v" not found'), id="no volume"),
        pytest.param([make_pvc("c")], unresolvable(NO_VOLUME_AND_NO_CLASS), id="neither volume nor class"),
        pytest.param(
            [make_pvc("c", storage_class="k")],
            unresolvable('storageclass.storage.k8s.io "k" not found'),
            id="no class",
        ),
        pytest.param(
            [make_pvc("c", storage_class="k"), make_storage_class("k")],
            SKIP,
            id="a claim that waits for its pod has no zone yet",
        ),
        pytest.param(
            [make_pvc("c", storage_class="k"), make_storage_class("k", wait_for_consumer=False)],
            unresolvable(NO_VOLUME),
            id="a claim that should have a volume by now",
        ),
        pytest.param(
            [make_pvc("c", storage_class="k"), replace(make_storage_class("k"), volume_binding_mode=None)],
            unresolvable('VolumeBindingMode not set for StorageClass "k"'),
            id="a class without a binding mode",
        ),
        pytest.param(
            [
                make_pvc(
                    "c", storage_class="x", annotations={"volume.beta.kubernetes.io/storage-class": "k"}
                ),
                make_storage_class("k"),
            ],
            SKIP,
            id="the annotation with the class has precedence",
        ),
    ],
)
def test_what_is_missing_is_reported_before_any_node_is_evaluated(
    objects: list[Object], answer: Status
) -> None:
    assert evaluate(make_plugin(VolumeZone), POD, storage_cluster([make_node("n")], *objects)) == answer


def test_a_claim_without_name_is_rejected() -> None:
    answer = evaluate(make_plugin(VolumeZone), make_pod(claims=[""]), storage_cluster([]))
    assert answer == unresolvable(NO_CLAIM_NAME)


def test_ephemeral_volumes_are_not_checked() -> None:
    pod = make_pod(volumes=[Volume(name="scratch", ephemeral=EphemeralVolumeSource())])
    assert evaluate(make_plugin(VolumeZone), pod, storage_cluster([])) is SKIP


def test_every_volume_counts() -> None:
    """A pod with volumes in two zones fits nowhere."""
    cluster = storage_cluster(
        [make_node("n-a", labels={ZONE: "a"}), make_node("n-b", labels={ZONE: "b"})],
        make_pvc("c", volume="v"),
        make_pvc("d", volume="w"),
        make_pv("v", labels={ZONE: "a"}),
        make_pv("w", labels={ZONE: "b"}),
    )
    assert evaluate(make_plugin(VolumeZone), make_pod(claims=["c", "d"]), cluster) == {
        "n-a": REJECTED,
        "n-b": REJECTED,
    }


def test_it_registers_for_the_events_upstream_does() -> None:
    both = Action.ADD | Action.UPDATE
    assert registrations(make_plugin(VolumeZone)) == [
        (Resource.STORAGE_CLASS, Action.ADD),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        (Resource.PERSISTENT_VOLUME_CLAIM, both),
        (Resource.PERSISTENT_VOLUME, both),
    ]


@pytest.mark.parametrize(
    ("event", "old", "new", "helps"),
    [
        pytest.param(
            (Resource.STORAGE_CLASS, Action.ADD),
            None,
            make_storage_class("k"),
            True,
            id="a class was added that waits for pods",
        ),
        pytest.param(
            (Resource.STORAGE_CLASS, Action.ADD),
            None,
            make_storage_class("k", wait_for_consumer=False),
            False,
            id="a class was added that does not",
        ),
        pytest.param((Resource.NODE, Action.ADD), None, make_node("n"), True, id="a node was added"),
        pytest.param(
            (Resource.NODE, Action.UPDATE_NODE_LABEL),
            make_node("n"),
            make_node("n"),
            True,
            id="a label changed",
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), None, BOUND, True, id="the pod's claim was added"
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE),
            BOUND,
            BOUND,
            True,
            id="the pod's claim changed",
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            None,
            make_pvc("d"),
            False,
            id="another claim was added",
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            None,
            make_pvc("c", namespace="other"),
            False,
            id="a claim of that name was added elsewhere",
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME, Action.ADD), None, make_pv("v"), True, id="a volume was added"
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME, Action.UPDATE),
            make_pv("v", labels={ZONE: "a"}),
            make_pv("v", labels={ZONE: "a__b"}),
            True,
            id="a volume can be had elsewhere",
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME, Action.UPDATE),
            make_pv("v", labels={ZONE: "a__b"}),
            make_pv("v", labels={ZONE: "b__a", "x": "y"}),
            False,
            id="a volume changed and stayed where it was",
        ),
    ],
)
def test_what_requeues_a_pod(
    event: tuple[Resource, Action], old: Object | None, new: Object | StorageClass, helps: bool
) -> None:
    assert requeues(make_plugin(VolumeZone), event, POD, old, new) is helps
