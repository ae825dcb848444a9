"""A custom placement rule, written twice: for one node at a time, and for all nodes at once.

Pods prefer the zone that their `preferred-zone` annotation names, and GPU pods are scheduled only to nodes
with GPUs. Both classes decide the same; the second stays fast with thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayplan.plugin import (
    CycleState,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    Status,
    unresolvable,
)

ZONE = "topology.kubernetes.io/zone"


class PreferZone(NodePlugin):
    """One node at a time."""

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status | None:
        if pod.labels.get("workload") == "gpu" and node.labels.get("hardware") != "gpu":
            return unresolvable("node has no GPU")
        return None

    def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        zone = pod.annotations.get("preferred-zone")
        return 100 if zone is not None and node.labels.get(ZONE) == zone else 0


class PreferZoneColumns(Plugin):
    """All nodes at once. Each column has one entry per node."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        if pod.labels.get("workload") == "gpu":
            yield Reject(nodes.label("hardware") != "gpu", unresolvable("node has no GPU"))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        zone = pod.annotations.get("preferred-zone")
        if zone is None:  # A comparison with None would match the nodes without a zone.
            return np.zeros(len(nodes), dtype=np.int64)
        return np.where(nodes.label(ZONE) == zone, 100, 0)
