"""Replaces names, labels, annotations and images of a cluster, so that decisions on it do not change.

Equal texts get equal replacements, in the same order: where a tie is broken by the order of names, the same
node wins. What is not known to be harmless is replaced, so a new field of an API object cannot leak. These
are kept:

- numbers, quantities, times, and fields with fixed words (`effect: NoSchedule`)
- names of resources, drivers and provisioners, device classes and their selectors, attributes of devices
- `schedulerName`, which must match a profile
- keys of labels and taints in the domains kubernetes.io and k8s.io; values of labels that are numbers or
  true or false

Annotations that scheduling does not read are dropped, and so are the messages of conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from bayplan.answers.sources.templates import with_pruned_template
from bayplan.api.meta import Object
from bayplan.api.pod import Pod

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Contains whole manifests, and so environment variables: no snapshot has it."""

READ_ANNOTATIONS: Final = frozenset(
    {
        "bayplan.dev/deschedule",
        "descheduler.alpha.kubernetes.io/evict",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "resource.kubernetes.io/extended-resource-claim",
        "resource.kubernetes.io/pod-claim-name",
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "storage.alpha.kubernetes.io/migrated-plugins",
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
        "volume.beta.kubernetes.io/storage-class",
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-provisioner",
    }
)
_NAMES_IN_ANNOTATIONS: Final = frozenset(
    {
        "resource.kubernetes.io/pod-claim-name",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/selected-node",
    }
)

_KEPT: Final = frozenset(
    {
        "accessModes",
        "action",
        "allocationMode",
        "apiGroup",
        "apiVersion",
        "attacher",
        "attribute",
        "bindingConditions",
        "bindingFailureConditions",
        "creationTimestamp",
        "declaredFeatures",
        "deletionTimestamp",
        "deviceClassName",
        "driver",
        "effect",
        "expression",
        "extendedResourceName",
        "hostIP",
        "kind",
        "lastTransitionTime",
        "maxSurge",
        "maxUnavailable",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "operator",
        "phase",
        "podManagementPolicy",
        "preemptionPolicy",
        "protocol",
        "provisioner",
        "qosClass",
        "reason",
        "requestName",
        "resource",
        "resourceName",
        "resourceVersion",
        "restartPolicy",
        "scheduleTimeoutSeconds",
        "schedulerName",
        "scopeName",
        "scopes",
        "startTime",
        "status",
        "type",
        "unhealthyPodEvictionPolicy",
        "volumeBindingMode",
        "volumeMode",
        "whenUnsatisfiable",
    }
)
"""Fields whose texts are fixed words, times, or names of drivers and resources."""
_RESOURCES: Final = frozenset(
    {
        "allocatable",
        "allocatedResources",
        "capacity",
        "default",
        "defaultRequest",
        "hard",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "maximumVolumeSize",
        "min",
        "minResources",
        "overhead",
        "podFixed",
        "requests",
        "used",
    }
)
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector", "selector"})
_LABEL_KEYS: Final = frozenset({"key", "topologyKey", "matchLabelKeys", "mismatchLabelKeys"})
_LABEL_VALUES: Final = frozenset({"value", "values"})
_IMAGES: Final = frozenset({"image", "names", "reference"})
_DROPPED: Final = frozenset({"generateName", "message"})
_KEPT_NAMES: Final = frozenset({"CSIDriver", "DeviceClass"})
"""Kinds whose names are those of drivers, or are used in expressions and names of resources."""

_PLAIN_VALUE: Final = re.compile(r"-?\d+|true|false|")
_WELL_KNOWN: Final = re.compile(r"metadata\.name|([^/]+\.)?(kubernetes|k8s)\.io/.*")
_ZONES: Final = "__"
"""Separates the zones in the label of a volume that is in several."""

Replace = Callable[[str], str]


def redacted(objects: Sequence[Object]) -> list[Object]:
    """The objects with other names, labels, annotations and images."""
    seen: set[str] = set()

    def collect(text: str) -> str:
        seen.add(text)
        return text

    for item in objects:
        _object(item, collect)
    replacements = {text: f"r{number:07}" for number, text in enumerate(sorted(seen))}
    for claim, (pod, volume) in _ephemeral_claims(objects):
        replacements[claim] = f"{replacements[pod]}-{replacements[volume]}"
    return [_object(item, replacements.__getitem__) for item in objects]


