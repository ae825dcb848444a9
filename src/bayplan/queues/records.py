"""What is kept of pods, groups and queues to find the next pod.

    QueueNode      of a queue: its position among its siblings, and the classes of a leaf
      └─ PodClass      active pods of a leaf that either all fit into the room, or none
           └─ GroupPods     those of one group: a heap
                └─ PodTask      a pod; GroupRequest for a pod group, which is one entity

`usage.py` creates groups and tasks, `order.py` keeps their order, `active.py` puts pods in and takes them
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.api.pod import Pod
from bayplan.clock import Freshness
from bayplan.framework.plugin_api import SortKey
from bayplan.queues.amounts import Amounts, total
from bayplan.queues.tree import Group, GroupKey, Queue, QueueKey, Task
from bayplan.queues.yunikorn.pods import TaskFacts
from bayplan.scheduling_queue.queued import Entity
from bayplan.state.pods import PodInfo


class Shape:
    """The requests of pods, shared by most pods with equal requests."""

    __slots__ = ("amounts", "whole")

    def __init__(self, amounts: dict[str, int]) -> None:
        self.amounts = amounts
        self.whole = sum(amounts.values())


Owner = tuple[str, tuple[str, ...]]
"""A user and their groups."""
ClassKey = tuple[Shape, Owner]


class PodGroupOf(Group):
    """A group with its active pods."""

    __slots__ = (
        "active",
        "classes",
        "is_running",
        "key",
        "key_created",
        "key_priority",
        "node",
        "owner",
        "spares",
    )

    def __init__(
        self, name: str, queue: Queue, user: str, user_groups: tuple[str, ...], created: float
    ) -> None:
        super().__init__(name, queue, user=user, user_groups=user_groups, created=created)
        self.owner: Owner = (user, user_groups)
        self.node: QueueNode | None = None
        """Of its leaf; None before it has a place in the order."""
        self.classes: dict[Shape, GroupPods] = {}
        """Its active pods."""
        self.active = 0
        """The number of its active pods."""
        self.key: GroupKey = ()
        """Its position among the groups of its leaf."""
        self.key_priority = 0
        self.key_created = 0.0
        self.is_running = False
        """Its priority and age when the position was found, and whether it had a task then."""
        self.spares: Callable[[PodTask], tuple[bool, bool]] | None = None
        """Which of its tasks are victims last, as `Task.is_spared`; set where the dialect has such pods."""

    @property
    def pending(self) -> dict[str, int]:
        if not self.active:
            return {}
        if len(self.classes) == 1:
            ((shape, pods),) = self.classes.items()
            if isinstance(pods.entries[0][-1], PodTask):
                return {kind: amount * self.active for kind, amount in shape.amounts.items()}
        return total(
            entry[-1].amounts
            for pods in self.classes.values()
            for entry in pods.entries
            if entry[3].ticket is entry
        )


class PodTask(Task):
    """A pod, pending or with a node. What the queues need of it is read once for each version of the pod."""

    __slots__ = ("application", "info", "pod", "shape", "whole")

    group: PodGroupOf

    def __init__(self, pod: Pod, info: PodInfo, shape: Shape, application: str, facts: TaskFacts) -> None:
        # Not Task.__init__: there is one for every pod, and keyword arguments take three times as long.
        self.pod = pod
        self.info = info
        self.shape = shape
        self.application = application
        self.key = pod.metadata.uid
        self.amounts = shape.amounts
        self.whole = shape.whole
        self.created = created_at(pod)
        self.priority = pod.spec.priority or 0
        self.place = ""
        self.role = facts.role
        self.required_place = facts.required_node
        self.is_placeholder = facts.is_placeholder
        self.is_originator = False
        self.opted_out = False
        self.may_preempt = facts.may_preempt
        self.leaving = False
        self.released = False

    def is_spared(self) -> tuple[bool, bool]:
        """Computed when it is a candidate: its application and its PriorityClass may have changed."""
        spares = self.group.spares
        return (False, False) if spares is None else spares(self)


@dataclass(slots=True)
class GroupRequest:
    """What a pod group asks for as one entity; that of a single pod is its `PodTask`."""

    group: PodGroupOf
    amounts: Amounts
    whole: int
    """The sum of these."""
    priority: int
    shape: Shape
    """What has to fit: what the members that it needs at least ask for."""


@dataclass(frozen=True, slots=True)
class Nominated:
    """A pod that has preempted others and has no node yet: what was freed is reserved for it."""

    pod: Pod
    group: PodGroupOf
    amounts: Amounts
    paths: tuple[str, ...]
    """Of the queues in which it is reserved: the group may move to another one."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """Pods of one attempt whose queue is entitled to what they ask for, but that found nobody to evict."""

    pods: Sequence[Pod]
    at: float
    freshness: Freshness
    """Of that answer: it is current as long as no pod is bound or ends."""


Request = PodTask | GroupRequest

PodEntry = tuple[SortKey, int, int, Entity, Request]
"""Rank, the entity's sequence, a number, the entity and what it asks for. The current entry of an active
entity is its ticket; others are outdated."""


@dataclass(slots=True, eq=False)
class GroupPods:
    """The active pods of a group that belong to one class."""

    group: PodGroupOf
    pod_class: PodClass
    entries: list[PodEntry] = field(default_factory=list)
    """A heap."""
    entry: GroupEntry = ()
    """Its current entry in a heap of the class."""


GroupEntry = tuple[Any, ...]
"""The key of a group, a number, and its `GroupPods`. Others than their current entry are outdated."""


@dataclass(slots=True, eq=False)
class PodClass:
    """Active pods of a leaf that ask for the same for the same owner: all fit into the room, or none."""

    key: ClassKey
    node: QueueNode
    """Of the leaf."""
    running: list[GroupEntry] = field(default_factory=list)
    """A heap of the groups with a task."""
    new: list[GroupEntry] = field(default_factory=list)
    """Of those without one; they may be kept from beginning."""
    unreported: dict[Entity, None] = field(default_factory=dict)
    """Pods for which no notice was made yet."""
    unreported_new: dict[Entity, None] = field(default_factory=dict)
    """Those of groups that had no task when they entered."""


@dataclass(slots=True, eq=False)
class QueueNode:
    """What is known of a queue for finding the next pod."""

    queue: Queue
    parent: QueueNode | None
    is_live: bool = False
    """Whether something below may be popped."""
    is_stale: bool = False
    """Whether its key may have changed since the last pop."""
    key: QueueKey | None = None
    entry: tuple[Any, ...] = ()
    """Its current entry in the heap of its parent: its key, a number, and itself."""
    children: list[tuple[Any, ...]] = field(default_factory=list)
    """A heap of entries. One that is not the current entry of its queue is outdated."""
    classes: dict[ClassKey, PodClass] = field(default_factory=dict)
    ready: dict[PodClass, None] = field(default_factory=dict)
    """Those that are not known to be blocked."""


def created_at(pod: Pod) -> float:
    """When a pod was created; one that says nothing counts as the oldest."""
    stamp = pod.metadata.creation_timestamp
    return 0.0 if stamp is None else stamp.timestamp()
