"""Figures of a cluster after scheduling: what configurations are compared by.

| figure | meaning |
|---|---|
| scheduled, not scheduled | pods of the workload |
| skipped | pods of the workload that no profile is responsible for, or that are being deleted |
| preempted | pods that had to leave their node |
| nodes used | nodes with a pod of the workload |
| utilisation | requested share of what is allocatable, over all nodes |
| imbalance | standard deviation of the nodes' utilisation: 0 if all are equally full |
| fragmentation | share of free resources on nodes where pods like those of the workload do not fit |
| zone skew | over the owners of pods: most minus fewest pods in a zone, on average |
| waiting | seconds until a pod is bound, on average: backoff, groups, and the grace periods of victims |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from bayplan.answers.whatif.outcomes import Outcome, Placements
from bayplan.answers.whatif.volumes import ZONE
from bayplan.api.pod import Pod
from bayplan.simulate.scenarios.fragmentation import RequestMix, fragmentation
from bayplan.state.cluster import Cluster as Columns

RESOURCES: Final = ("cpu", "memory")
SKIPPED: Final = "skipped"
FIGURES: Final = (
    "scheduled",
    "not scheduled",
    SKIPPED,
    "preempted",
    "nodes used",
    *(
        f"{name}: {resource}"
        for name in ("utilisation", "imbalance", "fragmentation")
        for resource in RESOURCES
    ),
    "zone skew",
    "waiting",
)


def measure(columns: Columns, pods: Sequence[Pod], placed: Placements) -> dict[str, float]:
    """The figures after these pods were scheduled."""
    rows = columns.order
    keys = {pod.key for pod in pods}
    # Victims are created again, and are no pods of the workload: they have their own figure.
    outcomes = Counter(one.outcome for one in placed if one.pod in keys)
    skipped = outcomes[Outcome.SKIPPED]
    found: dict[str, float] = {
        "scheduled": outcomes[Outcome.SCHEDULED],
        "not scheduled": len(pods) - outcomes[Outcome.SCHEDULED] - skipped,
        SKIPPED: skipped,
        "preempted": len(placed.evicted),
        "nodes used": len(set(placed.nodes.values())),
        "zone skew": _zone_skew(columns, pods, placed.nodes),
        "waiting": _mean([one.waited_seconds for one in placed.scheduled]),
    }
    free = {}
    for resource in RESOURCES:
        amounts = columns.nodes.resource(resource)
        allocatable = amounts.allocatable.read[rows]
        requested = amounts.requested.read[rows]
        free[resource] = allocatable - requested
        total = int(allocatable.sum())
        found[f"utilisation: {resource}"] = int(requested.sum()) / total if total else 0.0
        has_some = allocatable > 0
        shares = requested[has_some] / allocatable[has_some]
        found[f"imbalance: {resource}"] = float(np.std(shares)) if len(shares) else 0.0
    mix = RequestMix()
    for pod in pods:
        mix.arrived[mix.of(pod)] += 1
    nodes = columns.nodes
    free_pods = nodes.allowed_pods.read[rows] - nodes.pod_count.read[rows]
    for resource, share in fragmentation(free, free_pods, mix.most_frequent()).items():
        found[f"fragmentation: {resource}"] = share
    return {name: found[name] for name in FIGURES}


def _zone_skew(columns: Columns, pods: Sequence[Pod], nodes: dict[str, str]) -> float:
    zone_of = {
        node.name: node.labels[ZONE]
        for node in columns.nodes.node
        if node is not None and ZONE in node.labels
    }
    zones = set(zone_of.values())
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for pod in pods:
        owner, node = pod.metadata.controller(), nodes.get(pod.key, "")
        if owner is not None and node in zone_of:
            groups[pod.namespace, owner.name][zone_of[node]] += 1
    skews = [max(counts.values()) - min(counts[zone] for zone in zones) for counts in groups.values()]
    return _mean([float(skew) for skew in skews])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
