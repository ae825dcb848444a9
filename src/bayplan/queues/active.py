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
from heapq import heappop, heappush
from typing import Any

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import SortKey
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts, is_positive, plus, total
from bayplan.queues.blocked import BlockedPods, GroupRequest, Notice
from bayplan.queues.order import GroupHeap, PodClass, QueueNode
from bayplan.queues.tree import Blocking, GroupKey, Order, Queue
from bayplan.queues.usage import ClassKey, PodEntry, PodGroupOf, PodTask, QueueTree, Shape
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
        ticket = info.ticket = self._entries = self._entries + 1
        info.sub_queue = self
        self._size += 1
        try:
            request = self._asked(info)
        except PlacementError as error:
            self._rejected[info.key] = (info, error.explained())
            self.notices.append(Notice(info, error.explained()))
            self._update_count()
            return
        group, shape = request.group, request.shape
        key, node = (shape, group.owner), self._node(group.queue)
        group.active += 1
        self._active[ticket] = request
        self._entities[ticket] = info
        entry, pods = (rank, info.sequence, ticket, info), group.classes.get(key)
        if pods is None:
            group.classes[key] = [entry]
        else:
            heappush(pods, entry)
        tree.add_pending(group, request.amounts, request.priority)
        known = node.classes.get(key)
        if known is None:
            known = node.classes[key] = PodClass(shape.amounts)
        node.ready[key] = known
        unreported = known.unreported if group.tasks else known.unreported_new
        unreported.append(ticket)
        if len(unreported) > known.max_unreported:
            self._prune_unreported(known)
        is_moved = group.priority != group.key_priority or group.created != group.key_created
        if (pods is None or is_moved) and not self._reorder_group(group) and pods is None:
            self._enter(node, group, key)
        if not node.is_stale:
            self._mark_stale(node)
        if not node.is_live:
            self._revive(node)
        self.count = self._size

    def pop(self) -> Entity | None:
        """The next pod, or None if everything that is active has to wait."""
        self.refresh()
        root = self._nodes.get(self.partition.root.path)
        info = None if root is None else self._pop(root)
        self._update_count()
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
            self._forget_if_empty(self._leave(info))
        self._update_count()

    def __iter__(self) -> Iterator[Entity]:
        """The active pods in the order of the tree as it is, those that wait included."""

        def visit(queue: Queue) -> Iterator[Entity]:
            for child in self.ordered_children(queue):
                yield from visit(child)
            for group in self.ordered_groups(queue):
                entries = sorted(entry for heap in group.classes.values() for entry in heap)
                yield from (entry[3] for entry in entries if self._is_current(entry))

        yield from visit(self.partition.root)
        yield from (info for info, _ in self._rejected.values())

    def ordered_children(self, queue: Queue) -> list[Queue]:
        """The children that have something pending, in order."""
        return tree.ordered_children(queue, self._queue_key)

    def ordered_groups(self, queue: Queue) -> list[PodGroupOf]:
        """The groups of a leaf that have something pending, in order."""
        groups = (group for group in queue.groups.values() if isinstance(group, PodGroupOf))
        return sorted((group for group in groups if is_positive(group.pending)), key=self._group_key)

    def _is_current(self, entry: tuple[SortKey, int, int, Entity]) -> bool:
        return entry[3].ticket == entry[2] and entry[3].sub_queue is self

    def _update_count(self) -> None:
        """`count` is above 0 if a pop may find a pod, or a notice is to be reported; `len` counts pods."""
        root = self._nodes.get(self.partition.root.path)
        self.count = self._size if self.notices or (root is not None and root.is_live) else 0

    # Use

    def _use_changed(self, group: PodGroupOf) -> None:
        self._reorder_group(group, again=group.queue.policy.order is Order.FAIR)
        self._mark_stale(self._node(group.queue))

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
        for each in (self._groups, self._tasks, self._nodes, self._active, self._waiters, self._rejected):
            each.clear()
        self._entities.clear()
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

    def _asked(self, info: Entity) -> PodTask | GroupRequest:
        """What an entity asks for, with its group.

        Raises:
            PlacementError: no queue takes it.
        """
        if isinstance(info, QueuedPod):
            task = self._read(info.pod)
            self._group(task)
            return task
        tasks = [self._read(member.pod) for member in info.members]
        names = sorted({task.application for task in tasks})
        if len(names) > 1:
            raise PlacementError(f"pods of one pod group belong to several applications: {', '.join(names)}")
        amounts = [task.amounts for task in tasks]
        least = self.total_shape(amounts[: self._least(info)])
        priority = max(task.priority for task in tasks)
        return GroupRequest(self._group(tasks[0]), total(amounts), priority, least)

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

    def _leave(self, info: Entity) -> PodGroupOf:
        """A pod or pod group is no longer active."""
        request = self._active.pop(info.ticket)
        del self._entities[info.ticket]
        group = request.group
        group.active -= 1
        tree.remove_pending(group, request.amounts, request.priority)
        if group.priority != group.key_priority:
            self._reorder_group(group)
        node = self._nodes[group.queue.path]
        if not node.is_stale:
            self._mark_stale(node)
        return group

    # The next pod

    def _pop(self, root: QueueNode) -> Entity | None:
        while root.is_live:
            node = root
            while not node.queue.is_leaf:
                child = self._first_child(node)
                if child is None:
                    break
                node = child
            else:
                found = self._pop_from_leaf(node)
                if found is not None:
                    return found
            node.is_live = False
        return None

    def _first_child(self, node: QueueNode) -> QueueNode | None:
        """The first child in which something may be popped; removes outdated entries."""
        children = node.children
        while children:
            entry = children[0]
            child: QueueNode = entry[-1]
            if child.is_live and child.entry is entry:
                return child
            heappop(children)
        return None

    def _pop_from_leaf(self, node: QueueNode) -> Entity | None:
        while True:
            best: tuple[GroupKey, PodEntry, ClassKey, PodGroupOf] | None = None
            for key, each in list(node.ready.items()):
                group = self._first_group(node, key, each)
                if group is not None:
                    entry = group.classes[key][0]
                    if best is None or (group.key, entry[:3]) < (best[0], best[1][:3]):
                        best = (group.key, entry, key, group)
            if best is None:
                return None
            _, entry, key, group = best
            pods = group.classes[key]
            heappop(pods)
            if not pods:
                del group.classes[key]
                each = node.ready[key]
                heappop(each.running if group.is_running else each.new)
            info = entry[3]
            info.sub_queue = None
            self._size -= 1
            request = self._active[entry[2]]
            self._leave(info)
            is_same = isinstance(request, PodTask) and isinstance(info, QueuedPod) and request.pod is info.pod
            if not is_same and self._shape_of(info) is not request.shape:
                self.push(info, entry[0])  # its pod has changed since it entered
                continue
            if not group.active and not group.tasks:
                self._idle.append(group)
            if isinstance(info, QueuedGroup):
                self._leave_out(info, group)
            return info

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

    def _first_group(self, node: QueueNode, key: ClassKey, each: PodClass) -> PodGroupOf | None:
        """The first group of a class that may take a pod; sets a class aside that is blocked."""
        running = self._head(each.running, key, is_running=True) if each.running else None
        new = self._head(each.new, key, is_running=False) if each.new else None
        first = running or new
        if first is None:
            del node.classes[key], node.ready[key]
            return None
        blocking = self._blocking(first, each.amounts)
        if blocking is None:
            if new is None or (running is not None and running.key <= new.key):
                return running
            blocking = self._first_full(new)
            if blocking is None:
                return new
            self._report(each, blocking, new_only=True)
        else:
            self._report(each, blocking)
        self._waiters.setdefault(blocking.queue, {})[node.queue.path] = node
        if running is None or blocking.kind != APPLICATIONS:
            del node.ready[key]
            is_ceiling = not blocking.user and not blocking.user_group and blocking.kind != APPLICATIONS
            if is_ceiling and blocking.queue != node.queue.path:
                self._above[node.queue.path, key] = (node, blocking.queue)
            return None
        return running

    def _head(self, heap: GroupHeap, key: ClassKey, *, is_running: bool) -> PodGroupOf | None:
        """The first group with a pod of this class; removes outdated entries."""
        while heap:
            rank, _, group = heap[0]
            if rank == group.key and group.is_running is is_running:
                pods = group.classes.get(key)
                while pods and not self._is_current(pods[0]):
                    heappop(pods)
                if pods:
                    return group
                group.classes.pop(key, None)
            heappop(heap)
        return None

    def waiting_above(self) -> Iterator[WaitingAbove]:
        """The classes that wait for the ceiling of a parent queue now."""
        for (path, key), (node, blocked_by) in list(self._above.items()):
            each, parent = node.classes.get(key), self.partition.find(blocked_by)
            group = None
            if each is not None and key not in node.ready and parent is not None:
                running = self._head(each.running, key, is_running=True)
                group = running or self._head(each.new, key, is_running=False)
            if group is None or parent is None:
                del self._above[path, key]
                continue
            entity = group.classes[key][0][3]
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
