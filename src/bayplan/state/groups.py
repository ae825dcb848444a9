"""Pod groups: the members that the scheduler knows of each, and what their PodGroup object asks for.

The scheduler has groups only with the feature gate GenericWorkload; without it `Cluster.groups` is None and
pods are single pods, whatever they name. A group is known by its first member or by its PodGroup object,
whichever comes first.

    pending     members without a node, of one of our profiles: set by the handlers of pods
    scheduled   members that count on a node, assumed ones included: set by the verbs of the cluster, so a
                simulated placement counts here, too, until it is reverted

A pod that is assumed is in both; `all` counts it once. The engine reads `Group`, not the API object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayplan.api.groups import PodGroup
from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.state.objects import Objects

NEVER: Final = "Never"
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
POD_GROUP_EVENT: Final = "scheduling.k8s.io/PodGroup"
"""The resource of the cluster events of PodGroups."""
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
NO_GROUP: Final = "there is no PodGroup {key}: its members wait until it is created"
TOO_FEW: Final = "waiting for more members: {need} must exist and {have} do, so {more} more must be created"


class GroupKey(NamedTuple):
    """The namespace and the name of a group."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Group:
    """What scheduling reads of a PodGroup object."""

    key: GroupKey
    source: PodGroup
    """The object, for writes and events."""
    uid: str
    priority: int
    min_count: int
    """How many members must be placed; 1 unless it is a gang."""
    is_gang: bool
    topology_key: str
    """The label whose value all members must share; empty: no constraint."""
    is_disrupted_as_one: bool
    """Whether all its pods are evicted if one is (disruptionMode all)."""
    preemption_policy: str

    def condition(self, kind: str = INITIALLY_SCHEDULED) -> Condition | None:
        for condition in self.source.status.conditions:
            if condition.type == kind:
                return condition
        return None


def group_of(item: PodGroup) -> Group:
    """The group that a PodGroup object describes."""
    spec = item.spec
    gang = spec.scheduling_policy.gang
    topology = () if spec.scheduling_constraints is None else spec.scheduling_constraints.topology
    mode = spec.disruption_mode
    return Group(
        key=GroupKey(item.metadata.namespace, item.metadata.name),
        source=item,
        uid=item.metadata.uid,
        priority=spec.priority or 0,
        min_count=1 if gang is None else gang.min_count,
        is_gang=gang is not None,
        topology_key=topology[0].key if topology else "",
        is_disrupted_as_one=mode is not None and mode.all is not None,
        preemption_policy=spec.preemption_policy or PREEMPT_LOWER_PRIORITY,
    )


@dataclass(slots=True, eq=False)
class GroupState:
    """The known members of one group, by uid."""

    key: GroupKey
    pending: dict[str, Pod] = field(default_factory=dict)
    scheduled: dict[str, Pod] = field(default_factory=dict)
    assumed_count: int = 0
    """How many are in both."""

    @property
    def all_count(self) -> int:
        """How many members there are, in whichever state."""
        return len(self.pending) + len(self.scheduled) - self.assumed_count

    @property
    def scheduled_count(self) -> int:
        return len(self.scheduled)

    def members(self, *, is_pending: bool) -> tuple[dict[str, Pod], dict[str, Pod]]:
        """The pending members and the scheduled ones, or the other way round."""
        return (self.pending, self.scheduled) if is_pending else (self.scheduled, self.pending)

    def unscheduled(self) -> Iterator[Pod]:
        """The members without a node, not even an assumed one."""
        return (pod for uid, pod in self.pending.items() if uid not in self.scheduled)


def group_key(pod: Pod) -> GroupKey | None:
    """The group that the pod names; None for a single pod."""
    named = pod.spec.scheduling_group
    if named is None or not named.pod_group_name:
        return None
    return GroupKey(pod.metadata.namespace, named.pod_group_name)


class GroupStates:
    """All groups with known members, and the groups of PodGroup objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects.of(PodGroup)
        self._states: dict[GroupKey, GroupState] = {}
        self._groups: dict[GroupKey, Group] = {}
        """Read from objects before."""

    def group(self, key: GroupKey) -> Group | None:
        """The group as its PodGroup object describes it; None if there is no such object."""
        item = self._objects.get(key.name, key.namespace)
        if item is None:
            self._groups.pop(key, None)
            return None
        found = self._groups.get(key)
        if found is None or found.source is not item:
            found = self._groups[key] = group_of(item)
        return found

    def group_of(self, pod: Pod) -> Group | None:
        """The group of a pod, if its PodGroup object exists."""
        key = group_key(pod)
        return None if key is None else self.group(key)

    def get(self, key: GroupKey) -> GroupState | None:
        return self._states.get(key)

    def __getitem__(self, key: GroupKey) -> GroupState:
        """The members of a group; an empty state if there are none."""
        found = self._states.get(key)
        return GroupState(key) if found is None else found

    def states(self) -> Collection[GroupState]:
        return self._states.values()

    def why_incomplete(self, key: GroupKey) -> str:
        """Why a group cannot be tried yet: its object or members are missing; empty if neither is."""
        group, have = self.group(key), self[key].all_count
        if group is None:
            return NO_GROUP.format(key=key)
        if not group.is_gang or have >= group.min_count:
            return ""
        return TOO_FEW.format(need=group.min_count, have=have, more=group.min_count - have)

    def rows(self, row_of: Callable[[str], int]) -> NDArray[np.intp]:
        """The rows with a member of any group; `row_of` returns that of an assigned pod, by uid."""
        found = {row_of(uid) for state in self._states.values() for uid in state.scheduled}
        return np.array(sorted(found), dtype=np.intp)

    # Events

    def pod_pending(self, pod: Pod) -> None:
        """A pending pod was added, or changed."""
        self._enter(pod, is_pending=True)

    def pod_not_pending(self, pod: Pod) -> None:
        """A pending pod was deleted, or has a node now."""
        self._leave(pod, is_pending=True)

    def forget_pending(self) -> None:
        """No scheduler has the pending pods any more."""
        for state in list(self._states.values()):
            state.pending.clear()
            state.assumed_count = 0
            self._release(state)

    def pod_placed(self, pod: Pod) -> None:
        """A pod counts on a node from now on."""
        self._enter(pod, is_pending=False)

    def pod_removed(self, pod: Pod) -> None:
        """A pod no longer counts on its node."""
        self._leave(pod, is_pending=False)

    def _enter(self, pod: Pod, *, is_pending: bool) -> None:
        key = group_key(pod)
        if key is None:
            return
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = GroupState(key)
        members, others = state.members(is_pending=is_pending)
        uid = pod.metadata.uid
        if uid in others and uid not in members:
            state.assumed_count += 1
        members[uid] = pod

    def _leave(self, pod: Pod, *, is_pending: bool) -> None:
        key = group_key(pod)
        state = None if key is None else self._states.get(key)
        if state is None:
            return
        members, others = state.members(is_pending=is_pending)
        if members.pop(pod.metadata.uid, None) is not None:
            if pod.metadata.uid in others:
                state.assumed_count -= 1
            self._release(state)

    def _release(self, state: GroupState) -> None:
        if not state.pending and not state.scheduled:
            del self._states[state.key]
