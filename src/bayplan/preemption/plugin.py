"""The base class of plugins that preempt. Override `may_evict` for another policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.framework.builtin_args import DefaultPreemptionArgs
from bayplan.framework.events import Action, ClusterEventWithHint, Resource, event_with_hint
from bayplan.framework.group_api import (
    GroupOutcome,
    GroupPostFilterResult,
    GroupSteps,
    PodGroupPostFilterPlugin,
)
from bayplan.framework.outcome import FilterOutcome, PostFilterResult
from bayplan.framework.plugin_api import Handle, Plugin, PostFilterPlugin, PreEnqueuePlugin
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status, unresolvable
from bayplan.preemption.evaluation import Sampling, evaluate, preemption_result
from bayplan.preemption.groups import preempt
from bayplan.preemption.victims import EvictionRule

WAITING_FOR_VICTIMS: Final = "waiting for the preemption for this pod to be finished"


GROUP_WAITING_FOR_VICTIMS: Final = "waiting for the preemption for this pod group to be finished"


class PreemptionPlugin(Plugin, PreEnqueuePlugin, PostFilterPlugin, PodGroupPostFilterPlugin):
    """Preempts pods in PostFilter, and keeps the pod out of the queue until they are evicted."""

    preempts: ClassVar = True

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> EvictionRule | None:
        """The rule for which pods may be evicted for this one; None: pods of lower priority.

        Dry runs with the default rule are cached for identical pods, those with another rule are not.
        """
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint] | None:
        # Whether a deleted pod helps is decided by the plugin that rejected the pod.
        return (event_with_hint(Resource.POD, Action.DELETE, lambda pod, old, new: False),)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if self.handle.is_preempting(pod.metadata.uid):
            return unresolvable(WAITING_FOR_VICTIMS)
        groups = self.handle.cluster.groups
        if groups is not None and pod.spec.scheduling_group is not None:
            group = groups.root_of(pod)
            if group is not None and self.handle.is_preempting(group.uid):
                return unresolvable(GROUP_WAITING_FOR_VICTIMS)
        return None

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        sampling = candidate_sampling(self.args, self.handle)
        evaluation = evaluate(pod, outcome, sampling, self.may_evict(state, pod, outcome))
        return preemption_result(evaluation, outcome)

    def pod_group_post_filter(self, outcome: GroupOutcome) -> GroupSteps[GroupPostFilterResult]:
        has_own_policy = "PodGroupPreemptionPolicy" in self.release.gates
        return (yield from preempt(outcome, has_own_policy=has_own_policy))


def candidate_sampling(args: object, handle: Handle) -> Sampling | None:
    """How many candidates are evaluated by these arguments of a plugin; None: all of them.

    Only `DefaultPreemptionArgs` can limit their number.
    """
    if not isinstance(args, DefaultPreemptionArgs) or args == DefaultPreemptionArgs():
        return None
    offset = handle.random.random()
    return Sampling(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute, offset)
