"""The ReplicaSets of a deployment: which is the new one, and their annotations.

The state of the deployment controller is stored on the ReplicaSets as annotations, so that it survives a
restart and is visible to kubectl.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bayplan.embedded.controllers.rollout import Bounds, Size
from bayplan.embedded.controllers.templates import TEMPLATE_HASH, is_controlled_by
from bayplan.embedded.server.documents import Content

REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


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
    return int(text) if _NUMBER.fullmatch(text) else 0


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
