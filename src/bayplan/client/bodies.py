"""The bodies of write requests: small documents and patches, created without I/O.

Our records have only the fields that scheduling reads. So an object that others own is never written whole:
changes are sent as a patch, and all other fields stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.devices import ResourceClaim
from bayplan.api.documents import difference
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Condition, Object
from bayplan.api.pod import Pod

DELETE_OPTIONS: Final = b'{"kind":"DeleteOptions","apiVersion":"v1"}'
"""Empty: no precondition, and the pod's own grace period."""

_encode: Final = msgspec.json.Encoder().encode

_WHOLE_SECOND: Final = re.compile(
    rb'"(eventTime|lastObservedTime|acquireTime|renewTime)":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z"'
)
_SERVER_METADATA: Final = frozenset(
    ("resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp", "name", "namespace")
)
"""Metadata that the server sets, or that identifies the object."""


class _Named(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str] | None = None


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = "Node"
    name: str


class _Binding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = "v1"
    kind: str = "Binding"
    metadata: _Named
    target: _Target


def binding(pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> bytes:
    """Binds a pod, and no other of the same name. The API server adds the annotations to the pod."""
    meta = pod.metadata
    named = _Named(meta.name, meta.namespace, meta.uid, annotations or None)
    return _encode(_Binding(metadata=named, target=_Target(name=node_name)))


def whole(item: Object) -> bytes:
    """An object, with kind and apiVersion."""
    kind = type(item)
    head = _encode({"apiVersion": KINDS.of(kind).api_version, "kind": kind.__name__})
    fields = _encode(item)
    return _with_micros(head if fields == b"{}" else head[:-1] + b"," + fields[1:])


# Pod status


def pod_status(pod: Pod, patch: PodStatusPatch, now: Callable[[], float]) -> bytes | None:
    """The strategic merge patch that changes the pod's status as wanted; None if nothing changes."""
    status: dict[str, Any] = {}
    if patch.condition is not None:
        status = _conditions(pod, patch.condition, now)
    if patch.nominated_node_name is not None:
        status["nominatedNodeName"] = patch.nominated_node_name or None
    if patch.extended_resource_claim is not None:
        status["extendedResourceClaimStatus"] = msgspec.to_builtins(patch.extended_resource_claim)
    if not status:
        return None
    # The uid identifies the pod: a new one of the same name must not be changed.
    return _encode({"metadata": {"uid": pod.uid}, "status": status} if pod.uid else {"status": status})


def _conditions(pod: Pod, wanted: Condition, now: Callable[[], float]) -> dict[str, Any]:
    conditions = pod.status.conditions
    known = next((condition for condition in conditions if condition.type == wanted.type), None)
    if known is None:
        moment = wanted.last_transition_time or _seconds(now)
        new = msgspec.structs.replace(wanted, last_transition_time=moment)
        change = {"lastProbeTime": None, **msgspec.to_builtins(new)}
    else:
        change = _condition_change(known, wanted, now)
        if not change:
            return {}
        change["type"] = wanted.type
    part: dict[str, Any] = {}
    if conditions:
        types = [condition.type for condition in conditions]
        if known is None:
            types.append(wanted.type)
        part["$setElementOrder/conditions"] = [{"type": name} for name in types]
    part["conditions"] = [change]
    return part


def _condition_change(known: Condition, wanted: Condition, now: Callable[[], float]) -> dict[str, Any]:
    """The fields of a condition that change. A new observedGeneration alone is not a change."""
    since: datetime | None
    if known.status != wanted.status:
        since = wanted.last_transition_time or _seconds(now)
    elif (known.reason, known.message, known.last_probe_time) == (
        wanted.reason,
        wanted.message,
        wanted.last_probe_time,
    ):
        return {}
    else:
        since = known.last_transition_time
    new = msgspec.structs.replace(wanted, last_transition_time=since)
    change: dict[str, Any] = difference(msgspec.to_builtins(known), msgspec.to_builtins(new))
    return change


def _seconds(now: Callable[[], float]) -> datetime:
    return datetime.fromtimestamp(int(now()), UTC)


# Claims


def released_claim(claim: ResourceClaim, uid: str) -> bytes:
    """The strategic merge patch that removes one consumer from the claim, if it is still the same claim."""
    released = [{"$patch": "delete", "uid": uid}]
    return _encode({"metadata": {"uid": claim.uid}, "status": {"reservedFor": released}})


# Patches of objects that others own


def parts_patch(item: Object, paths: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """A merge patch with these parts of an object, valid only for its resourceVersion."""
    raw = msgspec.to_builtins(item)
    patch: dict[str, Any] = {}
    for outer, inner in paths:
        patch.setdefault(outer, {})[inner] = raw.get(outer, {}).get(inner)
    return _for_version(patch, item)


def changes(old: Object, new: Object) -> dict[str, Any]:
    """The merge patch from one version of an object to another; empty if they are equal.

    A list that differs is replaced, so that unknown fields of its entries are lost. The status is not
    included: it is written separately.
    """
    before, after = _writable_fields(old), _writable_fields(new)
    patch: dict[str, Any] = difference(before, after)
    return _for_version(patch, old) if patch else {}


def encode(patch: Mapping[str, Any]) -> bytes:
    """As JSON. MicroTime values need all six digits, even if all are 0."""
    return _with_micros(_encode(patch))


def _writable_fields(item: Object) -> dict[str, Any]:
    raw: dict[str, Any] = msgspec.to_builtins(item)
    raw.pop("status", None)
    raw["metadata"] = {
        name: value for name, value in raw.get("metadata", {}).items() if name not in _SERVER_METADATA
    }
    return raw


def _for_version(patch: dict[str, Any], item: Object) -> dict[str, Any]:
    meta = item.metadata
    metadata = patch.setdefault("metadata", {})
    if meta.resource_version:
        metadata["resourceVersion"] = meta.resource_version
    if meta.uid:
        metadata["uid"] = meta.uid
    return patch


def _with_micros(data: bytes) -> bytes:
    return _WHOLE_SECOND.sub(rb'"\1":"\2.000000Z"', data)
