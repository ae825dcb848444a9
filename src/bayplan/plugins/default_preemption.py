"""DefaultPreemption: a pod that fits on no node may preempt pods of lower priority.

PostFilter chooses the node where evicting costs least (`bayplan.preemption`), nominates the pod to it and
returns the victims. The scheduler evicts them; meanwhile PreEnqueue keeps the pod out of the queue.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    CycleState,
    FilterOutcome,
    Handle,
    Plugin,
    Pod,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    Resource,
    Status,
    event_with_hint,
    unresolvable,
)
from bayplan.plugin.args import DefaultPreemptionArgs
from bayplan.plugin.preemption import Sampling, evaluate, preemption_result

UNDER_WAY: Final = "waiting for the preemption for this pod to be finished"


class DefaultPreemption(Plugin, PreEnqueuePlugin, PostFilterPlugin):
    """Preempts pods of lower priority."""

    args_type: ClassVar = DefaultPreemptionArgs
    preempts: ClassVar = True

    def __init__(self, args: DefaultPreemptionArgs | None = None, handle: Handle | None = None) -> None:
        super().__init__(args or DefaultPreemptionArgs(), handle)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # Whether a deleted pod helps is decided by the plugin that rejected the pod.
        return (event_with_hint(Resource.POD, Action.DELETE, lambda pod, old, new: False),)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if self.handle is not None and self.handle.is_preempting(pod.uid):
            return unresolvable(UNDER_WAY)
        return None

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        evaluation = evaluate(pod, outcome, self._sampling())
        return preemption_result(evaluation, outcome)

    def _sampling(self) -> Sampling | None:
        """None, and so all candidates, unless the configuration limits their number."""
        args = self.args
        if args.evaluates_all_candidates:
            return None
        offset = self.handle.random.random() if self.handle is not None else 0.0
        return Sampling(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute, offset)
