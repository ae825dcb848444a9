"""Rows of volumes, claims, drivers and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.tables.durations import age
from bayplan.embedded.server.tables.rows import (
    UNSET,
    Content,
    Row,
    Rows,
    access_modes,
    age_of,
    columns,
    joined,
    name_and_creation,
    name_of,
)


def _claim(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in content["metadata"] else status.get("phase", "")
    return [
        name_of(content),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(content, now),
        spec.get("volumeMode", UNSET),
    ]


def _volume(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    claim = spec.get("claimRef")
    return [
        name_of(content),
        (spec.get("capacity") or {}).get("storage", ""),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if "deletionTimestamp" in content["metadata"] else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(content, now),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(content: Content, now: float) -> Row:
    name = name_of(content)
    marks = content["metadata"].get("annotations") or {}
    if marks.get("storageclass.kubernetes.io/is-default-class") == "true":
        name = f"{name} (default)"
    return [
        name,
        content.get("provisioner", ""),
        content.get("reclaimPolicy", "Delete"),
        content.get("volumeBindingMode", "Immediate"),
        "true" if content.get("allowVolumeExpansion") else "false",
        age_of(content, now),
    ]


def _csi_node(content: Content, now: float) -> Row:
    return [name_of(content), len((content.get("spec") or {}).get("drivers") or ()), age_of(content, now)]


def _csi_driver(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    audiences = [token.get("audience", "") for token in spec.get("tokenRequests") or ()]
    return [
        name_of(content),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        joined(audiences, UNSET),
        spec.get("requiresRepublish", False),
        joined(spec.get("volumeLifecycleModes") or ()),
        age_of(content, now),
    ]


def _attachment(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    return [
        name_of(content),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        (content.get("status") or {}).get("attached", False),
        age_of(content, now),
    ]


def _device_claim(content: Content, now: float) -> Row:
    status = content.get("status") or {}
    states = []
    if "deletionTimestamp" in content["metadata"]:
        states.append("deleted")
    states.append("allocated" if status.get("allocation") else "pending")
    if status.get("reservedFor"):
        states.append("reserved")
    return [name_of(content), ",".join(states), age_of(content, now)]


def _slice(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [
        name_of(content),
        spec.get("nodeName") or UNSET,
        spec.get("driver", ""),
        pool,
        age_of(content, now),
    ]


def _taint_rule(content: Content, now: float) -> Row:
    taint = (content.get("spec") or {}).get("taint") or {}
    added = taint.get("timeAdded")
    return [
        name_of(content),
        taint.get("key", ""),
        taint.get("value", ""),
        taint.get("effect", ""),
        age(added, now) if added else "<unknown>",
        age_of(content, now),
    ]


_VOLUME_COLUMNS: Final = (
    "Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
    "VolumeAttributesClass", "Reason", "Age", "VolumeMode*",
)  # fmt: skip
_CLAIM_COLUMNS: Final = (
    "Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age",
    "VolumeMode*",
)  # fmt: skip
_DRIVER_COLUMNS: Final = (
    "Name", "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean", "TokenRequests",
    "RequiresRepublish:boolean", "Modes", "Age",
)  # fmt: skip

ROWS: Final[Mapping[Resource, Rows]] = {
    kinds.CSI_DRIVERS: Rows(columns(*_DRIVER_COLUMNS), _csi_driver),
    kinds.CSI_NODES: Rows(columns("Name", "Drivers:integer", "Age"), _csi_node),
    kinds.CSI_STORAGE_CAPACITIES: Rows(columns("Name", "Created At:date"), name_and_creation),
    kinds.DEVICE_TAINT_RULES: Rows(
        columns("Name", "Key", "Value", "Effect", "TimeAdded", "Age"), _taint_rule
    ),
    kinds.PERSISTENT_VOLUMES: Rows(columns(*_VOLUME_COLUMNS), _volume),
    kinds.PERSISTENT_VOLUME_CLAIMS: Rows(columns(*_CLAIM_COLUMNS), _claim),
    kinds.RESOURCE_CLAIMS: Rows(columns("Name", "State", "Age"), _device_claim),
    kinds.RESOURCE_SLICES: Rows(columns("Name", "Node", "Driver", "Pool", "Age"), _slice),
    kinds.STORAGE_CLASSES: Rows(
        columns("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
    kinds.VOLUME_ATTACHMENTS: Rows(
        columns("Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"), _attachment
    ),
}
