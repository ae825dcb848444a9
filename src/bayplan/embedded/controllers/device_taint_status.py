"""The condition of a DeviceTaintRule: how far the eviction of pods is, or which pods it would evict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bayplan.embedded.server.documents import Content

IN_PROGRESS: Final = "EvictionInProgress"
PERIOD_SECONDS: Final = 10.0
"""The shortest time between two updates of a rule's status, unless its spec has changed."""


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """What a rule concerns."""

    pods: int = 0
    """Pods that it evicts, or would evict if its effect was NoExecute."""
    namespaces: int = 0
    """The namespaces of these pods."""
    evicted: int = 0
    """Pods that were evicted since the controller started."""
    published: int = 0
    allocated: int = 0


def eviction_condition(effect: str, counts: RuleCounts, generation: int, now: str) -> Content:
    """The condition of a rule with this effect, as kube-controller-manager v1.37 words it."""
    status, reason, message = "False", "OtherEffect", "Eviction only happens for the NoExecute effect."
    if effect == "None":
        reason, message = "NoEffect", _preview(counts)
    elif effect == "NoExecute" and counts.pods:
        status, reason = "True", "PodsPendingEviction"
        needs = "1 pod needs" if counts.pods == 1 else f"{counts.pods} pods need"
        message = f"{needs} to be evicted in {_namespaces(counts)}."
    elif effect == "NoExecute":
        reason, message = ("Completed" if counts.evicted else "NotStarted"), ""
    if counts.evicted:
        done = f"{_number(counts.evicted, 'pod')} evicted since starting the controller."
        message = f"{message} {done}".lstrip()
    return {
        "type": IN_PROGRESS,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _preview(counts: RuleCounts) -> str:
    return (
        f"{_number(counts.published, 'published device')} selected. "
        f"{_number(counts.allocated, 'allocated device')} selected. "
        f"{_number(counts.pods, 'pod')} would be evicted in {_namespaces(counts)} "
        "if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )


def _namespaces(counts: RuleCounts) -> str:
    return "1 namespace" if counts.namespaces == 1 else f"{counts.namespaces} different namespaces"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
