"""GangScheduling: the members of a gang are scheduled together, or not at all.

A PodGroup with a gang policy names the number of members that must run at once (minCount). Until so many
exist, PreEnqueue keeps all of them out of the queue. When the group is scheduled, PlacementFeasible ends the
search as soon as too few members are left to reach the number. Permit is the last guard: it holds members
back only if a sibling failed after the group had been placed.

https://kubernetes.io/docs/concepts/scheduling-eviction/gang-scheduling/
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    CycleState,
    Object,
    PermitPlugin,
    Plugin,
    Pod,
    PreEnqueuePlugin,
    Resource,
    Status,
    Wait,
    event_with_hint,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugin._internal import PreEnqueueField, WaitingKeysPlugin
from bayplan.plugin.groups import (
    POD_GROUP_EVENT,
    Group,
    GroupKey,
    PlacementFeasiblePlugin,
    PodGroup,
    group_key,
    waits,
)

NO_GROUP: Final = 'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
TOO_FEW: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
NOT_SCHEDULED: Final = "waiting for minCount pods from a gang to be scheduled"
IMPOSSIBLE: Final = "minCount ({min_count}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
NOT_YET: Final = "minCount ({min_count}) is not yet satisfied: {scheduled} scheduled, {remaining} remaining"
MAX_WAIT_SECONDS: Final = 5 * 60.0


class GangScheduling(
    Plugin,
    PreEnqueuePlugin,
    PermitPlugin,
    PlacementFeasiblePlugin,
    PreEnqueueField,
    WaitingKeysPlugin,
):
    """Holds the members of a gang back until enough of them can be scheduled."""

    pre_enqueue_field: ClassVar = "scheduling_group"

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.UNSCHEDULED_POD, Action.ADD, _is_sibling, _group_of_pod),
            event_with_hint(Resource.ASSIGNED_POD, Action.ADD, _is_sibling, _group_of_pod),
            event_with_hint(POD_GROUP_EVENT, Action.ADD, _is_its_group, _group_of_object),
            event_with_hint(POD_GROUP_EVENT, Action.UPDATE, _needs_fewer, _group_of_object),
        ]

    def waiting_keys(self, pod: Pod) -> Collection[str]:
        key = group_key(pod)
        return () if key is None else (str(key),)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        key, groups = group_key(pod), self.handle.cluster.groups
        if key is None or groups is None:
            return None
        group = groups.group(key)
        if group is None:
            return unresolvable(NO_GROUP.format(name=key.name))
        if group.is_gang and groups[key].all_count < group.min_count:
            return unresolvable(TOO_FEW)
        return None

    def placement_feasible(self, group: Group, scheduled: int, remaining: int) -> Status | None:
        min_count = group.min_count
        if scheduled >= min_count:
            return None
        if scheduled + remaining < min_count:
            text, answer = IMPOSSIBLE, unschedulable
        else:
            text, answer = NOT_YET, waits
        return answer(text.format(min_count=min_count, scheduled=scheduled, remaining=remaining))

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
        key, groups = group_key(pod), self.handle.cluster.groups
        if key is None or groups is None:
            return None
        group, members = groups.group(key), groups[key]
        if group is None:
            return failure(f'failed to get podGroup {key}: podgroup "{key.name}" not found')
        if not group.is_gang:
            return None
        if members.scheduled_count < group.min_count:
            self.handle.activate(list(members.unscheduled()))
            return Wait(MAX_WAIT_SECONDS, NOT_SCHEDULED)
        for waiting in list(self.handle.waiting_pods()):
            if waiting.pod.uid in members.scheduled:
                waiting.allow(self.name)
        return None


def _is_sibling(pod: Pod, old: object, new: Pod) -> bool:
    key = group_key(new)
    return key is not None and key == group_key(pod)


def _is_its_group(pod: Pod, old: PodGroup | None, new: PodGroup) -> bool:
    return group_key(pod) == GroupKey(new.namespace, new.name)


def _needs_fewer(pod: Pod, old: PodGroup, new: PodGroup) -> bool:
    before, now = old.spec.scheduling_policy.gang, new.spec.scheduling_policy.gang
    is_less = before is not None and now is not None and now.min_count < before.min_count
    return is_less and _is_its_group(pod, old, new)


def _group_of_pod(old: object, new: Pod) -> Collection[str]:
    key = group_key(new)
    return () if key is None else (str(key),)


def _group_of_object(old: Object | None, new: Object) -> Collection[str]:
    return (str(GroupKey(new.namespace, new.name)),)
