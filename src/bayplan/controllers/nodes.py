"""The taints of nodes that are not healthy, and how long pods may stay there.

Conditions and `kubectl cordon` become taints: NoSchedule keeps new pods away; a node that is not ready also
gets NoExecute, which evicts pods that do not tolerate it.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.node import Taint
from bayplan.api.pod import Toleration, tolerates
from bayplan.controllers.pods import find_condition

GRACE_SECONDS: Final = 50.0
"""node-monitor-grace-period: how long a node may be without a heartbeat."""
_PREFIX: Final = "node.kubernetes.io/"
NOT_READY: Final = f"{_PREFIX}not-ready"
UNREACHABLE: Final = f"{_PREFIX}unreachable"
UNSCHEDULABLE: Final = f"{_PREFIX}unschedulable"
_BY_CONDITION: Final = (
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", f"{_PREFIX}memory-pressure"),
    ("DiskPressure", "True", f"{_PREFIX}disk-pressure"),
    ("PIDPressure", "True", f"{_PREFIX}pid-pressure"),
    ("NetworkUnavailable", "True", f"{_PREFIX}network-unavailable"),
)
_EVICTING: Final = (NOT_READY, UNREACHABLE)
_OWN_KEYS: Final = frozenset({UNSCHEDULABLE, *(key for _, _, key in _BY_CONDITION)})
"""Keys of taints that this controller alone sets and removes."""


def wanted_taints(node: Content, now: str) -> list[Content]:
    """The taints that a node should have. Others' taints stay, and ours keep their timeAdded."""
    # nodelifecycle: doNoScheduleTaintingPass, processTaintBaseEviction
    known = node["spec"].get("taints") or []
    wanted: list[tuple[str, str]] = []
    for kind, status, key in _BY_CONDITION:
        condition = find_condition(node, kind)
        if condition is not None and condition["status"] == status:
            wanted.append((key, "NoSchedule"))
            if key in _EVICTING:
                wanted.append((key, "NoExecute"))
    if node["spec"].get("unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    kept = [each for each in known if each["key"] not in _OWN_KEYS or (each["key"], each["effect"]) in wanted]
    there = {(each["key"], each["effect"]) for each in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": now}
        for key, effect in wanted
        if (key, effect) not in there
    ]
    return kept + added


def tolerated_seconds(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """How long a pod may stay on a node with these NoExecute taints: None forever, 0 not at all."""
    # tainteviction/taint_eviction.go: getMinTolerationTime
    used: list[Toleration] = []
    for taint in taints:
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        used += matching
    limits = [max(each.toleration_seconds, 0) for each in used if each.toleration_seconds is not None]
    return float(min(limits)) if limits else None
