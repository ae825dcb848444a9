"""Which pods use what: from pods to groups of the tree, and from pods with a node to its usage.

Usage comes from the pods that have a node, assumed ones included, and groups exist while they have pods:
after a restart the same pods give the same tree. `active.py` orders the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import SortKey
from bayplan.queues import tree
from bayplan.queues.amounts import minus, plus
from bayplan.queues.tree import Group, GroupKey, Queue, Task
from bayplan.queues.yunikorn import pods as yunikorn
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.scheduling_queue.queued import Entity

MAX_REMEMBERED: Final = 500_000

ClassKey = tuple[frozenset[tuple[str, int]], str, tuple[str, ...]]
PodEntry = tuple[SortKey, int, int, Entity]


class PodGroupOf(Group):
    """A group with its active pods."""

    __slots__ = ("active", "classes", "is_held", "key")

    def __init__(
        self, name: str, queue: Queue, user: str, user_groups: tuple[str, ...], created: float
    ) -> None:
        super().__init__(name, queue, user=user, user_groups=user_groups, created=created)
        self.classes: dict[ClassKey, list[PodEntry]] = {}
        self.active = 0
        """The number of its active pods."""
        self.key: GroupKey = ()
        self.is_held = False
        """Waits because of a limit on the number of groups."""


class Requests(Protocol):
    def __call__(self, pod: Pod) -> Mapping[str, int]:
        """What a pod requests, by resource: cpu in millis."""


class QueueUsage:
    """The groups of pods, and what they use.

    Args:
        partition: the tree with its placement rules and limits.
        requests: of a pod.
        namespace: finds a Namespace object.
    """

    def __init__(
        self, partition: Partition, requests: Requests, namespace: Callable[[str], Namespace | None]
    ) -> None:
        self.partition = partition
        self._requests = requests
        self._namespace = namespace
        self._groups: dict[str, PodGroupOf] = {}
        self._tasks: dict[str, Task] = {}
        """By uid: pods that have a node."""
        self._amounts: dict[str, tuple[Pod, dict[str, int]]] = {}
        """By uid; computing them takes longer than everything else here."""

    def _use_changed(self, group: PodGroupOf) -> None:
        """A pod of the group got or lost its node."""
        raise NotImplementedError

    def _freed(self, group: PodGroupOf) -> None:
        """Something on the path of its queue is free again."""
        raise NotImplementedError

    def _group_ended(self, group: PodGroupOf) -> None:
        """The group has no pods any more."""
        raise NotImplementedError

    def charge(self, pod: Pod, node_name: str) -> None:
        """A pod has a node, assumed or confirmed; or one that is charged already has changed."""
        task = self._tasks.get(pod.metadata.uid)
        if task is not None:
            task.place = node_name
            if task.amounts == self.amounts_of(pod):
                return
            self.refund(task.key)
        try:
            group = self.group_of(pod)
        except PlacementError:
            return
        known = yunikorn.facts(pod)
        amounts = self.amounts_of(pod)
        task = Task(
            pod.metadata.uid,
            group,
            amounts,
            created=created_at(pod),
            priority=pod.priority,
            place=node_name,
            role=known.role,
            required_place=known.required_node,
            is_placeholder=known.is_placeholder,
            may_preempt=known.may_preempt,
            opted_out=known.opted_out,
        )
        self._tasks[task.key] = task
        tree.charge(group.queue, amounts)
        if self.partition.user_limits.limits:
            self.partition.user_limits.charge(group, amounts)
        if not known.is_placeholder:
            group.used = plus(group.used, amounts)
        if not group.tasks:
            tree.start(group)
        group.tasks[task.key] = task
        self._use_changed(group)

    def refund(self, uid: str) -> None:
        """A pod has lost its node: it ended, or its binding failed."""
        task = self._tasks.pop(uid, None)
        if task is None:
            return
        self._amounts.pop(uid, None)
        group = task.group
        assert isinstance(group, PodGroupOf)
        del group.tasks[uid]
        tree.refund(group.queue, task.amounts)
        if task.leaving:
            tree.unmark_leaving(group.queue, task.amounts)
        if not task.is_placeholder:
            group.used = minus(group.used, task.amounts)
        ended = not group.tasks
        if self.partition.user_limits.limits:
            self.partition.user_limits.refund(group, task.amounts, ended=ended)
        if ended:
            tree.stop(group)
        self._freed(group)
        self._use_changed(group)
        self._forget_if_empty(group)

    def group_of(self, pod: Pod) -> PodGroupOf:
        """The group of a pod, created with the first one.

        Raises:
            PlacementError: no queue takes its application.
        """
        name = yunikorn.application_id(pod)
        group = self._groups.get(name)
        created = created_at(pod)
        if group is None:
            app = yunikorn.submission(pod, self._namespace(pod.namespace))
            queue = self.partition.queue_for(app)
            group = self._groups[name] = PodGroupOf(name, queue, app.user, app.groups, created)
            tree.add_group(group)
        elif created < group.created:
            group.created = created
        return group

    def group_if_known(self, pod: Pod) -> PodGroupOf | None:
        return self._groups.get(yunikorn.application_id(pod))

    def amounts_of(self, pod: Pod) -> dict[str, int]:
        known = self._amounts.get(pod.metadata.uid)
        if known is None or known[0] is not pod:
            if len(self._amounts) >= MAX_REMEMBERED:
                self._amounts.clear()
            known = self._amounts[pod.metadata.uid] = (pod, yunikorn.amounts_of(self._requests(pod)))
        return known[1]

    def _forget_if_empty(self, group: PodGroupOf) -> None:
        if not group.tasks and not group.active:
            tree.remove_group(group)
            self._groups.pop(group.name, None)
            self._group_ended(group)


def created_at(pod: Pod) -> float:
    """When a pod was created; one that says nothing counts as the oldest."""
    stamp = pod.metadata.creation_timestamp
    return 0.0 if stamp is None else stamp.timestamp()
