"""Resizing pods in place: what a kubelet does after the resources of containers were changed.

The spec of a pod says what is wanted, `resources` and `allocatedResources` of its container statuses what the
containers have. If there is room on the node, they get what is wanted. Otherwise the resize is deferred (the
condition PodResizePending) until pods of the node end or are resized. More than the node has at all is
refused by the API server (`server/admission.py`), as from v1.36 on. Containers are not restarted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.pod_defaults import amounts, pod_amounts
from bayplan.api.quantity import NANO
from bayplan.api.requests import RESIZE_PENDING

DEFERRED: Final = "Deferred"
_MILLI: Final = NANO // 1000
_RESOURCES: Final = (("cpu", _MILLI), ("memory", NANO))
_NO_ROOM: Final = (
    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
)


def is_resized(pod: Pod) -> bool:
    """Whether a container has other resources than the spec asks for."""
    reported = [one for one in pod.status.container_statuses if one.resources is not None]
    if not reported:
        return False
    wanted = {container.name: container.resources for container in pod.spec.containers}
    return any(one.name in wanted and one.resources != wanted[one.name] for one in reported)


def problem(pod: Content, node: Content, others: Iterable[Content]) -> str:
    """Why there is no room for what the pod asks for beside the others; empty if there is."""
    # kubelet/lifecycle/predicate.go: InsufficientResourceError
    wanted = pod_amounts(pod["spec"], "requests", with_overhead=True)
    had = pod_amounts(_allocated(pod), "requests", with_overhead=True)
    capacity = amounts((node.get("status") or {}).get("allocatable"))
    beside = [pod_amounts(_allocated(other), "requests", with_overhead=True) for other in others]
    for name, unit in _RESOURCES:
        requested, available = wanted.get(name, 0), capacity.get(name, 0)
        used = sum(other.get(name, 0) for other in beside)
        if requested > had.get(name, 0) and requested + used > available:
            return _NO_ROOM.format(
                name=name, requested=requested // unit, used=used // unit, capacity=available // unit
            )
    return ""


def _allocated(pod: Content) -> Content:
    """The spec with the requests that the containers have."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    have = {one["name"]: one["allocatedResources"] for one in statuses if "allocatedResources" in one}
    containers = [
        {**one, "resources": {"requests": have[one["name"]]}} if one["name"] in have else one
        for one in pod["spec"]["containers"]
    ]
    return {**pod["spec"], "containers": containers}


def granted(pod: Content) -> Content:
    """The status after the containers got what the spec asks for."""
    wanted = {one["name"]: one.get("resources") or {} for one in pod["spec"]["containers"]}
    status: Content = pod["status"]
    statuses = [
        {
            **one,
            "resources": wanted[one["name"]],
            "allocatedResources": wanted[one["name"]].get("requests") or {},
        }
        if one["name"] in wanted
        else one
        for one in status["containerStatuses"]
    ]
    return {**status, "containerStatuses": statuses, "conditions": _others(status)}


def deferred(pod: Content, why: str, now: str) -> Content:
    """The status while there is no room."""
    status: Content = pod["status"]
    condition = {
        "type": RESIZE_PENDING,
        "status": "True",
        "reason": DEFERRED,
        "message": why,
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "observedGeneration": pod["metadata"].get("generation", 1),
    }
    known = next((one for one in status.get("conditions") or () if one["type"] == RESIZE_PENDING), None)
    if known is not None:
        condition["lastTransitionTime"] = known["lastTransitionTime"]
    return {**status, "conditions": [*_others(status), condition]}


def _others(status: Content) -> list[Content]:
    return [one for one in status.get("conditions") or () if one["type"] != RESIZE_PENDING]
