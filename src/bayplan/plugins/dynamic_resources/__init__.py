"""DynamicResources: devices that pods request with ResourceClaims.

A claim that has devices ties the pod to the nodes that can use them. For a claim without devices the
allocator looks for them on every node (`results.py`). When a node is chosen, Reserve marks the devices
found there as allocated, and PreBind writes them to the claim. Pods whose claims ask for the same share these
results: after one allocation only nodes are searched again whose devices changed. If no node fits, PostFilter
may free claims (`deallocation.py`).

Pods may also request devices as extended resources (`extended.py`).

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar, Final

import numpy as np
from msgspec.structs import replace

from bayplan.plugin import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    BoolColumn,
    Cluster,
    ClusterEventWithHint,
    CycleState,
    FilterOutcome,
    FilterPlugin,
    Handle,
    IntColumn,
    NodeColumns,
    NodesAffectedByPodsPlugin,
    NormalizePlugin,
    Plugin,
    Pod,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Reject,
    ReservePlugin,
    Resource,
    ScorePlugin,
    SelectorError,
    Status,
    event_with_hint,
    failure,
    normalize_default,
    unresolvable,
    unschedulable,
)
from bayplan.plugin._internal import UniformScorePlugin, WaitingKeysPlugin, mark_cut_off
from bayplan.plugin.args import DynamicResourcesArgs
from bayplan.plugin.devices import (
    BindsClaims,
    ClaimBinder,
    DeviceClass,
    ResourceClaim,
    SearchBudget,
    is_device_resource,
    is_in_flight,
    put_in_flight,
    remove_in_flight,
)
from bayplan.plugin.groups import (
    GROUP_CYCLE,
    GroupCycleState,
    GroupOutcome,
    GroupPostFilterResult,
    GroupSteps,
    PodGroupPostFilterPlugin,
)
from bayplan.plugin.objects import Objects, fit_requests
from bayplan.plugins.dynamic_resources.claims import (
    AllocatedClaim,
    LastClaims,
    PodClaims,
    allocated_claim,
    claim_keys,
    resolve_claims,
)
from bayplan.plugins.dynamic_resources.deallocation import REASON_NOT_AVAILABLE, Deallocation
from bayplan.plugins.dynamic_resources.extended import extended_demand
from bayplan.plugins.dynamic_resources.groups import consumers
from bayplan.plugins.dynamic_resources.plan import are_shared_at, make_plan, shared_claim
from bayplan.plugins.dynamic_resources.results import (
    ExtendedNodeResults,
    NodeResult,
    NodeResults,
    ResultsByContent,
    VariantRows,
)

IN_FLIGHT: Final = "resource claim {claim} is in the process of being allocated"
NO_CLASS: Final = "request {request}: device class {name} does not exist"
NO_CLASS_NAME: Final = "request {request}: unsupported request type"
NO_ALTERNATIVES: Final = (
    "resource claim {claim}, request {request}: has subrequests, "
    "but the DRAPrioritizedList feature is disabled"
)
NO_REQUEST_TYPE: Final = "resource claim {claim}, request {request}: unknown request type"

REASON_LEFT_OVER: Final = "cannot schedule extended resource claim"

NOT_FOUND: Final = "not found"
"""Upstream's text if PreFilter has written no state."""
NO_CLAIMS: Final = "no new claims to deallocate"
CLAIM_DELETED: Final = (
    "internal error, couldn't signal allocation for claim {name}: look up assumed claim {claim}, UID={uid}: "
    'could not find ResourceClaim "{claim}"'
)
NO_ALLOCATION: Final = "claim allocation not found for node"
FREED_DEVICES: Final = "devices"
"""The key of events that free devices. No claim has it: their keys have a slash."""

AMOUNTS: Final = ("DynamicResources", "amounts")

NO_BINDER: Final = "binding claims: this scheduler has no API server to write to"


