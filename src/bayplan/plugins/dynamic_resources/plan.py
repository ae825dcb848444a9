"""What Reserve decides to write for the claims of a pod: allocations, new claims, and who they are for.

Members of a group that are scheduled in one cycle share a claim that one of them is about to get: the others
take that allocation, and the nodes that can use it, instead of waiting until it is written.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from bayplan.plugin import Cluster, CycleState, NodeColumns
from bayplan.plugin.devices import (
    AllocationResult,
    ClaimPlan,
    PlannedClaim,
    ResourceClaim,
    ResourceClaimConsumerReference,
    in_flight,
    new_share_id,
)
from bayplan.plugin.groups import GROUP_CYCLE, GroupCycleState
from bayplan.plugin.objects import Objects
from bayplan.plugins.dynamic_resources.claims import PodClaims, allocated_claim
from bayplan.plugins.dynamic_resources.extended import claim_with
from bayplan.plugins.dynamic_resources.results import NodeResult


def shared_claim(state: CycleState, objects: Objects, claim: ResourceClaim) -> ResourceClaim | None:
    """The claim as a member of the same group, placed before, is about to get it."""
    cycle: GroupCycleState | None = state.get(GROUP_CYCLE)
    if cycle is None or claim.uid not in cycle.pending_claims:
        return None
    return in_flight(objects, claim.uid)


def are_shared_at(claims: PodClaims, cluster: Cluster, node_name: str) -> bool:
    """Whether the claims that the pod shares with others of its group are still about to be allocated,
    and for this node."""
    nodes = NodeColumns(cluster, np.array([cluster.nodes.row_of[node_name]], dtype=np.intp))
    for uid in claims.shared:
        pending = in_flight(cluster.objects, uid)
        if pending is None or allocated_claim(0, pending, 0.0, None).unavailable(nodes).any():
            return False
    return True


def make_plan(
    claims: PodClaims,
    cluster: Cluster,
    result: NodeResult | None,
    of_group: Mapping[str, ResourceClaimConsumerReference],
) -> ClaimPlan:
    found = iter(() if result is None else result.allocations)
    planned: list[PlannedClaim] = []
    for claim in claims.claims:
        consumer = of_group.get(claim.name)
        if claim.status.allocation is not None:
            planned.append(PlannedClaim(claim.uid, claim, consumer=consumer))
        elif claim.uid in claims.shared:
            pending = in_flight(cluster.objects, claim.uid)
            assert pending is not None
            planned.append(PlannedClaim(claim.uid, claim, pending.status.allocation, consumer=consumer))
        elif not claims.is_extended(claim):
            allocation = _with_share_ids(next(found))
            planned.append(PlannedClaim(claim.uid, claim, allocation, consumer=consumer))
        elif result is not None and result.variant is not None and result.variant.requests:
            # On a node whose device plugin serves everything there is no claim to create.
            new = claim_with(claim, result.variant.requests)
            planned.append(PlannedClaim(claim.uid, new, _with_share_ids(next(found)), is_new=True))
    mappings = () if result is None or result.variant is None else result.variant.mappings
    return ClaimPlan(planned, mappings)


def _with_share_ids(allocation: AllocationResult) -> AllocationResult:
    """Results are shared by identical pods, but every share of a device has an id of its own."""
    results = allocation.devices.results
    if all(result.share_id is None for result in results):
        return allocation
    renamed = tuple(
        result if result.share_id is None else replace(result, share_id=new_share_id()) for result in results
    )
    return replace(allocation, devices=replace(allocation.devices, results=renamed))
