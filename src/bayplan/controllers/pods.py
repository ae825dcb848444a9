"""Pods as controllers see them: their state, the order in which they are deleted, and pods from templates.

`deletion_order` is that of a ReplicaSet with too many pods: first those that are not assigned or not ready,
then those on nodes with other pods of the set, then the youngest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from bayplan.api.meta import Condition, Content, LabelSelector, OwnerReference
from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector, compile_selector

TEMPLATE_HASH: Final = "pod-template-hash"
REVISION_HASH: Final = "controller-revision-hash"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PER_NODE: Final = frozenset(("DaemonSet", "Node"))
"""Kinds of owners that have one pod on each node: DaemonSets, and kubelets with static pods."""
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, and no similar-looking ones."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def is_active(pod: Pod) -> bool:
    """Whether a pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def condition(pod: Pod, kind: str) -> Condition | None:
    return next((known for known in pod.status.conditions if known.type == kind), None)


def is_ready(pod: Pod) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.status == "True"


def ready_since(pod: Pod) -> datetime | None:
    ready = condition(pod, "Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else None


def available_in(pod: Pod, min_ready_seconds: int, now: float) -> float | None:
    """Seconds until a pod counts as available: 0 for now, None if it is not ready."""
    since = ready_since(pod)
    if since is None:
        return 0.0 if is_ready(pod) and not min_ready_seconds else None
    return max(since.timestamp() + min_ready_seconds - now, 0.0) if min_ready_seconds else 0.0


def controller_of(pod: Pod | None) -> OwnerReference | None:
    return None if pod is None else pod.metadata.controller()


def belongs_to_node(pod: Pod) -> bool:
    """Whether the pod is of a DaemonSet or static: a drain leaves it, and it never moves to another node."""
    owner = pod.metadata.controller()
    return owner is not None and owner.kind in _PER_NODE


def is_recreated(pod: Pod) -> bool:
    """Whether a controller creates the pod again, perhaps on another node, if it is deleted."""
    return pod.metadata.controller() is not None and not belongs_to_node(pod)


def pod_from(
    template: Content, owner: Content, *, name: str = "", labels: Mapping[str, str] | None = None
) -> Content:
    """A pod from a template, owned by `owner`; without a name it gets `generateName` from its owner's."""
    described = template.get("metadata") or {}
    meta: Content = {"ownerReferences": [owner_reference(owner)]}
    if name:
        meta["name"] = name
    else:
        meta["generateName"] = f"{owner['metadata']['name']}-"
    for field in ("labels", "annotations"):
        if described.get(field):
            meta[field] = dict(described[field])
    if labels:
        meta["labels"] = {**meta.get("labels", {}), **labels}
    if described.get("finalizers"):
        meta["finalizers"] = list(described["finalizers"])
    # Parts of a spec are never modified in place: controllers modify copies.
    return {"metadata": meta, "spec": dict(template.get("spec") or {})}


def owner_reference(owner: Content) -> Content:
    """How an object names the one that manages it."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_reference(content: Content) -> Content | None:
    """The owner that manages an object, if one does."""
    references = content["metadata"].get("ownerReferences") or ()
    return next((owner for owner in references if owner.get("controller")), None)


def is_controlled_by(content: Content, owner: Content) -> bool:
    reference = controller_reference(content)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def selector_of(content: Content) -> Selector:
    """The selector of a workload's pods. A ReplicationController has a plain map of labels."""
    written = (content.get("spec") or {}).get("selector")
    if written is not None and content["kind"] == "ReplicationController":
        written = {"matchLabels": written}
    return compiled(written)


def compiled(selector: Content | None) -> Selector:
    return compile_selector(
        None if selector is None else msgspec.convert(selector, LabelSelector, strict=False)
    )


def hash_of(content: Any, collisions: int = 0) -> str:
    """A short hash of a content, in the letters of generated names.

    Kubernetes hashes Go's print of its structs, which cannot be reproduced; only the form is the same.
    """
    digest = hashlib.sha256(_encode(content) + (str(collisions).encode() if collisions else b"")).digest()
    number = str(int.from_bytes(digest[:4], "big"))
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in number)


def rounded(amount: int | str | None, total: int, *, up: bool) -> int:
    """An absolute number, or a percentage of `total` such as "25%"."""
    if amount is None:
        return 0
    if isinstance(amount, int):
        return amount
    if not amount.endswith("%"):
        return int(amount)
    share = int(amount[:-1]) * total
    return -(-share // 100) if up else share // 100


def deletion_order(pods: list[Pod]) -> list[Pod]:
    """Pods in the order in which their controller deletes them."""
    # controller_utils.go: ActivePodsWithRanks
    neighbours = Counter(pod.spec.node_name for pod in pods)

    def usefulness(pod: Pod) -> tuple[Any, ...]:
        since = ready_since(pod)
        created = pod.metadata.creation_timestamp
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 2),
            is_ready(pod),
            _deletion_cost(pod),
            -neighbours[pod.spec.node_name],
            -since.timestamp() if since is not None else 0.0,
            -created.timestamp() if created is not None else 0.0,
            pod.key,
        )

    return sorted(pods, key=usefulness)


def _deletion_cost(pod: Pod) -> int:
    text = pod.annotations.get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0  # as upstream: an invalid value counts as the default


def find_condition(content: Content, kind: str) -> Content | None:
    conditions = (content.get("status") or {}).get("conditions") or ()
    return next((known for known in conditions if known.get("type") == kind), None)


def has_condition(content: Content, kind: str) -> bool:
    """Whether the condition is there and true."""
    known = find_condition(content, kind)
    return known is not None and known.get("status") == "True"