def _ephemeral_claims(objects: Iterable[Object]) -> Iterable[tuple[str, tuple[str, str]]]:
    """Claims whose names are made of those of pod and volume."""
    for item in objects:
        if isinstance(item, Pod):
            for volume in item.spec.volumes:
                if volume.ephemeral is not None:
                    yield item.claim_name(volume) or "", (item.name, volume.name)


def without_manifests(item: Object) -> Object:
    """The object without the annotation in which kubectl keeps the whole manifest, and with only those fields
    of its pod template that scheduling reads."""
    annotations = item.annotations
    if LAST_APPLIED in annotations:
        kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
        item = msgspec.structs.replace(
            item, metadata=msgspec.structs.replace(item.metadata, annotations=kept)
        )
    return with_pruned_template(item)


def _object(item: Object, replace: Replace) -> Object:
    content = msgspec.to_builtins(item, builtin_types=(datetime,))
    name = item.name
    changed = {key: _value(key, part, replace) for key, part in content.items()}
    if type(item).__name__ in _KEPT_NAMES:
        changed["metadata"]["name"] = name
    return msgspec.convert(changed, type(item))


def _value(field: str, value: Any, replace: Replace) -> Any:
    """A part of an object, by the name of its field."""
    if field in _RESOURCES or not isinstance(value, str | dict | list | tuple):
        return value
    if isinstance(value, str):
        return _text(field, value, replace)
    if isinstance(value, dict):
        if field == "annotations":
            return _annotations(value, replace)
        if field in _LABELS and all(isinstance(part, str) for part in value.values()):
            return {_key(key, replace): _label_value(part, replace) for key, part in value.items()}
        if field in ("devices", "deviceSelector", "taint"):  # the last two of a DeviceTaintRule
            return _claim_devices(value, replace)
        if field == "disruptedPods":
            return {replace(key): part for key, part in value.items()}
        return {key: _value(key, part, replace) for key, part in value.items() if key not in _DROPPED}
    if field in ("devices", "drivers", "sharedCounters"):
        return [_device(part, replace) for part in value]
    return [_value(field, part, replace) for part in value]


def _text(field: str, text: str, replace: Replace) -> str:
    if not text or field in _KEPT:
        return text
    if field in _LABEL_KEYS:
        return _key(text, replace)
    if field in _LABEL_VALUES:
        return _label_value(text, replace)
    if field in _IMAGES:
        return _image(text, replace)
    return replace(text)


def _device(part: Any, replace: Replace) -> Any:
    """Devices and drivers keep their names, attributes and selectors; their labels of nodes are replaced."""
    kept = {"name", "attributes", "basic", "consumesCounters", "counters", "taints", "capacity"}
    return {key: value if key in kept else _value(key, value, replace) for key, value in part.items()}


def _claim_devices(value: Any, replace: Replace) -> Any:
    """Requests and results of a claim: only pools are replaced, whose names are often those of nodes, and the
    configuration of drivers is dropped."""
    if isinstance(value, list | tuple):
        return [_claim_devices(part, replace) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: replace(part) if key == "pool" else _claim_devices(part, replace)
        for key, part in value.items()
        if key != "opaque"
    }


def _key(key: str, replace: Replace) -> str:
    return key if _WELL_KNOWN.fullmatch(key) else replace(key)


def _label_value(value: str, replace: Replace) -> str:
    if _PLAIN_VALUE.fullmatch(value):
        return value
    return _ZONES.join(replace(part) if part else part for part in value.split(_ZONES))


def _image(image: str, replace: Replace) -> str:
    """Name and tag apart: an image without a tag is the one with `:latest`."""
    name, colon, tag = image.rpartition(":")
    if not colon or "/" in tag or tag == "latest":
        return f"{replace(name)}:latest" if tag == "latest" and colon else replace(image)
    return f"{replace(name)}:{replace(tag)}"


def _annotations(annotations: dict[str, str], replace: Replace) -> dict[str, str]:
    return {
        key: replace(value) if key in _NAMES_IN_ANNOTATIONS and value else value
        for key, value in annotations.items()
        if key in READ_ANNOTATIONS
    }
