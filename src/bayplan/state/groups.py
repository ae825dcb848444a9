"""Pod groups: the members that the scheduler knows of each, and what their PodGroup object asks for.

The scheduler has groups only with the feature gate GenericWorkload; without it `Cluster.groups` is None and
pods are single pods, whatever they name. A group is known by its first member or by its PodGroup object,
whichever comes first.

With the gate CompositePodGroup, groups form trees: a PodGroup may name a CompositePodGroup as its parent, and
that another one. All members of a tree are scheduled together (`group_trees.py`). A group without a parent is
a tree of its own.

    pending     members without a node, of one of our profiles: set by the handlers of pods
    scheduled   members that count on a node, assumed ones included: set by the verbs of the cluster, so a
                simulated placement counts here, too, until it is reverted

A pod that is assumed is in both; `all_count` counts it once. The engine reads `Group`, not the API object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.meta import Condition, Object, ResourceList
from bayplan.api.pod import Pod
from bayplan.api.quantity import resource_amounts
from bayplan.clock import Freshness
from bayplan.state.objects import Lister, Objects

NEVER: Final = "Never"
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
POD_GROUP_EVENT: Final = "scheduling.k8s.io/PodGroup"
"""The resource of the cluster events of PodGroups."""
COMPOSITE_EVENT: Final = "scheduling.k8s.io/CompositePodGroup"
MAX_DEPTH: Final = 4
"""The number of levels of a tree, the PodGroups included. Members further down are never scheduled."""
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
NO_GROUP: Final = "there is no PodGroup {key}: its members wait until it is created"
TOO_FEW: Final = "waiting for more members: {need} must exist and {have} do, so {more} more must be created"

NO_COMPOSITE_GROUP: Final = "there is no CompositePodGroup {key}"
NO_PARENT: Final = "there is no CompositePodGroup {key}: the members of its groups wait until it is created"
TOO_DEEP: Final = (
    "the members of {key} are never tried: groups may form {max} levels at most, without a cycle"
)
TOO_FEW_GROUPS: Final = (
    "waiting for more members: CompositePodGroup {key} needs {need} groups with enough members and has {have}"
)


class GroupKey(NamedTuple):
    """The namespace and the name of a group; PodGroups and CompositePodGroups have names of their own."""

    namespace: str
    name: str
    is_composite: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def kind(self) -> str:
        """The word for it in messages and metrics."""
        return "compositepodgroup" if self.is_composite else "podgroup"


@dataclass(frozen=True, slots=True)
class Group:
    """What scheduling reads of a PodGroup or CompositePodGroup object."""

    key: GroupKey
    source: PodGroup | CompositePodGroup
    """The object, for writes and events."""
    uid: str
    priority: int
    min_count: int
    """How many members must be placed, or groups of a composite one; 1 unless it is a gang."""
    is_gang: bool
    topology_key: str
    """The label whose value all members must share; empty: no constraint."""
    is_disrupted_as_one: bool
    """Whether all its pods are evicted if one is (disruptionMode all)."""
    preemption_policy: str
    parent: GroupKey | None = None
    """The composite group that it is a part of."""
    min_resources: Mapping[str, int] = field(default_factory=dict)
    """What must be free in the cluster, or may be preempted there: only of groups of other schedulers."""

    def condition(self, kind: str = INITIALLY_SCHEDULED) -> Condition | None:
        for condition in self.source.status.conditions:
            if condition.type == kind:
                return condition
        return None


def key_of(item: Object) -> GroupKey:
    """The key of the group that this object describes."""
    return GroupKey(item.metadata.namespace, item.metadata.name, isinstance(item, CompositePodGroup))


def group_of(item: PodGroup | CompositePodGroup, *, has_parent: bool = False) -> Group:
    """The group that an object describes; its parent counts only with the gate CompositePodGroup."""
    spec = item.spec
    min_resources: ResourceList = {}
    if isinstance(item, CompositePodGroup):
        gangs = item.spec.scheduling_policy.gang
        least = None if gangs is None else gangs.min_group_count
    else:
        gang = item.spec.scheduling_policy.gang
        least = None if gang is None else gang.min_count
        min_resources = item.spec.min_resources
    topology = () if spec.scheduling_constraints is None else spec.scheduling_constraints.topology
    mode = spec.disruption_mode
    return Group(
        key=key_of(item),
        source=item,
        uid=item.metadata.uid,
        priority=spec.priority or 0,
        min_count=1 if least is None else least,
        is_gang=least is not None,
        topology_key=topology[0].key if topology else "",
        is_disrupted_as_one=mode is not None and mode.all is not None,
        preemption_policy=spec.preemption_policy or PREEMPT_LOWER_PRIORITY,
        parent=_parent(item) if has_parent else None,
        min_resources=resource_amounts(min_resources) if min_resources else {},
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


def _parent(item: Any) -> GroupKey | None:
    """The composite group that a PodGroup or CompositePodGroup names, if it does."""
    name = item.spec.parent_composite_pod_group_name
    return None if name is None else GroupKey(item.metadata.namespace, name, is_composite=True)


def _creation(group: Group) -> tuple[float, str]:
    created = group.source.metadata.creation_timestamp
    return created.timestamp() if created else 0.0, group.key.name


ALL_COUNT: Final[Callable[[GroupState], int]] = attrgetter("all_count")
SCHEDULED_COUNT: Final[Callable[[GroupState], int]] = attrgetter("scheduled_count")
"""What `GroupStates.is_ready` counts."""


def group_key(pod: Pod) -> GroupKey | None:
    """The group that the pod names; None for a single pod."""
    named = pod.spec.scheduling_group
    if named is None or not named.pod_group_name:
        return None
    return GroupKey(pod.metadata.namespace, named.pod_group_name)


class GroupStates:
    """All groups with known members, and the groups of PodGroup and CompositePodGroup objects.

    `has_trees`: the gate CompositePodGroup is on. Without it every group is a root.
    """

    def __init__(self, objects: Objects, *, has_trees: bool = False) -> None:
        self.has_trees = has_trees
        self.root: Callable[[GroupKey], Group | None] = self._root_of_tree if has_trees else self.group
        """The root of the tree with this group, which is itself if it has no parent; None if an object is
        missing on the way, or the way is too long."""
        self.checks_min_resources = True
        """Whether groups are tried only if the cluster has their `min_resources`; capacity queues have rules
        of their own."""
        self._objects = objects.of(PodGroup)
        self._composites = objects.of(CompositePodGroup)
        self._children: dict[GroupKey, dict[GroupKey, None]] = {}
        logs = (self._objects.changes, self._composites.changes)
        self._children_freshness = Freshness(logs[0].clock, objects=logs)
        self._states: dict[GroupKey, GroupState] = {}
        self._groups: dict[GroupKey, Group] = {}
        """Read from objects before."""

    def group(self, key: GroupKey) -> Group | None:
        """The group as its object describes it; None if there is no such object."""
        lister: Lister[PodGroup] | Lister[CompositePodGroup]
        lister = self._composites if key.is_composite else self._objects
        item = lister.get(key.name, key.namespace)
        if item is None:
            self._groups.pop(key, None)
            return None
        found = self._groups.get(key)
        if found is None or found.source is not item:
            found = self._groups[key] = group_of(item, has_parent=self.has_trees)
        return found

    def group_of(self, pod: Pod) -> Group | None:
        """The group of a pod, if its PodGroup object exists."""
        key = group_key(pod)
        return None if key is None else self.group(key)

    # Trees

    def with_ancestors(self, group: Group) -> list[Group]:
        """The group and the groups above it, as far as their objects exist."""
        found = [group]
        while len(found) < MAX_DEPTH and (key := found[-1].parent) is not None:
            above = self.group(key)
            if above is None:
                break
            found.append(above)
        return found

    def _root_of_tree(self, key: GroupKey) -> Group | None:
        group = self.group(key)
        if group is None or group.parent is None:
            return group
        last = self.with_ancestors(group)[-1]
        return last if last.parent is None else None

    def root_of(self, pod: Pod) -> Group | None:
        """The root of the tree that a pod is a member of; None if its members cannot be tried."""
        key = group_key(pod)
        return None if key is None else self.root(key)

    def children(self, key: GroupKey) -> list[Group]:
        """The groups of a composite group, in the order in which they are placed: by creation and name."""
        if not key.is_composite:
            return []
        self._read_children()
        found = [group for one in self._children.get(key, ()) if (group := self.group(one)) is not None]
        return sorted(found, key=_creation)

    def _read_children(self) -> None:
        """Brings the index of children up to date."""
        listers: tuple[Lister[Any], ...] = (self._objects, self._composites)
        with self._children_freshness:
            changed = [self._children_freshness.recorded(lister.changes) for lister in listers]
            if None in changed:
                self._children.clear()
                changed = [[(None, item) for item in lister] for lister in listers]
            for before, after in chain.from_iterable(one for one in changed if one is not None):
                if before is not None and (parent := _parent(before)) is not None:
                    self._children.get(parent, {}).pop(key_of(before), None)
                if after is not None and (parent := _parent(after)) is not None:
                    self._children.setdefault(parent, {})[key_of(after)] = None

    def evicted_as_one(self, group: Group) -> Group | None:
        """The group whose pods are all evicted if a member of this one is: the highest with disruptionMode
        `all`; None if the member is evicted alone."""
        found = [one for one in self.with_ancestors(group) if one.is_disrupted_as_one]
        return found[-1] if found else None

    def states_below(self, group: Group, depth: int = MAX_DEPTH) -> list[GroupState]:
        """The members of a group, or of all PodGroups below a composite one."""
        if not group.key.is_composite:
            return [self[group.key]]
        if depth == 1:
            return []
        found = (self.states_below(child, depth - 1) for child in self.children(group.key))
        return list(chain.from_iterable(found))

    def get(self, key: GroupKey) -> GroupState | None:
        return self._states.get(key)

    def __getitem__(self, key: GroupKey) -> GroupState:
        """The members of a group; an empty state if there are none."""
        found = self._states.get(key)
        return GroupState(key) if found is None else found

    def states(self) -> Collection[GroupState]:
        return self._states.values()

    def is_ready(self, group: Group, count: Callable[[GroupState], int]) -> bool:
        """Whether enough members of a group count, or of enough groups of a composite one."""
        if group.key.is_composite:
            return self._ready_count(group, count) >= group.min_count
        state = self._states.get(group.key)
        return state is not None and count(state) >= group.min_count

    def _ready_count(self, group: Group, count: Callable[[GroupState], int], depth: int = MAX_DEPTH) -> int:
        if not group.key.is_composite:
            return count(self[group.key])
        if depth == 1:
            return 0
        children = self.children(group.key)
        return sum(self._ready_count(one, count, depth - 1) >= one.min_count for one in children)

    def why_incomplete(self, key: GroupKey) -> str:
        """Why a group cannot be tried yet: an object or members are missing; empty if neither is."""
        group, root = self.group(key), self.root(key)
        if group is None:
            return (NO_COMPOSITE_GROUP if key.is_composite else NO_GROUP).format(key=key)
        if root is None:
            top = self.with_ancestors(group)[-1]
            is_missing = top.parent is not None and self.group(top.parent) is None
            return NO_PARENT.format(key=top.parent) if is_missing else TOO_DEEP.format(key=key, max=MAX_DEPTH)
        have = self._ready_count(root, ALL_COUNT)
        if (not root.is_gang and not root.key.is_composite) or have >= root.min_count:
            return ""
        if not root.key.is_composite:
            return TOO_FEW.format(need=root.min_count, have=have, more=root.min_count - have)
        lacking = [
            f"{one.key.name} has {self._ready_count(one, ALL_COUNT)} of {one.min_count}"
            for one in self.children(root.key)
            if not self.is_ready(one, ALL_COUNT)
        ]
        text = TOO_FEW_GROUPS.format(key=root.key, need=root.min_count, have=have)
        return f"{text} ({', '.join(lacking)})" if lacking else text

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
