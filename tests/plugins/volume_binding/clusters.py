"""Objects for the tests of VolumeBinding."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, ObjectReference
from bayplan.api.storage import TopologySelectorTerm, VolumeNodeAffinity
from bayplan.plugin import Code, Object, Pod
from bayplan.plugin.storage import (
    PersistentVolume,
)
from bayplan.plugins.volume_binding import (
    VolumeBinding,
)
from bayplan.testing.builders import (
    make_csi_capacity,
    make_csi_driver,
    make_node,
    make_pv,
    make_pvc,
    make_storage_class,
)
from bayplan.testing.calling import make_plugin

from ..volume_evaluating import Rejection, evaluate, storage_cluster

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


DRIVER = "csi.example.com"


SELECTED = "volume.kubernetes.io/selected-node"


NODES = (make_node("n", labels={ZONE: "a", HOST: "n"}), make_node("m", labels={ZONE: "b", HOST: "m"}))


STATIC = make_storage_class("static", provisioner="kubernetes.io/no-provisioner")


MADE = make_storage_class("made", provisioner=DRIVER)


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def rejected(*reasons: str) -> Rejection:
    return Code.UNRESOLVABLE, frozenset(reasons)


def rejections(pod: Pod, *objects: Object) -> Any:
    return evaluate(make_plugin(VolumeBinding), pod, storage_cluster(NODES, STATIC, MADE, *objects))


def pinned(name: str, *terms: Any, **fields: Any) -> PersistentVolume:
    """A volume with these terms as its node affinity."""
    volume = make_pv(name, **fields)
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
    return replace(volume, spec=replace(volume.spec, node_affinity=affinity))


BOUND = make_pvc("c", volume="v")


UNBOUND_CLAIM = make_pvc("c", storage_class="static", storage="2Gi")


EXACT: dict[str, Any] = {"capacity": "2Gi", "storage_class": "static"}


def offered(**changes: Any) -> PersistentVolume:
    return make_pv("v", **{**EXACT, **changes})


def reserved(uid: str = "", **changes: Any) -> PersistentVolume:
    volume = offered(**changes)
    reference = ObjectReference(namespace="default", name="c", uid=uid)
    return replace(volume, spec=replace(volume.spec, claim_ref=reference))


FREE = make_pv("free", **EXACT)


def allowing(*terms: TopologySelectorTerm) -> Object:
    return replace(MADE, allowed_topologies=terms)


def where(**labels: Sequence[str]) -> TopologySelectorTerm:
    keys = {"zone": ZONE, "host": HOST}
    return TopologySelectorTerm(
        match_label_expressions=tuple(
            LabelSelectorRequirement(key=keys[key], values=tuple(values)) for key, values in labels.items()
        )
    )


KEEPS_COUNT = make_csi_driver(DRIVER, storage_capacity=True)


def room(**fields: Any) -> Object:
    return make_csi_capacity("k", fields.pop("storage_class", "made"), **fields)
