"""The defaults that an API server sets, on plain values and on the objects of files.

There are two kinds of additions. *Defaults* set missing fields; the server sets them whenever it reads an
object, so all objects get them here, and an object that has them is not changed. *Admission* (priorities,
tolerations, names) happens once, when an object is created, and may depend on other objects: it is in
`admission.py`, and only for objects that have never been in a server.

The embedded server sets all of these fields, and those of kinds that scheduling does not read
(`embedded/server/defaults.py`). Records have only some of the fields: `defaulted` sets those. Pods are in
`pod_defaults.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from bayplan.api.admission import PREEMPT_LOWER_PRIORITY, Admission
from bayplan.api.decode import decode_object
from bayplan.api.devices import EXACT_COUNT
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content, Object
from bayplan.api.pod_defaults import default_pod, default_template, round_up
from bayplan.errors import DecodeError, InputError

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

_WRONG_TYPE: Final = "a field has the wrong type"
_MAX_INT32: Final = 2**31 - 1

_O = TypeVar("_O", bound=Object)


def with_defaults(objects: Iterable[Object], stored: Sequence[Object] = ()) -> list[Object]:
    """The objects as a scheduler would read them from an API server that has the `stored` ones already.

    Order and number do not change. It is idempotent.

    Raises:
        InputError: a pod names a priority class that is not there.
    """
    objects = [defaulted(obj) for obj in objects]
    if not objects:
        return []
    admit = Admission((*stored, *objects)).admit
    return [admit(obj) for obj in objects]


def defaulted(obj: _O) -> _O:
    """An object with the fields that a server sets whenever it reads it. Admission is not included.

    Raises:
        DecodeError: a part that records have as it is written, such as a pod template, is malformed.
    """
    kind = KINDS.find(type(obj))
    fill = None if kind is None else DEFAULTS.get((kind.group, kind.name))
    if fill is None:
        return obj
    content = msgspec.to_builtins(obj)
    content.setdefault("metadata", {})
    try:
        fill(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _malformed(obj) from error
    made: _O = msgspec.convert(content, type(obj))
    return obj if made == obj else made


def _malformed(obj: Object) -> DecodeError:
    """What is wrong with a part that is not decoded with the object; in a pod template, which field."""
    key = f"{type(obj).__name__} {obj.key}"
    match msgspec.to_builtins(obj):
        case {"spec": {"template": {"spec": spec}}}:
            try:
                decode_object(
                    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": obj.name}, "spec": spec}
                )
            except InputError as error:
                return DecodeError(error.problem, object_key=key, field=f"spec.template.{error.field}")
    return DecodeError(_WRONG_TYPE, object_key=key)


def _namespace(content: Content) -> None:
    meta = content["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})[NAMESPACE_NAME_LABEL] = meta["name"]


def _node(content: Content) -> None:
    content.setdefault("spec", {})
    status = content.setdefault("status", {})
    if "capacity" in status and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    for name in ("capacity", "allocatable"):
        round_up(status, name)


def _persistent_volume(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    if (path := spec.get("hostPath")) is not None:
        path.setdefault("type", "")
    if not spec.get("volumeMode"):
        spec["volumeMode"] = "Filesystem"
    round_up(spec, "capacity")
    _default_phase(content)


def _default_phase(content: Content) -> None:
    status = content.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def _claim(content: Content) -> None:
    spec = content.setdefault("spec", {})
    if not spec.get("volumeMode"):
        spec["volumeMode"] = "Filesystem"
    resources = spec.setdefault("resources", {})
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)
    for name in ("requests", "limits"):
        round_up(resources, name)
    _default_phase(content)


def _replication_controller(content: Content) -> None:
    default_template(content)
    spec = content["spec"]
    labels = spec["template"]["metadata"].get("labels")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    if labels and not content["metadata"].get("labels"):
        content["metadata"]["labels"] = dict(labels)
    spec.setdefault("replicas", 1)


def _replica_set(content: Content) -> None:
    default_template(content)
    content["spec"].setdefault("replicas", 1)


def _deployment(content: Content) -> None:
    default_template(content)
    spec = content["spec"]
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _stateful_set(content: Content) -> None:
    default_template(content)
    spec = content["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        _claim(claim)


def _daemon_set(content: Content) -> None:
    default_template(content)
    spec = content["spec"]
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _job(content: Content) -> None:
    default_template(content)
    spec = content["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimitPerIndex") is None:
        spec.setdefault("backoffLimit", 6)
    else:
        spec.setdefault("backoffLimit", _MAX_INT32)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault(
        "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    )


def _priority_class(content: Content) -> None:
    if not content.get("preemptionPolicy"):
        content["preemptionPolicy"] = PREEMPT_LOWER_PRIORITY


def _storage_class(content: Content) -> None:
    content.setdefault("reclaimPolicy", "Delete")
    if not content.get("volumeBindingMode"):
        content["volumeBindingMode"] = "Immediate"


def _csi_driver(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


def _claim_of_devices(content: Content) -> None:
    devices = content.setdefault("spec", {}).setdefault("devices", {})
    for name in ("requests", "constraints", "config"):
        if devices.get(name) == []:
            del devices[name]
    for request in devices.get("requests") or ():
        for exact in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if exact is not None:
                _device_request(exact)


def _device_request(exact: Content) -> None:
    if not exact.get("allocationMode"):
        exact["allocationMode"] = EXACT_COUNT
    if exact["allocationMode"] == EXACT_COUNT and not exact.get("count"):
        exact["count"] = 1
    for toleration in exact.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _claim_template(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("metadata", {})
    _claim_of_devices(spec)


def _limit_range(content: Content) -> None:
    for item in (content.setdefault("spec", {})).get("limits") or ():
        if item.get("type") != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


DEFAULTS: Final[Mapping[tuple[str, str], Callable[[Content], None]]] = {
    ("", "LimitRange"): _limit_range,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): default_pod,
    ("", "ReplicationController"): _replication_controller,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("resource.k8s.io", "ResourceClaim"): _claim_of_devices,
    ("resource.k8s.io", "ResourceClaimTemplate"): _claim_template,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("storage.k8s.io", "StorageClass"): _storage_class,
}
"""By group and kind. They set missing fields in place, and change nothing if called again."""
