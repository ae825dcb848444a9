"""A placement rule of one's own, written twice: for one node at a time, and for all nodes at once.

Pods go to the zone that their `preferred-zone` annotation names, if they can, and GPU pods go only where GPUs
are. Both classes decide the same; the second stays quick with thousands of nodes.
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
    NodeRejection,
    Plugin,
    Pod,
    Reject,
    reject,
)

ZONE = "topology.kubernetes.io/zone"


class PreferZone(NodePlugin):
    """One node at a time."""

    def filter_node(self, pod: Pod, node: NodeInfo) -> NodeRejection | None:
        if pod.labels.get("workload") == "gpu" and node.labels.get("hardware") != "gpu":
            return reject("node has no GPU", unresolvable=True)
        return None

    def score_node(self, pod: Pod, node: NodeInfo) -> int:
        return 100 if node.labels.get(ZONE) == pod.annotations.get("preferred-zone") else 0


class PreferZoneColumns(Plugin):
    """All nodes at once. Each column has an entry for every node that is asked about."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        if pod.labels.get("workload") == "gpu":
            yield Reject(nodes.label("hardware") != "gpu", "node has no GPU", unresolvable=True)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.where(nodes.label(ZONE) == pod.annotations.get("preferred-zone"), 100, 0)
