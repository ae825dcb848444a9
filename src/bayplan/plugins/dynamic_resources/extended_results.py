"""The devices that a pod with extended resources would get on each node.

What its claim asks for depends on the node: on those with a device plugin for a resource, devices do not
serve it. Nodes where it asks for the same share the results of `node_results.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from bayplan.plugin import BoolColumn, Cluster, IntColumn, NodeColumns, Pod, Reject, derived, unresolvable
from bayplan.plugin.devices import DeviceClass, ExtendedResources, ResourceClaim
from bayplan.plugins.dynamic_resources.extended import (
    ExtendedDemand,
    Variant,
    claim_with,
    needed_resources,
    variant,
)
from bayplan.plugins.dynamic_resources.node_results import NodeResult, NodeResults, ResultsByContent

REASON_NO_RESOURCE: Final = "cannot fit resource"


class VariantRows:
    """The variants of the claim for extended resources, for pods of one signature."""

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._cluster = cluster
        self._freshness = changes.freshness((changes.size, changes.nodes, changes.kind(DeviceClass)))
        self.variants: list[tuple[Variant, BoolColumn]] = []
        """Each with its rows."""
        self.never: BoolColumn | None = None
        """The rows that cannot serve a resource in any way."""

    def update(self, pod: Pod, demand: ExtendedDemand) -> None:
        if self._freshness.is_current:
            return
        classes, self.variants, self.never = derived(self._cluster, ExtendedResources), [], None
        for needed, rows in needed_resources(NodeColumns(self._cluster), demand.amounts):
            if needed is None:
                self.never = rows
            else:
                self.variants.append((variant(classes, pod, needed), rows))
        self._freshness.mark_current()


class _Part(NamedTuple):
    """Rows with one variant."""

    variant: Variant
    rows: BoolColumn
    results: NodeResults


class ExtendedNodeResults:
    """`NodeResults` for a pod with extended resources."""

    def __init__(
        self,
        cluster: Cluster,
        claims: tuple[ResourceClaim, ...],
        rows: VariantRows,
        by_content: ResultsByContent,
        *,
        has_user_claims: bool,
    ) -> None:
        self._cluster = cluster
        self._never = rows.never
        self._parts = [
            _Part(one, by_row, by_content.of((*claims[:-1], claim_with(claims[-1], one.requests))))
            for one, by_row in rows.variants
            # Where a device plugin serves all that the pod requests, nothing is needed.
            if one.resources or has_user_claims
        ]

    def rejects(self, nodes: NodeColumns) -> Iterator[tuple[BoolColumn, Reject]]:
        if self._never is not None:
            mask: BoolColumn = nodes.gather(self._never)
            yield mask, Reject(mask, unresolvable(REASON_NO_RESOURCE))
        for part in self._parts:
            at, some = self._of(nodes, part)
            for found, reject in part.results.rejects(some):
                mask = found
                if some is not nodes:
                    mask = np.zeros(len(nodes), dtype=np.bool_)
                    mask[at] = found
                yield mask, replace(reject, mask=mask)

    def scores(self, nodes: NodeColumns, added: int) -> IntColumn:
        scores = np.zeros(len(nodes), dtype=np.int64)
        for part in self._parts:
            at, some = self._of(nodes, part)
            scores[at] = part.results.scores(some, added)
        return scores

    @property
    def has_equal_scores(self) -> bool:
        if len(self._parts) != 1 or not self._parts[0].rows.all():
            return False
        return self._parts[0].results.has_equal_scores

    def at(self, row: int) -> NodeResult | None:
        for part in self._parts:
            if part.rows[row]:
                found = part.results.at(row)
                return None if found is None else NodeResult(found.allocations, part.variant)
        return None

    def _of(self, nodes: NodeColumns, part: _Part) -> tuple[BoolColumn, NodeColumns]:
        """Which of these nodes belong to the part, and a view of them."""
        at: BoolColumn = nodes.gather(part.rows)
        return at, nodes if at.all() else NodeColumns(self._cluster, nodes.rows[at])