class DynamicResources(
    Plugin,
    PreEnqueuePlugin,
    WaitingKeysPlugin,
    PreFilterPlugin,
    FilterPlugin,
    NodesAffectedByPodsPlugin,
    PostFilterPlugin,
    PodGroupPostFilterPlugin,
    ScorePlugin,
    NormalizePlugin,
    UniformScorePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    """Rejects nodes where the pod's claims have no devices and can get none."""

    pre_enqueue_field: ClassVar = "resource_claims"
    skip_covers_binding: ClassVar = True
    args_type: ClassVar = DynamicResourcesArgs
    pre_binds_in_parallel: ClassVar = True

    args: DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        release = handle.release
        self._rules = release.devices
        self._has_alternatives = "DRAPrioritizedList" in release.gates
        timeout = self.args.binding_timeout
        self._binding_seconds = None if timeout is None else timeout.seconds
        """None if binding does not wait for devices."""
        limit = self.args.filter_timeout
        self._budget = SearchBudget(handle.search_clock, 0.0 if limit is None else limit.seconds)

    # What may help

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        of_claims = Action.ADD | Action.UPDATE
        if self._rules.claim_delete_requeues:
            of_claims |= Action.DELETE
        return [
            event_with_hint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
            ),
            event_with_hint(Resource.RESOURCE_CLAIM, of_claims, self.claim_change_helps, _claim_keys),
            event_with_hint(
                Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self.pod_change_helps
            ),
            event_with_hint(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
            event_with_hint(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
        ]

    def claim_change_helps(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
        """Devices became free, or one of the pod's own claims changed."""
        if new is None:
            return _was_freed(old, new)
        claims = self._last_claims.of(pod)
        if isinstance(claims, Status):
            return False
        if _was_freed(old, new):
            return True
        if all(claim.uid != new.uid for claim in claims):
            return False
        return old is None or old.status != new.status

    def waiting_keys(self, pod: Pod) -> Collection[str]:
        """The pod's claims, as far as their names are known, and devices unless a claim is not there yet."""
        keys = claim_keys(pod)
        if isinstance(self._last_claims.of(pod), Status):
            return keys
        return (*keys, FREED_DEVICES)

    def pod_change_helps(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        """All claims of this very pod have been created."""
        return new.uid == pod.uid and not isinstance(self._last_claims.of(new), Status)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if not pod.spec.resource_claims:
            return None
        claims = self._last_claims.of(pod)
        return claims if isinstance(claims, Status) else None

    @cached_property
    def _last_claims(self) -> LastClaims:
        assert self.handle is not None
        return LastClaims(self.handle.cluster)

    # Filtering

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        cluster = nodes.cluster
        claims = resolve_claims(cluster, pod) if pod.spec.resource_claims else ()
        if isinstance(claims, Status):
            return claims
        amounts = state.memo(AMOUNTS, partial(device_amounts, pod))
        demand = extended_demand(cluster, pod, amounts) if amounts else None
        if demand is not None:
            claims = (*claims, demand.claim)
        elif not claims:
            return SKIP if pod.spec.resource_claims else SKIP_FOR_SIGNATURE
        allocated: list[AllocatedClaim] = []
        shared: set[str] = set()
        for index, claim in enumerate(claims):
            if claim.status.allocation is None:
                pending = shared_claim(state, cluster.objects, claim)
                if pending is None:
                    is_special = demand is not None and claim is demand.claim
                    problem = self._problem(cluster.objects, claim, is_special=is_special)
                    if problem is not None:
                        return problem
                    continue
                shared.add(claim.uid)
                claim = pending
            try:
                allocated.append(allocated_claim(index, claim, self._now(), self._binding_seconds))
            except SelectorError as error:
                return failure(str(error))
        pod_claims = PodClaims(claims, tuple(allocated), demand, None, frozenset(shared))
        if len(allocated) < len(claims):
            to_allocate = tuple(pod_claims.to_allocate()) if allocated else claims
            pod_claims.results = self._results(state, cluster, pod, to_allocate, pod_claims)
        state.write(self.name, pod_claims)
        return None

    def _results(
        self,
        state: CycleState,
        cluster: Cluster,
        pod: Pod,
        to_allocate: tuple[ResourceClaim, ...],
        claims: PodClaims,
    ) -> NodeResults | ExtendedNodeResults | None:
        """The devices for claims without devices, on each node."""
        self._budget.start_attempt()
        demand, shared = claims.demand, state.signature.shared
        by_content = shared.get(ResultsByContent) or shared.put(ResultsByContent(cluster, self._budget))
        if demand is None:
            return by_content.of(to_allocate)
        if demand.is_left_over:
            return None
        rows = state.signature.get(VariantRows) or state.signature.put(VariantRows(cluster))
        rows.update(pod, demand)
        return ExtendedNodeResults(
            cluster, to_allocate, rows, by_content, has_user_claims=claims.has_user_claims
        )

    def _problem(self, objects: Objects, claim: ResourceClaim, *, is_special: bool) -> Status | None:
        """Why a claim without devices cannot get any now."""
        if is_in_flight(objects, claim.uid):
            return unresolvable(IN_FLIGHT.format(claim=claim.key))
        if is_special:
            return None
        classes = objects.of(DeviceClass)
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                wanted = [(request.name, request.exactly.device_class_name)]
            elif request.first_available:
                if not self._has_alternatives:
                    return unresolvable(NO_ALTERNATIVES.format(claim=claim.key, request=request.name))
                wanted = [
                    (f"{request.name}/{one.name}", one.device_class_name) for one in request.first_available
                ]
            else:
                return unresolvable(NO_REQUEST_TYPE.format(claim=claim.key, request=request.name))
            for name, device_class in wanted:
                if not device_class:
                    return failure(NO_CLASS_NAME.format(request=name))
                if classes.get(device_class) is None:
                    return unresolvable(NO_CLASS.format(request=name, name=device_class))
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        claims: PodClaims | None = state.get(self.name)
        if claims is None:
            return  # PreFilter rejected the pod, but preemption calls Filter nevertheless
        if claims.demand is not None and claims.demand.is_left_over:
            yield Reject(True, unresolvable(REASON_LEFT_OVER))
            return
        # Evicting pods frees no devices, so nothing here can be resolved.
        rejected: BoolColumn | None = None
        if claims.results is not None:
            for mask, reject in claims.results.rejects(nodes):
                rejected = mask if rejected is None else rejected | mask
                yield reject
            if self._budget.is_cut_off:
                mark_cut_off(state)
        for _, mask in claims.unavailable_claims(nodes):
            left = mask if rejected is None else mask & ~rejected
            yield Reject(left, unresolvable(REASON_NOT_AVAILABLE))

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
        """None: claims of pods that are evicted are not free before the pods are gone."""
        return np.zeros(len(nodes), dtype=np.bool_)

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        if self.name not in outcome.pre_filtered:
            return PostFilterResult(failure(NOT_FOUND))
        claims: PodClaims | None = state.get(self.name)
        if claims is not None:
            return PostFilterResult(unschedulable(*self._deallocation.for_pod(pod, claims, outcome)))
        is_silent = self._rules.post_filter_without_message
        return PostFilterResult(unschedulable() if is_silent else unschedulable(NO_CLAIMS))

    def pod_group_post_filter(self, outcome: GroupOutcome) -> GroupSteps[GroupPostFilterResult]:
        yield from ()
        has_placements = (
            outcome.group.topology_key and "TopologyAwareWorkloadScheduling" in self.release.gates
        )
        if has_placements or outcome.group.key.is_composite:
            return GroupPostFilterResult(unschedulable())
        if self.name not in outcome.pre_filtered:
            return GroupPostFilterResult(failure(NOT_FOUND))
        return GroupPostFilterResult(unschedulable(self._deallocation.for_group(outcome)))

    # Scoring: alternatives in the order in which the claim names them

    def has_uniform_score(self, state: CycleState, pod: Pod) -> bool:
        claims: PodClaims | None = state.get(self.name)
        if claims is None or claims.results is None or not claims.has_alternatives:
            return True
        return claims.results.has_equal_scores

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        claims: PodClaims | None = state.get(self.name)
        if claims is None or claims.results is None:
            return np.zeros(len(nodes), dtype=np.int64)
        return claims.results.scores(nodes, claims.preference())

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores)

    # Binding

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        claims: PodClaims | None = state.get(self.name)
        if claims is None:
            return None
        assert self.handle is not None
        cluster = self.handle.cluster
        result: NodeResult | None = None
        if claims.results is not None:
            result = claims.results.at(cluster.nodes.row_of[node_name])
            if result is None and any(not claims.is_extended(claim) for claim in claims.to_allocate()):
                return failure(NO_ALLOCATION)
        if not are_shared_at(claims, cluster, node_name):
            return failure(NO_ALLOCATION)
        plan = claims.plan = make_plan(claims, cluster, result, consumers(cluster, pod))
        cycle: GroupCycleState | None = state.get(GROUP_CYCLE)
        for planned in plan.claims:
            if planned.allocation is None:
                continue
            if cycle is not None:
                cycle.pending_claims.add(planned.uid)
            claim = planned.claim
            if is_in_flight(cluster.objects, planned.uid):
                put_in_flight(cluster.objects, planned.uid, claim, pod.uid)
                continue
            if self._rules.reserve_requires_claim and not planned.is_new:
                known = cluster.objects.of(ResourceClaim).get(claim.name, claim.namespace)
                if known is None:
                    return failure(CLAIM_DELETED.format(name=claim.name, claim=claim.key, uid=claim.uid))
                if known.uid == claim.uid and known.status.allocation is not None:
                    continue
            status = replace(claim.status, allocation=planned.allocation)
            put_in_flight(cluster.objects, planned.uid, replace(claim, status=status), pod.uid)
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        claims: PodClaims | None = state.get(self.name)
        if claims is None or claims.plan is None:
            return
        handle = self.handle
        assert handle is not None
        cycle: GroupCycleState | None = state.get(GROUP_CYCLE)
        if self._binder is not None and (cycle is None or not cycle.is_simulated):
            self._binder.release(pod, claims.plan)
            return
        for planned in claims.plan.claims:
            if planned.allocation is None:
                continue
            dropped = remove_in_flight(handle.cluster.objects, planned.uid, pod.uid)
            if dropped is not None and cycle is not None:
                cycle.pending_claims.discard(planned.uid)

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return SKIP if state.get(self.name) is None else None

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        claims: PodClaims | None = state.get(self.name)
        if claims is None or claims.plan is None:
            return None
        if self._binder is None:
            return failure(NO_BINDER)
        return await self._binder.bind(pod, node_name, claims.plan, self._binding_seconds)

    @cached_property
    def _binder(self) -> ClaimBinder | None:
        """Writes claims. Cached, because `isinstance` with a protocol is slow."""
        handle: object = self.handle
        return handle.claims if isinstance(handle, BindsClaims) else None

    @cached_property
    def _deallocation(self) -> Deallocation:
        assert self.handle is not None
        return Deallocation(self.name, self.handle, lambda: self._binder)

    def _now(self) -> float:
        assert self.handle is not None
        return self.handle.now()


def _was_freed(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """Whether a claim lost its devices, or was deleted while it had some."""
    if old is None or old.status.allocation is None:
        return False
    return new is None or new.status.allocation is None


def _claim_keys(old: ResourceClaim | None, new: ResourceClaim | None) -> Collection[str] | None:
    """Devices that became free may help every pod whose claims are there (with their claim deleted: every
    pod), any other change only those that use the claim."""
    if new is None:
        assert old is not None
        return None if _was_freed(old, new) else (old.key,)
    return (new.key, FREED_DEVICES) if _was_freed(old, new) else (new.key,)


def device_amounts(pod: Pod) -> Mapping[str, int]:
    """What the pod requests of resources that DeviceClasses may serve, by name, never 0."""
    return {name: amount for name, amount in fit_requests(pod).items() if amount and is_device_resource(name)}
