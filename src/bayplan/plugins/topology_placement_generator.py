"""TopologyPlacementGenerator: a group with a topology constraint is placed in one domain.

A PodGroup may name a node label whose value all its members must share, such as the rack. Each value is one
placement to try. If members run already, only theirs is left.

https://kubernetes.io/docs/concepts/workloads/workload-api/topology-aware-scheduling/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from bayplan.plugin import Plugin, Pod, Status, failure, unschedulable
from bayplan.plugin.groups import Group, NodePlacement, PlacementGeneratePlugin

NO_PLACEMENT: Final = "no feasible placements found"
NO_DOMAIN: Final = "cannot determine domain for already scheduled pods: "


class TopologyPlacementGenerator(Plugin, PlacementGeneratePlugin):
    """Divides the nodes by the label that the group names."""

    def generate_placements(self, group: Group, scheduled: Sequence[Pod]) -> Sequence[NodePlacement] | Status:
        key, cluster = group.topology_key, self.handle.cluster
        if not key:
            return (NodePlacement(),)
        wanted: str | None = None
        if scheduled:
            found = self._domain_of(scheduled, key)
            if isinstance(found, Status):
                return found
            wanted = found
        rows: dict[str, list[int]] = {}
        for row in cluster.order.tolist():
            node = cluster.nodes.node[row]
            value = None if node is None else node.labels.get(key)
            if value is not None and (wanted is None or value == wanted):
                rows.setdefault(value, []).append(row)
        if not rows:
            return unschedulable(NO_PLACEMENT)
        return [NodePlacement(name, np.array(here, dtype=np.intp)) for name, here in rows.items()]

    def _domain_of(self, scheduled: Sequence[Pod], key: str) -> str | Status:
        """The domain of the members that run already."""
        cluster = self.handle.cluster
        domains: dict[str, None] = {}
        for pod in scheduled:
            name = cluster.node_of(pod.uid)
            row = cluster.nodes.row_of.get(name)
            node = None if row is None else cluster.nodes.node[row]
            if node is None:
                text = f'getting node for pod {pod.key}: nodeinfo not found for node name "{name}"'
                return failure(NO_DOMAIN + text)
            value = node.labels.get(key)
            if value is None:
                return failure(f"{NO_DOMAIN}no topology domain found for pod {pod.key}")
            domains[value] = None
        if len(domains) > 1:
            return failure(f"{NO_DOMAIN}more than 1 domain found for pod group: {', '.join(sorted(domains))}")
        return next(iter(domains))
