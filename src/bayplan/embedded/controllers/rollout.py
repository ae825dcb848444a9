"""The ReplicaSets of a deployment, and its status, without the writes of `deployment.py`.

The controller's state is stored on the ReplicaSets as annotations, so that it survives a restart and is
visible to kubectl. `kubectl rollout status` waits for fields of the status: observedGeneration, the counts,
and the reason ProgressDeadlineExceeded.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.controllers.pods import TEMPLATE_HASH, find_condition, is_controlled_by
from bayplan.controllers.workloads import (
    Bounds,
    Size,
    bounds,
)
from bayplan.embedded.controllers.controller import counts, with_condition
from bayplan.embedded.server.objects import ObjectAPI

REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
_MAX_INT64: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


def split(deployment: Content, sets: list[Content]) -> tuple[Content | None, list[Content]]:
    """The ReplicaSet of the current template, the oldest if there are several, and all others."""
    wanted = deployment["spec"]["template"]
    new = next(
        (each for each in sets if template_of(each) == wanted and is_controlled_by(each, deployment)), None
    )
    return new, [each for each in sets if each is not new]


def template_of(replica_set: Content) -> Content:
    """Its template as the deployment wrote it, without the hash."""
    template: dict[str, Any] = replica_set["spec"]["template"]
    meta = dict(template.get("metadata") or {})
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key != TEMPLATE_HASH}
    if labels or "labels" in meta:
        meta["labels"] = labels
    return {**template, "metadata": meta}


def annotations_of(content: Content) -> dict[str, str]:
    return content["metadata"].get("annotations") or {}


def revision_of(content: Content) -> int:
    return _number_in(content, REVISION)


def max_replicas_of(replica_set: Content) -> int:
    """The size of its deployment with surge, when it was last scaled."""
    return _number_in(replica_set, MAX_REPLICAS)


def _number_in(content: Content, annotation: str) -> int:
    """The number in an annotation; 0 for anything else that somebody wrote there, as in Kubernetes."""
    text = annotations_of(content).get(annotation, "")
    number = int(text) if _NUMBER.fullmatch(text) else 0
    return number if number < _MAX_INT64 else 0


def note_sizes(replica_set: Content, wanted: Bounds) -> bool:
    """Annotates a ReplicaSet with the size of its deployment. Returns whether that changed it."""
    noted = {DESIRED: str(wanted.replicas), MAX_REPLICAS: str(wanted.max_total)}
    annotations = annotations_of(replica_set)
    if all(annotations.get(name) == text for name, text in noted.items()):
        return False
    replica_set["metadata"]["annotations"] = {**annotations, **noted}
    return True


def size_of(content: Content) -> Size:
    available = (content.get("status") or {}).get("availableReplicas", 0)
    desired = content["spec"]["replicas"]
    return Size(content["metadata"]["name"], desired, min(available, desired))


def is_complete(new: Content, replicas: int) -> bool:
    status = new.get("status") or {}
    return bool(
        new["spec"]["replicas"] == replicas and status.get("availableReplicas", 0) == replicas
        and annotations_of(new).get(DESIRED) == str(replicas)
    )  # fmt: skip


def key_of(content: Content) -> str:
    return f"{content['metadata']['namespace']}/{content['metadata']['name']}"


def status_of(
    deployment: Content, new: Content | None, old: list[Content], api: ObjectAPI
) -> tuple[Content, float | None]:
    """The current status, and the seconds until the progress deadline."""
    sets = [*old, new] if new is not None else old
    spec, known = deployment["spec"], deployment.get("status") or {}
    replicas, available = _sum(sets, "replicas"), _sum(sets, "availableReplicas")
    desired = sum(each["spec"]["replicas"] for each in sets)
    numbers = counts(
        replicas=replicas,
        updatedReplicas=_sum([new] if new is not None else [], "replicas"),
        readyReplicas=_sum(sets, "readyReplicas"),
        availableReplicas=available,
        unavailableReplicas=max(desired - available, 0),
        collisionCount=known.get("collisionCount", 0),
    )
    current: dict[str, Any] = {**numbers, "observedGeneration": deployment["metadata"]["generation"]}
    conditions = _availability(known.get("conditions"), spec, available, api)
    conditions, again = _progress(conditions, deployment, current, new, api)
    conditions = _failure(conditions, sets, api)
    return {**current, "conditions": conditions}, again


def _availability(
    conditions: list[Content] | None, spec: Content, available: int, api: ObjectAPI
) -> list[Content]:
    if available >= bounds(spec["replicas"], spec["strategy"]).min_available:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
        return _with(conditions, "Available", "True", reason, message, api)
    reason = "MinimumReplicasUnavailable"
    message = "Deployment does not have minimum availability."
    return _with(conditions, "Available", "False", reason, message, api)


def _progress(
    conditions: list[Content], deployment: Content, current: Content, new: Content | None, api: ObjectAPI
) -> tuple[list[Content], float | None]:
    spec, known = deployment["spec"], deployment.get("status") or {}
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is None or deadline == 2**31 - 1:
        return conditions, None
    last = find_condition(deployment, "Progressing")
    if spec.get("paused"):
        message = "Deployment is paused"
        return _with(conditions, "Progressing", "Unknown", "DeploymentPaused", message, api), None
    if last is not None and last["reason"] == "DeploymentPaused":
        message = "Deployment is resumed"
        last = None
        conditions = _with(conditions, "Progressing", "Unknown", "DeploymentResumed", message, api)
    about = (
        f'ReplicaSet "{new["metadata"]["name"]}"'
        if new is not None
        else f'Deployment "{deployment["metadata"]["name"]}"'
    )
    if _is_complete(spec, current):
        if last is not None and last["reason"] == "NewReplicaSetAvailable":
            return conditions, None
        message = f"{about} has successfully progressed."
        return _with(conditions, "Progressing", "True", "NewReplicaSetAvailable", message, api), None
    if last is None or _has_moved(known, current) or last["reason"] == "NewReplicaSetAvailable":
        fresh = last is None and not known.get("replicas")
        reason = "NewReplicaSetCreated" if fresh and new is not None else "ReplicaSetUpdated"
        message = f'Created new replica set "{new["metadata"]["name"]}"' if fresh and new is not None else ""
        message = message or f"{about} is progressing."
        return _with(conditions, "Progressing", "True", reason, message, api), float(deadline)
    if last["reason"] == "ProgressDeadlineExceeded":
        return conditions, None
    left = seconds_or_1970(last["lastUpdateTime"]) + deadline - api.time()
    if left > 0:
        return conditions, left
    message = f"{about} has timed out progressing."
    return _with(conditions, "Progressing", "False", "ProgressDeadlineExceeded", message, api), None


def _failure(conditions: list[Content], sets: list[Content], api: ObjectAPI) -> list[Content]:
    """Copies the condition ReplicaFailure from a ReplicaSet."""
    found = next((cause for each in sets if (cause := find_condition(each, "ReplicaFailure"))), None)
    if found is None:
        return [each for each in conditions if each["type"] != "ReplicaFailure"]
    return _with(conditions, "ReplicaFailure", found["status"], found["reason"], found["message"], api)


def _with(
    conditions: list[Content] | None, kind: str, status: str, reason: str, message: str, api: ObjectAPI
) -> list[Content]:
    now = api.now()
    result = with_condition(conditions, kind, status, reason, message, now, lastUpdateTime=now)
    if kind == "Progressing" and status == "True" and reason == "ReplicaSetUpdated":
        # Each step of a rollout is progress and restarts the deadline, though reason and message are the
        # same.
        return [{**each, "lastUpdateTime": now} if each["type"] == kind else each for each in result]
    return result


def _is_complete(spec: Content, current: Content) -> bool:
    replicas = spec["replicas"]
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(current.get(field, 0) == replicas for field in fields)


def _has_moved(known: Content, current: Content) -> bool:
    def old_replicas(each: Content) -> int:
        return int(each.get("replicas", 0)) - int(each.get("updatedReplicas", 0))

    more = any(
        current.get(field, 0) > known.get(field, 0)
        for field in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return more or old_replicas(current) < old_replicas(known)


def _sum(sets: list[Content], field: str) -> int:
    return sum((each.get("status") or {}).get(field, 0) for each in sets)
