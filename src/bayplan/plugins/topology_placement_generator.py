"""TopologyPlacementGenerator: a group with a topology constraint is placed in one domain.

A PodGroup may name a node label whose value all its members must share, such as the rack. Each value is one
placement to try. If members run already, only theirs is left. The domains of a group in a composite group are
parts of the domain of that group.

https://kubernetes.io/docs/concepts/workloads/workload-api/topology-aware-scheduling/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bayplan.plugin import Handle, IdColumn, Plugin, Pod, Status, failure, unschedulable
from bayplan.plugin.groups import Group, NodePlacement, PlacementGeneratePlugin

NO_PLACEMENT: Final = "no feasible placements found"
NO_DOMAIN: Final = "cannot determine domain for already scheduled pods: "


class TopologyPlacementGenerator(Plugin, PlacementGeneratePlugin):
    """Divides the nodes by the label that the group names."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._domains: dict[str, dict[str, IdColumn]] = {}
        """By label and value: the rows that have it."""
        changes = handle.cluster.changes
        self._freshness = changes.freshness((changes.topology, changes.order, changes.size))

    def generate_placements(
        self, group: Group, scheduled: Sequence[Pod], within: NodePlacement
    ) -> Sequence[NodePlacement] | Status:
        key = group.topology_key
        if not key:
            return (within,)
        domains = self._rows(key)
        if scheduled:
            wanted = self._domain_of(scheduled, key)
            if isinstance(wanted, Status):
                return wanted
            domains = {wanted: domains[wanted]} if wanted in domains else {}
        if within.rows is not None:
            inside = {value: rows[np.isin(rows, within.rows)] for value, rows in domains.items()}
            domains = {value: rows for value, rows in inside.items() if len(rows)}
        return [NodePlacement(*domain) for domain in domains.items()] or unschedulable(NO_PLACEMENT)

    def _rows(self, key: str) -> dict[str, IdColumn]:
        """The rows by the value of a label, in the order of the node list."""
        if not self._freshness.is_current:
            self._domains = {}
            self._freshness.mark_current()
        found = self._domains.get(key)
        if found is None:
            cluster, rows = self.handle.cluster, dict[str, list[int]]()
            for row in cluster.order.tolist():
                node = cluster.nodes.node[row]
                value = None if node is None else node.labels.get(key)
                if value is not None:
                    rows.setdefault(value, []).append(row)
            found = self._domains[key] = {
                value: np.array(here, dtype=np.intp) for value, here in rows.items()
            }
        return found

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
