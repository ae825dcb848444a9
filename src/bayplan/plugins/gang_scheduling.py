"""GangScheduling: the members of a gang are scheduled together, or not at all.

A PodGroup with a gang policy names the number of members that must run at once (minCount). Until so many
exist, PreEnqueue keeps all of them out of the queue. When the group is scheduled, PlacementFeasible ends the
search as soon as too few members are left to reach the number. Permit is the last guard: it holds members
back only if a sibling failed after the group had been placed.

The members of a composite group are held until enough of its groups have enough members.

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
    ALL_COUNT,
    COMPOSITE_EVENT,
    POD_GROUP_EVENT,
    SCHEDULED_COUNT,
    Group,
    GroupKey,
    PlacementFeasiblePlugin,
    PodGroup,
    group_key,
    key_of,
    waits,
)

NO_GROUP: Final = 'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
TOO_FEW: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
TREE_WAITS: Final = 'waiting for composite pod group "{name}" tree to meet quorum'
NO_TREE: Final = "failed to build hierarchy snapshot: {reason}"
NOT_SCHEDULED: Final = "waiting for minCount pods from a gang to be scheduled"
IMPOSSIBLE: Final = "minCount ({min_count}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
NOT_YET: Final = waits()
"""Without a reason: once no member is left, the result is another one."""
COMPOSITE_GATE: Final = "CompositePodGroup"
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
        events = [
            event_with_hint(Resource.UNSCHEDULED_POD, Action.ADD, self._is_sibling, self._keys_of_pod),
            event_with_hint(Resource.ASSIGNED_POD, Action.ADD, self._is_sibling, self._keys_of_pod),
            event_with_hint(POD_GROUP_EVENT, Action.ADD, self._is_its_group, self._keys_of_object),
            event_with_hint(POD_GROUP_EVENT, Action.UPDATE, self._needs_fewer, self._keys_of_object),
        ]
        if COMPOSITE_GATE in self.release.gates:
            hint = event_with_hint(COMPOSITE_EVENT, Action.ADD, self._is_its_group, self._keys_of_object)
            events.append(hint)
        return events

    def waiting_keys(self, pod: Pod) -> Collection[str]:
        return self._keys_of_pod(None, pod)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        key, groups = group_key(pod), self.handle.cluster.groups
        if key is None or groups is None:
            return None
        root = groups.root(key)
        if root is None and groups.group(key) is None:
            return unresolvable(NO_GROUP.format(name=key.name))
        if root is None:
            return unresolvable(NO_TREE.format(reason=groups.why_incomplete(key)))
        if groups.is_ready(root, ALL_COUNT):
            return None
        return unresolvable(TREE_WAITS.format(name=root.key.name) if root.key.is_composite else TOO_FEW)

    def placement_feasible(self, group: Group, scheduled: int, remaining: int) -> Status | None:
        min_count = group.min_count
        if scheduled >= min_count:
            return None
        if scheduled + remaining >= min_count:
            return NOT_YET
        return unschedulable(IMPOSSIBLE.format(min_count=min_count, scheduled=scheduled, remaining=remaining))

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
        key, groups = group_key(pod), self.handle.cluster.groups
        if key is None or groups is None:
            return None
        root = groups.root(key)
        if root is None and groups.group(key) is None:
            return failure(f'failed to get podGroup {key}: podgroup "{key.name}" not found')
        if root is None:
            return failure(NO_TREE.format(reason=groups.why_incomplete(key)))
        if not root.is_gang and not root.key.is_composite:
            return None
        if not groups.is_ready(root, SCHEDULED_COUNT):
            self.handle.activate([pod for one in groups.states_below(root) for pod in one.unscheduled()])
            text = TREE_WAITS.format(name=root.key.name) if root.key.is_composite else NOT_SCHEDULED
            return Wait(MAX_WAIT_SECONDS, text)
        waiting = list(self.handle.waiting_pods())
        members = groups.states_below(root) if waiting else []
        for other in waiting:
            if any(other.pod.uid in one.scheduled for one in members):
                other.allow(self.name)
        return None

    # Hints: only the tree of the group matters.

    def _root_key(self, key: GroupKey | None) -> GroupKey | None:
        if key is None or COMPOSITE_GATE not in self.release.gates:
            return key
        groups = self.handle.cluster.groups
        root = None if groups is None else groups.root(key)
        return key if root is None else root.key

    def _is_sibling(self, pod: Pod, old: object, new: Pod) -> bool:
        key, other = group_key(pod), group_key(new)
        return other is not None and (key == other or self._root_key(key) == self._root_key(other))

    def _is_its_group(self, pod: Pod, old: Object | None, new: Object) -> bool:
        return self._root_key(group_key(pod)) == self._root_key(key_of(new))

    def _needs_fewer(self, pod: Pod, old: PodGroup, new: PodGroup) -> bool:
        before, now = old.spec.scheduling_policy.gang, new.spec.scheduling_policy.gang
        is_less = before is not None and now is not None and now.min_count < before.min_count
        return is_less and self._is_its_group(pod, old, new)

    def _keys_of_pod(self, old: object, new: Pod) -> Collection[str]:
        key = group_key(new)
        if key is None:
            return ()
        if COMPOSITE_GATE not in self.release.gates:
            return (f"{key.namespace}/{key.name}",)
        root = self._root_key(key)
        return () if root is None else (_text(root),)

    def _keys_of_object(self, old: Object | None, new: Object) -> Collection[str]:
        key = self._root_key(key_of(new))
        return () if key is None else (_text(key),)


def _text(key: GroupKey) -> str:
    text = f"{key.namespace}/{key.name}"
    return f"{key.kind}/{text}" if key.is_composite else text
