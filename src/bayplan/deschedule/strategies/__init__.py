"""The strategies of descheduler v0.36, one class each.

pod_state.py        PodLifeTime, RemoveFailedPods, RemovePodsHavingTooManyRestarts
node_rules.py       RemovePodsViolatingNodeTaints, RemovePodsViolatingNodeAffinity
anti_affinity.py    RemovePodsViolatingInterPodAntiAffinity
duplicates.py       RemoveDuplicates
topology_spread.py  RemovePodsViolatingTopologySpreadConstraint
utilization.py      LowNodeUtilization, HighNodeUtilization
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bayplan.deschedule.plugin import Strategy
from bayplan.deschedule.strategies.anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from bayplan.deschedule.strategies.duplicates import RemoveDuplicates
from bayplan.deschedule.strategies.node_rules import (
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
)
from bayplan.deschedule.strategies.pod_state import (
    PodLifeTime,
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
)
from bayplan.deschedule.strategies.topology_spread import RemovePodsViolatingTopologySpreadConstraint
from bayplan.deschedule.strategies.utilization import HighNodeUtilization, LowNodeUtilization

STRATEGIES: Final[Mapping[str, type[Strategy]]] = {
    one.name: one
    for one in (
        RemoveDuplicates,
        LowNodeUtilization,
        HighNodeUtilization,
        RemovePodsViolatingTopologySpreadConstraint,
        RemovePodsViolatingInterPodAntiAffinity,
        RemovePodsViolatingNodeAffinity,
        RemovePodsViolatingNodeTaints,
        RemovePodsHavingTooManyRestarts,
        PodLifeTime,
        RemoveFailedPods,
    )
}
