"""The queueing hints of VolumeBinding."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.pod import (
    CSIVolumeSource,
    EphemeralVolumeSource,
)
from bayplan.plugin import Action, Object, Resource
from bayplan.plugin.storage import (
    Volume,
)
from bayplan.plugins.volume_binding import (
    VolumeBinding,
)
from bayplan.testing.builders import (
    make_csi_driver,
    make_csi_node,
    make_pod,
    make_pvc,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import registrations, requeues
from .clusters import BOUND, DRIVER, FREE, KEEPS_COUNT, MADE, NODES, allowing, room, where


def test_it_registers_for_the_events_upstream_does() -> None:
    both = Action.ADD | Action.UPDATE
    assert registrations(make_plugin(VolumeBinding)) == [
        (Resource.STORAGE_CLASS, both),
        (Resource.PERSISTENT_VOLUME_CLAIM, both),
        (Resource.PERSISTENT_VOLUME, both),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        (Resource.CSI_NODE, both),
        (Resource.CSI_DRIVER, Action.UPDATE),
        (Resource.CSI_STORAGE_CAPACITY, both),
    ]


CLASS_UPDATED = (Resource.STORAGE_CLASS, Action.UPDATE)


CLAIM_UPDATED = (Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE)


CSI_NODE_UPDATED = (Resource.CSI_NODE, Action.UPDATE)


DRIVER_UPDATED = (Resource.CSI_DRIVER, Action.UPDATE)


CAPACITY_UPDATED = (Resource.CSI_STORAGE_CAPACITY, Action.UPDATE)


MIGRATED = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"}


@pytest.mark.parametrize(
    ("event", "old", "new", "helps"),
    [
        pytest.param((Resource.STORAGE_CLASS, Action.ADD), None, MADE, True, id="a class was added"),
        pytest.param(
            CLASS_UPDATED, MADE, allowing(where(zone=["a"])), True, id="a class allows other places"
        ),
        pytest.param(
            CLASS_UPDATED, MADE, replace(MADE, provisioner="x"), False, id="a class changed otherwise"
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            None,
            make_pvc("c"),
            True,
            id="the pod's claim was added",
        ),
        pytest.param(CLAIM_UPDATED, make_pvc("c"), BOUND, True, id="the pod's claim changed"),
        pytest.param(CLAIM_UPDATED, None, make_pvc("p-e"), True, id="its ephemeral volume's claim changed"),
        pytest.param(CLAIM_UPDATED, None, make_pvc("x"), False, id="another claim changed"),
        pytest.param(
            CLAIM_UPDATED, None, make_pvc("c", namespace="x"), False, id="a claim changed elsewhere"
        ),
        pytest.param((Resource.PERSISTENT_VOLUME, Action.ADD), None, FREE, True, id="a volume was added"),
        pytest.param((Resource.PERSISTENT_VOLUME, Action.UPDATE), FREE, FREE, True, id="a volume changed"),
        pytest.param((Resource.NODE, Action.ADD), None, NODES[0], True, id="a node was added"),
        pytest.param((Resource.NODE, Action.UPDATE_NODE_LABEL), *NODES, True, id="a label of a node changed"),
        pytest.param((Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE), *NODES, False, id="a node grew"),
        pytest.param(
            (Resource.CSI_NODE, Action.ADD), None, make_csi_node("n"), True, id="a CSINode was added"
        ),
        pytest.param(
            CSI_NODE_UPDATED,
            make_csi_node("n"),
            make_csi_node("n", annotations=MIGRATED),
            True,
            id="a plugin moved",
        ),
        pytest.param(
            CSI_NODE_UPDATED,
            make_csi_node("n"),
            make_csi_node("n", {"x": 1}),
            False,
            id="a driver was installed",
        ),
        pytest.param(
            DRIVER_UPDATED,
            KEEPS_COUNT,
            make_csi_driver(DRIVER),
            True,
            id="the pod's driver no longer keeps count",
        ),
        pytest.param(DRIVER_UPDATED, make_csi_driver(DRIVER), KEEPS_COUNT, False, id="it does now"),
        pytest.param(
            DRIVER_UPDATED, make_csi_driver(DRIVER), make_csi_driver(DRIVER), False, id="it never did"
        ),
        pytest.param(
            DRIVER_UPDATED,
            make_csi_driver("x", storage_capacity=True),
            make_csi_driver("x"),
            False,
            id="another driver no longer does",
        ),
        pytest.param(
            (Resource.CSI_STORAGE_CAPACITY, Action.ADD), None, room(), True, id="a capacity was added"
        ),
        pytest.param(CAPACITY_UPDATED, room(), room(capacity=0), True, id="a capacity is known"),
        pytest.param(
            CAPACITY_UPDATED, room(capacity="1Gi"), room(capacity="2Gi"), True, id="a capacity grew"
        ),
        pytest.param(CAPACITY_UPDATED, room(capacity="2Gi"), room(capacity="2048Mi"), False, id="it stayed"),
        pytest.param(CAPACITY_UPDATED, room(capacity="2Gi"), room(), False, id="it is no longer known"),
        pytest.param(
            CAPACITY_UPDATED,
            room(capacity="9Gi"),
            room(capacity="9Gi", maximum_volume_size="1Gi"),
            False,
            id="the size of a piece is known, and small",
        ),
    ],
)
def test_what_requeues_a_pod(
    event: tuple[Resource, Action], old: Object | None, new: Object | None, helps: bool
) -> None:
    inline = Volume(name="i", csi=CSIVolumeSource(driver=DRIVER))
    ephemeral = Volume(name="e", ephemeral=EphemeralVolumeSource())
    pod = make_pod("p", claims=["c"], volumes=[inline, ephemeral])
    assert requeues(make_plugin(VolumeBinding), event, pod, old, new) is helps
