"""Which ResourceClaims a pod has, and what is known of them in one scheduling attempt.

A pod names a claim, or a template from which a controller creates a claim for it. The name of such a claim is
in the pod's status.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.plugin import BoolColumn, Cluster, NodeColumns, Pod, Status, unresolvable
from bayplan.plugin.devices import (
    ClaimPlan,
    Readiness,
    ResourceClaim,
    is_overdue,
    readiness,
)
from bayplan.plugin.objects import CompiledTerm, compile_terms_strict, rows_matching_terms
from bayplan.plugins.dynamic_resources.extended import ExtendedDemand
from bayplan.plugins.dynamic_resources.groups import GATE
from bayplan.plugins.dynamic_resources.results import (
    ExtendedNodeResults,
    NodeResults,
    has_alternatives,
    preference,
)

NOT_CREATED: Final = 'pod "{pod}": ResourceClaim not created yet'
NO_SOURCE: Final = 'pod "{pod}", spec.resourceClaim "{name}": none of the supported fields are set'
NOT_FOUND: Final = 'could not find ResourceClaim "{claim}"'
BEING_DELETED: Final = 'resourceclaim "{name}" is being deleted'
NOT_OWNER: Final = "ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"
NO_OWNER: Final = (
    "ResourceClaim {claim} was not created for Pod {pod} (neither Pod nor PodGroup {group} is the owner)"
)


def resolve_claims(cluster: Cluster, pod: Pod) -> tuple[ResourceClaim, ...] | Status:
    """The pod's claims, in the order in which it names them, or why they are not all there."""
    objects = cluster.objects
    claims, owner_uid, namespace = objects.of(ResourceClaim), pod.metadata.uid, pod.metadata.namespace
    found: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        from_template = name is None
        if name is None:
            if entry.resource_claim_template_name is None:
                return unresolvable(NO_SOURCE.format(pod=pod.key, name=entry.name))
            for status in pod.status.resource_claim_statuses:
                if status.name == entry.name:
                    name = status.resource_claim_name
                    break
            else:
                return unresolvable(NOT_CREATED.format(pod=pod.key))
            if name is None:
                continue
        claim = claims.get(name, namespace)
        if claim is None:
            return unresolvable(NOT_FOUND.format(claim=f"{namespace}/{name}"))
        if claim.metadata.deletion_timestamp is not None:
            return unresolvable(BEING_DELETED.format(name=name))
        if from_template:
            owner = claim.metadata.controller()
            if owner is None or owner.uid != owner_uid:
                named = pod.spec.scheduling_group if GATE in cluster.release.gates else None
                if named is None:
                    return unresolvable(NOT_OWNER.format(claim=claim.key, pod=pod.key))
                if not claim.is_owned_by_group_of(pod):
                    names = {"claim": claim.key, "pod": pod.key, "group": named.pod_group_name}
                    return unresolvable(NO_OWNER.format(**names))
        found.append(claim)
    return tuple(found)


class LastClaims:
    """The claims of the last pod, until a claim changes: the queue needs them several times at an event."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._freshness = cluster.changes.freshness((cluster.changes.kind(ResourceClaim),))
        self._pod: Pod | None = None
        self._claims: tuple[ResourceClaim, ...] | Status = ()

    def of(self, pod: Pod) -> tuple[ResourceClaim, ...] | Status:
        if pod is not self._pod or not self._freshness.is_current:
            self._pod, self._claims = pod, resolve_claims(self._cluster, pod)
            self._freshness.mark_current()
        return self._claims


def claim_keys(pod: Pod) -> list[str]:
    """`namespace/name` of the pod's claims, as far as they have been created or are named in its spec."""
    created = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (entry.resource_claim_name or created.get(entry.name) for entry in pod.spec.resource_claims)
    return [f"{pod.namespace}/{name}" for name in names if name]


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
    shared: frozenset[str] = frozenset()
    """The uids of claims that a member of the same group is about to get: they are among `allocated`."""
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
        shared = self.shared
        return (claim for claim in self.claims if claim.status.allocation is None and claim.uid not in shared)

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
