"""Which pod is next, by the current shares and limits of the tree of queues.

This replaces the heap of active pods. A heap is ordered when a pod enters it, but shares change with every
binding, so the order is computed here when a pod is popped:

    root ─► the first child by `queue_key` ─► … ─► leaf ─► the first group by `group_key` ─► its first pod

Pods of a leaf that ask for the same amounts for the same owner form a *class*: either all of them fit into
the room, or none, and either all groups of it that have no pod yet may begin, or none. So a pop looks at
queues and classes, never at all pods or groups. A class that does not fit is set aside, and so is a leaf
without any other, until something on its path is freed (`_waiters`), without attempts, events or backoff of
its pods.

A pod group is one entity here, too. It fits if the members that it needs at least do; as many of the others
are popped with it as fit.

What pods use, and to which group they belong, is in `usage.py`; `QueueCache` in `scheduler/` reports them.
`order.py` keeps queues and groups in order, `blocked.py` says which limit keeps a pod out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import SortKey
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts, plus, total
from bayplan.queues.blocked import BlockedPods, Notice
from bayplan.queues.order import MAX_OUTDATED
from bayplan.queues.records import (
    ClassKey,
    GroupEntry,
    GroupPods,
    GroupRequest,
    PodClass,
    PodEntry,
    PodGroupOf,
    PodTask,
    QueueNode,
    Request,
    Shape,
)
from bayplan.queues.tree import Blocking, Order, Queue
from bayplan.queues.usage import QueueTree
from bayplan.queues.users import APPLICATIONS, UserLimits
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.config import PartitionConfig
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.scheduling_queue.queued import Entity, QueuedGroup, QueuedPod, members_of
from bayplan.scheduling_queue.sub_queues import PodHeap
from bayplan.state.groups import GroupKey as PodGroupKey
from bayplan.state.pods import PodInfo


@dataclass(frozen=True, slots=True)
class WaitingAbove:
    """The first entity of a class that waits because the ceiling of a parent queue is reached."""

    leaf: Queue
    blocked_by: Queue
    entity: Entity
    amounts: Amounts
    """What has to fit: of a pod group, what its first members ask for."""
    least: int
    """How many members that are."""
    priority: int


class CapacityQueues(BlockedPods, PodHeap):
    """Active pods in capacity queues.

    Args:
        partition: the tree with its placement rules and limits.
        infos: of a pod; pods with the same signature share one.
        capacity: what all nodes have together, by resource.
        namespace: finds a Namespace object.
        scheduled: the number of members of a pod group that have a node.
    """

    waits_with_nomination: ClassVar[bool] = True
    """Whether a pod that waits for a limit keeps its nomination: its victims may be what uses the limit."""

    def __init__(
        self,
        partition: QueueTree,
        infos: Callable[[Pod], PodInfo],
        capacity: Callable[[], Mapping[str, int]],
        namespace: Callable[[str], Namespace | None] = lambda name: None,
        scheduled: Callable[[PodGroupKey], int] = lambda key: 0,
    ) -> None:
        PodHeap.__init__(self, "active")
        BlockedPods.__init__(self, partition, infos, namespace)
        self._capacity = capacity
        self._is_resized = True
        self._scheduled = scheduled
        self._size = 0
        self._idle: list[PodGroupOf] = []
        """Groups whose last active pod was popped last. It is charged before the next pop, or not at all."""
        self._above: dict[tuple[str, ClassKey], tuple[QueueNode, str]] = {}
        """Classes that wait for the ceiling of a parent: their leaf, and the path of the parent."""
        self.loaded: asyncio.Event | None = None
        """Set once the configuration is known; None if it is."""
        self.check: Callable[[], None] = lambda: None
        """Called after pods were popped; set by the scheduler that owns the queues."""
        self.version = 0
        """Changes with the configuration."""
        self._rejected: dict[str, tuple[Entity, str]] = {}
        """By key of the pod: applications that no queue accepts."""
        self.follow_file: Callable[[Callable[[], None]], Coroutine[Any, Any, None]] | None = None
        """Applies changes of the configuration until it is cancelled, and calls its argument then."""
        self.admit_groups: Callable[[], None] | None = None
        """Admits jobs whose pods do not exist yet, where the dialect has such jobs."""

    # The interface of the heap of active pods

    def __len__(self) -> int:
        return self._size

    def push(self, info: Entity, rank: SortKey) -> None:
        info.sub_queue = self
        self._size += 1
        try:
            request = self._asked(info)
        except PlacementError as error:
            self._rejected[info.key] = (info, error.explained())
            self.notices.append(Notice(info, error.explained()))
            self._update_count()
            return
        group = request.group
        if self._nominated and any(member.pod.uid in self._nominated for member in members_of(info)):
            # A class of its own: something is reserved for it, and not for other pods with this shape.
            request.shape = Shape(request.shape.amounts)
        self._entries += 1
        entry = info.ticket = (rank, info.sequence, self._entries, info, request)
        group.active += 1
        tree.add_pending(group, request.whole, request.priority)
        pods = group.classes.get(request.shape)
        if pods is not None:
            heappush(pods.entries, entry)
            if not group.key or group.priority != group.key_priority or group.created != group.key_created:
                self._reorder_group(group)
        else:
            pods = self._new_pods(group, request.shape)
            pods.entries.append(entry)
            self._reorder_group(group)
            self._enter(pods)
        pod_class = pods.pod_class
        (pod_class.unreported if group.tasks else pod_class.unreported_new)[info] = None
        node = pod_class.node
        node.ready[pod_class] = None
        if not node.is_stale:
            self._mark_stale(node)
        if not node.is_live:
            self._revive(node)
        self.count = self._size

    def _new_pods(self, group: PodGroupOf, shape: Shape) -> GroupPods:
        """The record of a group that has no other active pods of this shape."""
        node, key = self._leaf_of(group), (shape, group.owner)
        pod_class = node.classes.get(key)
        if pod_class is None:
            pod_class = node.classes[key] = PodClass(key, node)
        pods = group.classes[shape] = GroupPods(group, pod_class)
        return pods

    def pop(self) -> Entity | None:
        """The next pod, or None if everything that is active has to wait."""
        self.refresh()
        root = self._nodes.get(self.partition.root.path)
        if root is None or (info := self._pop(root)) is None:
            self._update_count()
            return None
        self.count = self._size
        return info

    def changed(self, info: Entity) -> None:
        if info.sub_queue is self:
            self.remove(info)
            self.push(info, info.sort_key)

    def first(self) -> Entity | None:
        return next(iter(self), None)

    def remove(self, info: Entity) -> None:
        info.sub_queue = None
        self._size -= 1
        if self._rejected.pop(info.key, None) is None:
            entry: PodEntry = info.ticket
            request = entry[-1]
            group = request.group
            pods = group.classes[request.shape]
            self._leave(entry, pods.pod_class)
            if len(pods.entries) > 2 * group.active + MAX_OUTDATED:
                pods.entries[:] = (each for each in pods.entries if each[3].ticket is each)
                heapify(pods.entries)
                if not pods.entries:
                    del group.classes[request.shape]
            self._forget_if_empty(group)
        self._update_count()

    def __iter__(self) -> Iterator[Entity]:
        """The active pods in the order of the tree as it is, those that wait included."""

        def visit(queue: Queue) -> Iterator[Entity]:
            for child in self.ordered_children(queue):
                yield from visit(child)
            for group in self.ordered_groups(queue):
                entries = sorted(entry for pods in group.classes.values() for entry in pods.entries)
                yield from (entry[3] for entry in entries if entry[3].ticket is entry)

        yield from visit(self.partition.root)
        yield from (info for info, _ in self._rejected.values())

    def ordered_children(self, queue: Queue) -> list[Queue]:
        """The children that have something pending, in order."""
        return tree.ordered_children(queue, self._queue_key)

    def ordered_groups(self, queue: Queue) -> list[PodGroupOf]:
        """The groups of a leaf that have something pending, in order."""
        groups = (group for group in queue.groups.values() if isinstance(group, PodGroupOf))
        return sorted((group for group in groups if group.active), key=self._group_key)

    def _update_count(self) -> None:
        """`count` is above 0 if a pop may find a pod, or a notice is to be reported; `len` counts pods."""
        root = self._nodes.get(self.partition.root.path)
        self.count = self._size if self.notices or (root is not None and root.is_live) else 0

    # Use

    def _use_changed(self, group: PodGroupOf) -> None:
        self._reorder_group(group, again=group.queue.policy.order is Order.FAIR)
        node = self._leaf_of(group)
        if not node.is_stale:
            self._mark_stale(node)

    def _freed(self, group: PodGroupOf) -> None:
        self._wake(group.queue)
        self._update_count()

    def _group_ended(self, group: PodGroupOf) -> None:
        queue = group.queue
        while self.partition.remove_if_empty(queue):
            self._nodes.pop(queue.path, None)
            assert queue.parent is not None, "the root is never removed"
            queue = queue.parent

    def capacity_changed(self) -> None:
        """Nodes came, left or changed their size."""
        self._is_resized = True

    def refresh(self) -> None:
        """Brings shares up to date, as a pop would."""
        if self._idle:
            idle, self._idle = self._idle, []
            for group in idle:
                self._forget_if_empty(group)
        if self._is_resized:
            self._resize()
        if self._stale:
            self._reorder_stale()

    def _resize(self) -> None:
        """Takes the capacity of the cluster as the denominator of shares without a guarantee."""
        self._is_resized = False
        capacity = self._capacity()
        tree.limits_changed(self.partition.root)
        self.partition.root.capacity = {**self._amounts(capacity), "pods": capacity.get("pods", 0)}
        for node in list(self._nodes.values()):
            if node.queue.is_leaf:
                self._mark_stale(node)

    def reload(self, config: PartitionConfig) -> None:
        """Applies a new configuration; groups stay in their queues.

        Raises:
            QueueConfigError: it cannot be applied, and nothing changes.
        """
        assert isinstance(self.partition, Partition)
        Partition(config)  # raises before anything has changed
        self.partition.reload(config)
        self.version += 1
        limits = self.partition.user_limits = UserLimits(self.partition.user_limits.limits)
        for group in self._groups.values():
            group.member_of = None
        for task in self._tasks.values() if limits.limits else ():
            limits.charge(task.group, task.amounts)
        rejected, self._rejected = self._rejected, {}
        for info, _ in rejected.values():
            self._size -= 1
            self.push(info, info.sort_key)
        for group in self._groups.values():
            self._reorder_group(group, again=True)
            self._mark_stale(self._node(group.queue))
        self.wake_all()

    def begin_with(self, config: PartitionConfig) -> None:
        """Replaces a configuration that was never in force: everything is placed again.

        Raises:
            QueueConfigError: it cannot be applied, and nothing changes.
        """
        assert isinstance(self.partition, Partition)
        partition = self.partition.with_config(config)
        waiting = list(self)
        assigned = [(task.pod, task.place) for task in self._tasks.values()]
        self.partition = partition
        for each in (self._groups, self._tasks, self._nodes, self._waiters, self._rejected):
            each.clear()
        for every in (self._stale, self._idle, self.notices):
            every.clear()
        self._above.clear()
        self._size, self._is_resized = 0, True
        self.version += 1
        for pod, node_name in assigned:
            self.charge(pod, node_name)
        for info in waiting:
            self.push(info, info.sort_key)
        self._update_count()

    # Groups

    def _asked(self, info: Entity) -> Request:
        """What an entity asks for, with its group.

        Raises:
            PlacementError: no queue takes it.
        """
        if isinstance(info, QueuedPod):
            task = self._read(info.pod)
            task.group = self._groups.get(task.application) or self._group(task)
            return task
        tasks = [self._read(member.pod) for member in info.members]
        names = sorted({task.application for task in tasks})
        if len(names) > 1:
            raise PlacementError(f"pods of one pod group belong to several applications: {', '.join(names)}")
        amounts = [task.amounts for task in tasks]
        least = self.total_shape(amounts[: self._least(info)])
        priority = max(task.priority for task in tasks)
        whole = total(amounts)
        return GroupRequest(self._group(tasks[0]), whole, sum(whole.values()), priority, least)

    def _shape_of(self, info: Entity) -> Shape | None:
        """What has to fit; None if that is not certain."""
        if isinstance(info, QueuedPod):
            return self._look_up(info.pod).shape
        try:
            return self._asked(info).shape
        except PlacementError:
            return None

    def reason(self, pod: Pod, info: Entity | None) -> str:
        """Why an active pod waits now, as a sentence; "" if it has room, or is not active.

        Args:
            info: what waits in a sub-queue for it: itself or its group.
        """
        if info is None or info.sub_queue is not self:
            return ""
        shape = self._shape_of(info)
        found = self.blocking(pod, None if shape is None else shape.amounts)
        return found.sentence() if isinstance(found, Blocking) else found or ""

    def _least(self, info: QueuedGroup) -> int:
        """How many members of a pod group have to be scheduled together now."""
        return max(1, info.group.min_count - self._scheduled(info.group.key)) if info.group.is_gang else 1

    def _leave(self, entry: PodEntry, pod_class: PodClass) -> None:
        """A pod or pod group is no longer active."""
        _, _, _, info, request = entry
        info.ticket = None
        group = request.group
        group.active -= 1
        tree.remove_pending(group, request.whole, request.priority)
        pod_class.unreported.pop(info, None)
        pod_class.unreported_new.pop(info, None)
        if group.priority != group.key_priority:
            self._reorder_group(group)
        node = pod_class.node
        if not node.is_stale:
            self._mark_stale(node)

    # The next pod

    def _pop(self, root: QueueNode) -> Entity | None:
        while root.is_live:
            node = root
            while not node.queue.is_leaf:
                child = _first_child(node)
                if child is None:
                    break
                node = child
            else:
                found = self._pop_from_leaf(node)
                if found is not None:
                    return found
            node.is_live = False
        return None

    def _pop_from_leaf(self, node: QueueNode) -> Entity | None:
        while (pods := self._first_pods(node)) is not None:
            group, entry = pods.group, heappop(pods.entries)
            _, _, _, info, request = entry
            info.sub_queue = None
            self._size -= 1
            pod_class = pods.pod_class
            if not pods.entries:
                del group.classes[request.shape]
                heappop(pod_class.running if group.is_running else pod_class.new)
            self._leave(entry, pod_class)
            is_same = isinstance(request, PodTask) and isinstance(info, QueuedPod) and request.pod is info.pod
            shape = request.shape if is_same else self._shape_of(info)
            if shape is not request.shape and (shape is None or shape.amounts != request.shape.amounts):
                self.push(info, entry[0])  # its pod has changed since it entered
                continue
            if not group.active and not group.tasks:
                self._idle.append(group)
            if isinstance(info, QueuedGroup):
                self._leave_out(info, group)
            return info
        return None

    def _first_pods(self, node: QueueNode) -> GroupPods | None:
        """The pods of a leaf among which the next one is; None if all have to wait."""
        if len(node.ready) == 1:
            return self._first_of_class(node, next(iter(node.ready)))
        best: GroupPods | None = None
        for pod_class in list(node.ready):
            pods = self._first_of_class(node, pod_class)
            if pods is not None and (best is None or _precedes(pods, best)):
                best = pods
        return best

    def _leave_out(self, info: QueuedGroup, group: PodGroupOf) -> None:
        """Leaves members out that have no room, beside those that have to be scheduled together."""
        taken: dict[str, int] = {}
        members, info.members, least = info.members, [], self._least(info)
        for member in members:
            asked = plus(taken, self.amounts_of(member.pod))
            if len(info.members) < least or self._blocking(group, asked) is None:
                info.members.append(member)
                taken = asked
            else:
                info.left_out.append(member)

    def _first_of_class(self, node: QueueNode, each: PodClass) -> GroupPods | None:
        """The pods of the first group of a class that may take one; sets a class aside that is blocked."""
        running = _head(each.running) if each.running else None
        new = _head(each.new) if each.new else None
        first = running or new
        if first is None:
            del node.classes[each.key], node.ready[each]
            return None
        shape = each.key[0]
        blocking = self._blocking(first.group, shape.amounts)
        if blocking is None and self._nominated:
            pods = (member.pod for member in members_of(first.entries[0][3]))
            blocking = self._blocking_reserved(first.group, shape.amounts, pods)
        if blocking is None:
            if new is None or (running is not None and running.group.key <= new.group.key):
                return running
            blocking = self._first_full(new.group)
            if blocking is None and self._nominated:
                pods = (member.pod for member in members_of(new.entries[0][3]))
                blocking = self._first_full_reserved(new.group, pods)
            if blocking is None:
                return new
            self._report(each, blocking, new_only=True)
        else:
            self._report(each, blocking)
        self._waiters.setdefault(blocking.queue, {})[node.queue.path] = node
        if running is None or blocking.kind != APPLICATIONS:
            del node.ready[each]
            is_ceiling = not blocking.user and not blocking.user_group and blocking.kind != APPLICATIONS
            if is_ceiling and blocking.queue != node.queue.path:
                self._above[node.queue.path, each.key] = (node, blocking.queue)
            return None
        return running

    def waiting_above(self) -> Iterator[WaitingAbove]:
        """The classes that wait for the ceiling of a parent queue now."""
        for (path, key), (node, blocked_by) in list(self._above.items()):
            each, parent = node.classes.get(key), self.partition.find(blocked_by)
            pods = None
            if each is not None and each not in node.ready and parent is not None:
                pods = _head(each.running) or _head(each.new)
            if pods is None or parent is None:
                del self._above[path, key]
                continue
            entity = pods.entries[0][3]
            least = self._least(entity) if isinstance(entity, QueuedGroup) else 1
            priority = max(member.pod.priority for member in members_of(entity))
            yield WaitingAbove(node.queue, parent, entity, key[0].amounts, least, priority)

    @property
    def preempts(self) -> bool:
        """Whether a queue may take what it is entitled to from others."""
        return getattr(self.partition, "preempts", False)

    @property
    def enforces_quota(self) -> bool:
        """Whether a lowered maximum evicts pods."""
        return getattr(self.partition, "enforces_quota", False)


def _first_child(node: QueueNode) -> QueueNode | None:
    """The first child in which something may be popped; removes outdated entries."""
    children = node.children
    while children:
        entry = children[0]
        child: QueueNode = entry[-1]
        if child.is_live and child.entry is entry:
            return child
        heappop(children)
    return None


def _head(heap: list[GroupEntry]) -> GroupPods | None:
    """The pods of the first group; removes outdated entries."""
    while heap:
        entry = heap[0]
        pods: GroupPods = entry[-1]
        if entry is pods.entry:
            entries = pods.entries
            while entries and entries[0][3].ticket is not entries[0]:
                heappop(entries)
            if entries:
                return pods
            shape, group = pods.pod_class.key[0], pods.group
            if group.classes.get(shape) is pods:
                del group.classes[shape]
        heappop(heap)
    return None


def _precedes(pods: GroupPods, others: GroupPods) -> bool:
    """Whether the next pod comes from these pods rather than from others of the leaf."""
    return (pods.group.key, pods.entries[0][:3]) < (others.group.key, others.entries[0][:3])
