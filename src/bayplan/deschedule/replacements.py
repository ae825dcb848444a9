"""The replacement of a pod: its owner, its template, and the node that the scheduler chooses for it."""

from __future__ import annotations

from typing import Final

import msgspec

from bayplan.answers.whatif import Cluster
from bayplan.answers.whatif.outcomes import Outcome
from bayplan.api.meta import Object
from bayplan.api.pod import Pod

OPT_OUT: Final = "bayplan.dev/deschedule"
"""A label or annotation of a namespace or pod; "false": its pods are never moved."""


def place_replacement(trial: Cluster, pod: Pod, *, nominated: str = "") -> tuple[str, str]:
    """Evicts a pod on a branch: the node that the scheduler gives its replacement, or why it has none.

    Args:
        nominated: the node that the replacement is nominated to.
    """
    replacement = trial.evict(pod.key)
    if replacement is None:
        return "", "no controller creates it again"
    if nominated:
        status = msgspec.structs.replace(replacement.status, nominated_node_name=nominated)
        trial.put(msgspec.structs.replace(replacement, status=status))
        replacement = trial.pod(replacement.key)
    placed = trial.schedule([replacement])
    if placed.failures:
        return "", f"scheduling its replacement failed: {placed.failures[0]}"
    if placed.evicted:
        return "", f"its replacement would preempt {placed.evicted[0]}"
    (one, *_) = placed.pods
    if one.outcome is not Outcome.SCHEDULED:
        return "", f"its replacement fits no node: {one.reason}"
    return one.node, ""


def opted_out(item: Object) -> bool:
    """Whether a label or an annotation excludes a pod, or the pods of a namespace."""
    return "false" in (item.annotations.get(OPT_OUT), item.labels.get(OPT_OUT))


def owner_of(pod: Pod) -> str:
    """Namespace, kind and name of the controller; pods of a Deployment keep theirs over rollouts."""
    owner = pod.metadata.controller()
    return pod.key if owner is None else f"{owner.kind} {pod.namespace}/{owner.name}"


def template_of(pod: Pod) -> int:
    """A number that changes with the pod template."""
    spec = msgspec.structs.replace(pod.spec, node_name="", volumes=())
    return hash(msgspec.msgpack.encode(spec))
