"""Defaults that the API server sets, by kind. In place, on plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bayplan.api.admission import PREEMPT_LOWER_PRIORITY
from bayplan.api.defaults import NAMESPACE_NAME_LABEL
from bayplan.embedded.server import kinds, stored_defaults
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.pod_defaults import default_pod, default_template
from bayplan.embedded.server.validation.custom import fill_in

_MAX_INT32: Final = 2**31 - 1


def apply_defaults(resource: Resource, content: dict[str, Any]) -> None:
    """Sets defaults. It is idempotent."""
    fill = _DEFAULTS.get(resource)
    if fill is not None:
        fill(content)
    elif resource.schema is not None:
        fill_in(content, resource.schema)
    _fill(content, resource.defaults)


def _fill(content: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Sets the defaults of a tree in parent objects that exist."""
    for name, value in defaults.items():
        if not isinstance(value, Mapping):
            content.setdefault(name, value)
        elif not value:
            content.setdefault(name, {})
        elif isinstance(within := content.get(name), dict):
            _fill(within, value)


def _namespace(content: dict[str, Any]) -> None:
    meta = content["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})[NAMESPACE_NAME_LABEL] = meta["name"]


def _node(content: dict[str, Any]) -> None:
    content.setdefault("spec", {})
    status = content.setdefault("status", {})
    if "capacity" in status and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _event(content: dict[str, Any]) -> None:
    content.setdefault("source", {})


def _secret(content: dict[str, Any]) -> None:
    content.setdefault("type", "Opaque")
    if plain := content.pop("stringData", None):
        from base64 import b64encode

        data = content.setdefault("data", {})
        for name, text in plain.items():
            data[name] = b64encode(text.encode()).decode()


def _service(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _persistent_volume(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    if (path := spec.get("hostPath")) is not None:
        path.setdefault("type", "")
    spec.setdefault("volumeMode", "Filesystem")


def _claim(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.setdefault("resources", {})
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)


def _replication_controller(content: dict[str, Any]) -> None:
    default_template(content)
    spec = content["spec"]
    labels = spec["template"]["metadata"].get("labels")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    if labels and not content["metadata"].get("labels"):
        content["metadata"]["labels"] = dict(labels)
    spec.setdefault("replicas", 1)


def _replica_set(content: dict[str, Any]) -> None:
    default_template(content)
    content["spec"].setdefault("replicas", 1)


def _deployment(content: dict[str, Any]) -> None:
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


def _stateful_set(content: dict[str, Any]) -> None:
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
        claim.setdefault("status", {"phase": "Pending"})


def _daemon_set(content: dict[str, Any]) -> None:
    default_template(content)
    spec = content["spec"]
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _job(content: dict[str, Any]) -> None:
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


def _priority_class(content: dict[str, Any]) -> None:
    content.setdefault("preemptionPolicy", PREEMPT_LOWER_PRIORITY)


def _storage_class(content: dict[str, Any]) -> None:
    content.setdefault("reclaimPolicy", "Delete")
    content.setdefault("volumeBindingMode", "Immediate")


def _csi_driver(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


def _definition(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _claim_of_devices(content: dict[str, Any]) -> None:
    devices = content.setdefault("spec", {}).setdefault("devices", {})
    for name in ("requests", "constraints", "config"):
        if devices.get(name) == []:
            del devices[name]
    for request in devices.get("requests") or ():
        for exact in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if exact is not None:
                _device_request(exact)


def _device_request(exact: dict[str, Any]) -> None:
    if not exact.get("allocationMode"):
        exact["allocationMode"] = "ExactCount"
    if exact["allocationMode"] == "ExactCount" and not exact.get("count"):
        exact["count"] = 1
    for toleration in exact.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def default_taint_times(content: dict[str, Any], now: str) -> None:
    """Sets timeAdded of device taints without one to now."""
    if (taint := (content.get("spec") or {}).get("taint")) is not None:
        taint.setdefault("timeAdded", now)
    for device in (content.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def _claim_template(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("metadata", {})
    _claim_of_devices(spec)


def _device_class(content: dict[str, Any]) -> None:
    content.setdefault("spec", {})


def _taint_rule(content: dict[str, Any]) -> None:
    content.setdefault("spec", {}).setdefault("taint", {})


def _device_slice(content: dict[str, Any]) -> None:
    spec = content.setdefault("spec", {})
    if spec.get("devices") == [] and "sharedCounters" not in spec:
        del spec["devices"]
    for device in spec.get("devices") or ():
        for capacity in (device.get("capacity") or {}).values():
            capacity.setdefault("value", "0")


_DEFAULTS: Final[dict[Resource, Callable[[dict[str, Any]], None]]] = {
    **stored_defaults.DEFAULTS,
    kinds.CSI_DRIVERS: _csi_driver,
    kinds.CUSTOM_RESOURCE_DEFINITIONS: _definition,
    kinds.DAEMON_SETS: _daemon_set,
    kinds.DEPLOYMENTS: _deployment,
    kinds.DEVICE_CLASSES: _device_class,
    kinds.DEVICE_TAINT_RULES: _taint_rule,
    kinds.EVENTS: _event,
    kinds.JOBS: _job,
    kinds.NAMESPACES: _namespace,
    kinds.NODES: _node,
    kinds.PERSISTENT_VOLUMES: _persistent_volume,
    kinds.PERSISTENT_VOLUME_CLAIMS: _claim,
    kinds.PODS: default_pod,
    kinds.PRIORITY_CLASSES: _priority_class,
    kinds.REPLICATION_CONTROLLERS: _replication_controller,
    kinds.REPLICA_SETS: _replica_set,
    kinds.RESOURCE_CLAIMS: _claim_of_devices,
    kinds.RESOURCE_CLAIM_TEMPLATES: _claim_template,
    kinds.RESOURCE_SLICES: _device_slice,
    kinds.SECRETS: _secret,
    kinds.SERVICES: _service,
    kinds.STATEFUL_SETS: _stateful_set,
    kinds.STORAGE_CLASSES: _storage_class,
}
