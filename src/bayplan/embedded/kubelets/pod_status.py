"""Statuses that a kubelet writes for a pod: running, restarted, ended.

Plain functions from the fields of a pod to its next status; `pods.py` calls them when they are due.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.meta import Content

SANDBOX: Final = "PodReadyToStartContainers"
RUNTIME: Final = "simulated"
_NOT_THE_KUBELETS: Final = ("qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus")
"""Fields of the status that other components write."""
_IMAGE_ID: Final = "docker.io/simulated/image@sha256:"


def running(pod: Content, now: str, pod_ip: str, host_ip: str) -> Content:
    """The status of a pod whose containers have just started."""
    spec, meta, known = pod["spec"], pod["metadata"], pod.get("status") or {}
    uid = meta["uid"].replace("-", "")
    status: dict[str, Any] = {
        **{name: part for name, part in known.items() if name in _NOT_THE_KUBELETS},
        "phase": "Running",
        "conditions": _conditions(known.get("conditions"), "True", now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": known.get("startTime") or now,
        "containerStatuses": [
            _container(container, uid, number, {"running": {"startedAt": now}})
            for number, container in enumerate(spec["containers"])
        ],
    }
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            _init_container(container, uid, 100 + number, now)
            for number, container in enumerate(spec["initContainers"])
        ]
    return status


def held(pod: Content, now: str, reason: str, message: str) -> Content:
    """The status of a pod whose containers cannot be created: its sandbox is not ready for them."""
    status = pod.get("status") or {}
    conditions = _conditions(status.get("conditions"), "False", now, "ContainersNotReady", sandbox="False")
    uid = pod["metadata"]["uid"].replace("-", "")
    state = {"waiting": {"reason": reason, "message": message}}
    containers = [
        {**_container(each, uid, number, state), "ready": False, "started": False, "containerID": ""}
        for number, each in enumerate(pod["spec"]["containers"])
    ]
    return {**status, "phase": "Pending", "conditions": conditions, "containerStatuses": containers}


def restarted(status: Content, exit_code: int, finished: str, now: str) -> Content:
    """The status after containers ended and were restarted."""
    statuses = [
        {
            **each,
            "restartCount": each.get("restartCount", 0) + 1,
            "lastState": {"terminated": _terminated(each, exit_code, finished)},
            "state": {"running": {"startedAt": now}},
            "ready": True,
            "started": True,
        }
        for each in status["containerStatuses"]
    ]
    return with_readiness({**status, "containerStatuses": statuses}, ready=True, now=now)


def backing_off(status: Content, exit_code: int, now: str, seconds: float) -> Content:
    """The status in CrashLoopBackOff: the containers ended and are restarted later."""
    message = f"back-off {seconds:.0f}s restarting failed container"
    statuses = [
        {
            **each,
            "lastState": {"terminated": _terminated(each, exit_code, now)},
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": message}},
            "ready": False,
            "started": False,
        }
        for each in status["containerStatuses"]
    ]
    return with_readiness({**status, "containerStatuses": statuses}, ready=False, now=now)


def ended(status: Content, exit_code: int, now: str) -> Content:
    """The status after containers ended and are not restarted."""
    statuses = [
        {
            **each,
            "state": {"terminated": _terminated(each, exit_code, now)},
            "ready": False,
            "started": False,
        }
        for each in status.get("containerStatuses") or ()
    ]
    phase = "Succeeded" if exit_code == 0 else "Failed"
    status = {**status, "phase": phase, "containerStatuses": statuses}
    reason = "PodCompleted" if exit_code == 0 else "PodFailed"
    return with_readiness(status, ready=False, now=now, reason=reason)


def with_readiness(status: Content, *, ready: bool, now: str, reason: str = "ContainersNotReady") -> Content:
    """Sets Ready and ContainersReady; their time changes only with their status."""
    text = "True" if ready else "False"
    conditions = _conditions(status.get("conditions"), text, now, "" if ready else reason)
    return {**status, "conditions": conditions}


def is_waiting(status: Content) -> bool:
    """Whether the containers wait for a restart."""
    return any("waiting" in (each.get("state") or {}) for each in status.get("containerStatuses") or ())


def restarts(status: Content) -> int:
    return max((each.get("restartCount", 0) for each in status.get("containerStatuses") or ()), default=0)


def started_at(status: Content) -> str | None:
    """When the running containers were started."""
    for each in status.get("containerStatuses") or ():
        found = ((each.get("state") or {}).get("running") or {}).get("startedAt")
        if found is not None:
            return str(found)
    return None


def finished_at(status: Content) -> str | None:
    """When the waiting containers ended."""
    for each in status.get("containerStatuses") or ():
        found = ((each.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        if found is not None:
            return str(found)
    return None


def _conditions(
    known: list[Content] | None, ready: str, now: str, reason: str = "", sandbox: str = "True"
) -> list[Content]:
    found = {each["type"]: each for each in known or ()}
    wanted = (
        (SANDBOX, sandbox, ""),
        ("Initialized", "True", ""),
        ("Ready", ready, reason),
        ("ContainersReady", ready, reason),
        ("PodScheduled", "True", ""),
    )
    for kind, state, why in wanted:
        old = found.get(kind)
        if old is None or old["status"] != state or old.get("reason", "") != why:
            new = {"type": kind, "status": state, "lastProbeTime": None, "lastTransitionTime": now}
            found[kind] = {**new, "reason": why} if why else new
    return list(found.values())


def _container(container: Content, uid: str, number: int, state: Content) -> Content:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": image,
        "imageID": _IMAGE_ID + uid,
        "containerID": f"{RUNTIME}://{uid}{number:032x}",
        "started": True,
    }


def _init_container(container: Content, uid: str, number: int, now: str) -> Content:
    """The status of an init container: completed, or running if it is a sidecar (restartPolicy Always)."""
    if container.get("restartPolicy") == "Always":
        return _container(container, uid, number, {"running": {"startedAt": now}})
    state = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {**_container(container, uid, number, {"terminated": state}), "started": False}


def _terminated(container: Content, exit_code: int, now: str) -> Content:
    began = ((container.get("state") or {}).get("running") or {}).get("startedAt") or now
    return {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "startedAt": began,
        "finishedAt": now,
        "containerID": container.get("containerID", ""),
    }
