"""Conversion between the stored form of objects and other served forms.

Events are served by the core group, and by events.k8s.io with other names for the same fields; they are
stored in the core form. Autoscalers are stored as version 2; version 1 has one field, for the CPU, and an
annotation for the rest. Custom resources may have several versions, which differ in nothing but their name.
Those that are older than the defaults of their schema get them when they are read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bayplan.embedded.server.defaults import cpu_metric
from bayplan.embedded.server.kinds import NEW_EVENTS, OLD_AUTOSCALERS, Resource
from bayplan.embedded.server.validation.custom import fill_in

_CORE_NAMES: Final = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}
_CPU: Final = "targetCPUUtilizationPercentage"
_MORE_METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
_OLD_STATUS: Final = ("currentReplicas", "desiredReplicas", "lastScaleTime", "observedGeneration")
_NEW_NAMES: Final = {core: new for new, core in _CORE_NAMES.items()}


def to_storage(resource: Resource, content: dict[str, Any]) -> dict[str, Any]:
    """An object as it is stored."""
    if resource.stored_as is None:
        return content
    if resource == OLD_AUTOSCALERS:
        content = _new_autoscaler(content)
    return _renamed(content, _CORE_NAMES if resource == NEW_EVENTS else {}, resource.stored_as)


def from_storage(resource: Resource, content: dict[str, Any]) -> dict[str, Any]:
    """A stored object as its resource shows it."""
    if lacks_defaults(resource, int(content["metadata"].get("resourceVersion") or 0)):
        assert resource.schema is not None
        fill_in(content, resource.schema)
    if resource.stored_as is None:
        return content
    if resource == OLD_AUTOSCALERS:
        content = _old_autoscaler(content)
    return _renamed(content, _NEW_NAMES if resource == NEW_EVENTS else {}, resource)


def lacks_defaults(resource: Resource, version: int) -> bool:
    """Whether an object of this version may lack defaults of its schema."""
    return version < resource.defaults_since


def stored_field(resource: Resource, path: str) -> str:
    """The path of a selectable field in the stored form."""
    first, dot, rest = path.partition(".")
    return f"{_CORE_NAMES.get(first, first)}{dot}{rest}" if resource == NEW_EVENTS else path


def _renamed(content: dict[str, Any], names: dict[str, str], resource: Resource) -> dict[str, Any]:
    renamed = {names.get(field, field): part for field, part in content.items()}
    return {**renamed, "apiVersion": resource.api_version, "kind": resource.kind}


def _new_autoscaler(content: dict[str, Any]) -> dict[str, Any]:
    """An autoscaler of version 1 as version 2."""
    spec = dict(content.get("spec") or {})
    meta = dict(content.get("metadata") or {})
    notes = dict(meta.get("annotations") or {})
    try:
        kept = msgspec.json.decode(notes.pop(_MORE_METRICS, "{}"), type=dict[str, Any])
    except msgspec.DecodeError:
        kept = {}
    spec.update(kept)
    if (percentage := spec.pop(_CPU, None)) is not None:
        spec["metrics"] = [*(spec.get("metrics") or ()), cpu_metric(percentage)]
    meta.pop("annotations", None)
    if notes:
        meta["annotations"] = notes
    return {**content, "metadata": meta, "spec": spec}


def _old_autoscaler(content: dict[str, Any]) -> dict[str, Any]:
    """An autoscaler of version 2 as version 1, with an annotation for fields that version 1 lacks."""
    spec = dict(content.get("spec") or {})
    others = []
    for metric in spec.pop("metrics", None) or ():
        source = metric.get("resource") or {}
        percentage = (source.get("target") or {}).get("averageUtilization")
        if source.get("name") == "cpu" and percentage is not None and _CPU not in spec:
            spec[_CPU] = percentage
        else:
            others.append(metric)
    kept = {"metrics": others} if others else {}
    if "behavior" in spec:
        kept["behavior"] = spec.pop("behavior")
    meta = dict(content["metadata"])
    if kept:
        notes = {**(meta.get("annotations") or {}), _MORE_METRICS: msgspec.json.encode(kept).decode()}
        meta["annotations"] = notes
    status = {name: part for name, part in (content.get("status") or {}).items() if name in _OLD_STATUS}
    status.setdefault("currentReplicas", 0)
    return {**content, "metadata": meta, "spec": spec, "status": status}
