"""Rows of volumes, claims, drivers and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.tables.durations import age
from bayplan.embedded.server.tables.rows import UNSET, Content, Row, Rows, access_modes, columns, joined


def _created(content: Content, now: float) -> str:
    return age(content["metadata"].get("creationTimestamp"), now)


def _name(content: Content) -> str:
    return str(content["metadata"]["name"])


def _claim(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in content["metadata"] else status.get("phase", "")
    return [
        _name(content),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        _created(content, now),
        spec.get("volumeMode", UNSET),
    ]


def _volume(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    claim = spec.get("claimRef")
    return [
        _name(content),
        (spec.get("capacity") or {}).get("storage", ""),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if "deletionTimestamp" in content["metadata"] else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        _created(content, now),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(content: Content, now: float) -> Row:
    name = _name(content)
    marks = content["metadata"].get("annotations") or {}
    if marks.get("storageclass.kubernetes.io/is-default-class") == "true":
        name = f"{name} (default)"
    return [
        name,
        content.get("provisioner", ""),
        content.get("reclaimPolicy", "Delete"),
        content.get("volumeBindingMode", "Immediate"),
        "true" if content.get("allowVolumeExpansion") else "false",
        _created(content, now),
    ]


def _csi_node(content: Content, now: float) -> Row:
    return [_name(content), len((content.get("spec") or {}).get("drivers") or ()), _created(content, now)]


def _csi_driver(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    audiences = [token.get("audience", "") for token in spec.get("tokenRequests") or ()]
    return [
        _name(content),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        joined(audiences, UNSET),
        spec.get("requiresRepublish", False),
        joined(spec.get("volumeLifecycleModes") or ()),
        _created(content, now),
    ]


def _attachment(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    return [
        _name(content),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        (content.get("status") or {}).get("attached", False),
        _created(content, now),
    ]


def _device_claim(content: Content, now: float) -> Row:
    status = content.get("status") or {}
    states = []
    if "deletionTimestamp" in content["metadata"]:
        states.append("deleted")
    states.append("allocated" if status.get("allocation") else "pending")
    if status.get("reservedFor"):
        states.append("reserved")
    return [_name(content), ",".join(states), _created(content, now)]


def _slice(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [
        _name(content),
        spec.get("nodeName") or UNSET,
        spec.get("driver", ""),
        pool,
        _created(content, now),
    ]


def _taint_rule(content: Content, now: float) -> Row:
    taint = (content.get("spec") or {}).get("taint") or {}
    added = taint.get("timeAdded")
    return [
        _name(content),
        taint.get("key", ""),
        taint.get("value", ""),
        taint.get("effect", ""),
        age(added, now) if added else "<unknown>",
        _created(content, now),
    ]


def _created_at(content: Content, now: float) -> Row:
    return [_name(content), content["metadata"].get("creationTimestamp")]


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
    kinds.CSI_STORAGE_CAPACITIES: Rows(columns("Name", "Created At:date"), _created_at),
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
