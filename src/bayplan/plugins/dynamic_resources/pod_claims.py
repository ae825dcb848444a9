"""The claims of a pod in one scheduling attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bayplan.plugin import BoolColumn, NodeColumns
from bayplan.plugin.devices import (
    ClaimPlan,
    Readiness,
    ResourceClaim,
    is_overdue,
    readiness,
)
from bayplan.plugin.objects import CompiledTerm, compile_terms_strict, rows_matching_terms
from bayplan.plugins.dynamic_resources.extended import ExtendedDemand
from bayplan.plugins.dynamic_resources.extended_results import ExtendedNodeResults
from bayplan.plugins.dynamic_resources.node_results import NodeResults
from bayplan.plugins.dynamic_resources.preferences import has_alternatives, preference


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim that already has devices."""

    index: int
    claim: ResourceClaim
    terms: tuple[CompiledTerm, ...] | None
    """Which nodes can use the devices; None: all can."""
    is_lost: bool
    """Whether its devices failed to become ready, or took too long."""

    def unavailable(self, nodes: NodeColumns) -> BoolColumn:
        """The rows on which the pod cannot use it."""
        if self.is_lost:
            return np.ones(len(nodes), dtype=np.bool_)
        if self.terms is None:
            return np.zeros(len(nodes), dtype=np.bool_)
        return ~rows_matching_terms(nodes, self.terms)


@dataclass(slots=True)
class PodClaims:
    """The claims of a pod, and what is needed for those that are not allocated yet."""

    claims: tuple[ResourceClaim, ...]
    """In order; the one for extended resources is the last."""
    allocated: tuple[AllocatedClaim, ...]
    demand: ExtendedDemand | None
    """The pod's extended resources that DeviceClasses serve."""
    results: NodeResults | ExtendedNodeResults | None
    """The search for devices; None where all claims are allocated."""
    plan: ClaimPlan | None = None
    """Created by Reserve."""

    @property
    def has_user_claims(self) -> bool:
        return len(self.claims) > (self.demand is not None)

    def is_extended(self, claim: ResourceClaim) -> bool:
        return self.demand is not None and claim is self.demand.claim

    def unavailable_claims(self, nodes: NodeColumns) -> Iterator[tuple[AllocatedClaim, BoolColumn]]:
        """Claims that the pod cannot use on some rows."""
        for allocated in self.allocated:
            mask = allocated.unavailable(nodes)
            if mask.any():
                yield allocated, mask

    def to_allocate(self) -> Iterator[ResourceClaim]:
        """The claims that need devices, in order."""
        return (claim for claim in self.claims if claim.status.allocation is None)

    @property
    def has_alternatives(self) -> bool:
        """Whether a request of some claim may be met in several ways, which scoring prefers in order."""
        return any(map(has_alternatives, self.claims))

    def preference(self) -> int:
        """What the allocated claims add to the score of each node."""
        return sum(
            preference(one.claim, one.claim.status.allocation)
            for one in self.allocated
            if one.claim.status.allocation is not None
        )


def allocated_claim(
    index: int, claim: ResourceClaim, now: float, timeout_seconds: float | None
) -> AllocatedClaim:
    """Raises SelectorError if the allocation's node selector is malformed."""
    allocation = claim.status.allocation
    assert allocation is not None
    selector = allocation.node_selector
    terms = None if selector is None else compile_terms_strict(selector.node_selector_terms)
    is_lost = False
    if timeout_seconds is not None:
        state = readiness(claim)
        is_lost = state is Readiness.FAILED or (
            state is Readiness.PENDING and is_overdue(claim, now, timeout_seconds)
        )
    return AllocatedClaim(index, claim, terms, is_lost)
