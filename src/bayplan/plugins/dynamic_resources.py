"""DynamicResources: devices that pods ask for through ResourceClaims.

Not built yet: a pod with claims is refused with a clear reason, every other pod passes. What is here is what
upstream's plugin does to pods without claims, because it shows: it scores them 0, and when nothing fits, its
PostFilter speaks before preemption. That PostFilter looks for what its PreFilter left behind in this very
attempt. Where an earlier PreFilter ended the attempt there is nothing to be found, which upstream reports as
an error, and preemption is not tried.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

import numpy as np

from bayplan.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterOutcome,
    FilterPlugin,
    IntColumn,
    NodeColumns,
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
    Status,
    event_with_hint,
    failure,
    normalize_default,
    unresolvable,
    unschedulable,
)

REASON_NOT_BUILT: Final = "pods with resource claims are not supported by this scheduler yet"
REASON_NO_CLAIMS: Final = "no new claims to deallocate"
NOT_FOUND: Final = "not found"
"""What upstream says of the state that its PreFilter did not leave behind."""


class DynamicResources(
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    NormalizePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    """Refuses pods with claims, and has no opinion about others."""

    name: ClassVar = "DynamicResources"
    pre_binds_in_parallel: ClassVar = True
    depends_on: ClassVar = Dependencies.of("resource_claims")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
            ),
            event_with_hint(Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE),
            event_with_hint(Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self.is_itself),
            event_with_hint(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
            event_with_hint(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
        ]

    def is_itself(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        return new.uid == pod.uid

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return None

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
        return unresolvable(REASON_NOT_BUILT) if pod.spec.resource_claims else SKIP

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        return ()

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        if self.name not in outcome.pre_filtered:
            return PostFilterResult(failure(NOT_FOUND))
        return PostFilterResult(unschedulable(REASON_NO_CLAIMS))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return normalize_default(scores)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return SKIP

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None
