"""The queue of queues: which pod is next, by the shares and limits of the tree at this moment.

This takes the place of the heap of active pods. A heap is ordered when a pod enters; shares change with every
binding, so here the order is found when a pod is popped:

    root ─► the first child by `queue_key` ─► … ─► leaf ─► the first group by `group_key` ─► its first pod

Pods of a leaf that ask for the same amounts for the same owner form a *class*: either all of them fit into
the room, or none. So a pop looks at queues and classes, never at all pods. A leaf in which no class fits is
set aside until something on its path is freed (`_waiters`), without attempts, events or backoff of its pods.

What pods use, and to which group they belong, is in `usage.py`; `QueueCache` in `scheduler/` reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import SortKey
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts, fits, total
from bayplan.queues.tree import Blocking, GroupKey, Queue, QueueKey
from bayplan.queues.usage import ClassKey, PodEntry, PodGroupOf, QueueUsage, Requests
from bayplan.queues.users import UserLimits
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.config import VCORE, PartitionConfig
from bayplan.queues.yunikorn.placement import PlacementError
from bayplan.scheduling_queue.queued import Entity, QueuedGroup, QueuedPod, members_of
from bayplan.scheduling_queue.sub_queues import PodHeap

MAX_REPORTED_AT_ONCE: Final = 100
"""How many pods are told in one pop that they wait; the others follow with the next one."""


@dataclass(slots=True)
class _Class:
    """Active pods of a leaf that either all fit into the room, or none."""

    amounts: Amounts
    groups: list[tuple[GroupKey, int, PodGroupOf]] = field(default_factory=list)
    """A heap; an entry with another key than that of its group is outdated."""
    unreported: list[Entity] = field(default_factory=list)
    blocking: Blocking | None = None


@dataclass(slots=True)
class _Node:
    """What is known of a queue for finding the next pod."""

    queue: Queue
    is_live: bool = False
    """Whether something below may be popped."""
    key: QueueKey | None = None
    children: list[tuple[QueueKey, int, Queue]] = field(default_factory=list)
    """A heap; an entry with another key than that of its queue is outdated."""
    classes: dict[ClassKey, _Class] = field(default_factory=dict)
    held: dict[str, PodGroupOf] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """A pod has to wait, and why."""

    info: Entity
    message: str


class CapacityQueues(QueueUsage, PodHeap):
    """Active pods in capacity queues.

    Args:
        partition: the tree with its placement rules and limits.
        requests: of a pod.
        capacity: what all nodes have together, by resource.
        namespace: finds a Namespace object.
    """

    def __init__(
        self,
        partition: Partition,
        requests: Requests,
        capacity: Callable[[], Mapping[str, int]],
        namespace: Callable[[str], Namespace | None] = lambda name: None,
    ) -> None:
        PodHeap.__init__(self, "active")
        QueueUsage.__init__(self, partition, requests, namespace)
        self._capacity = capacity
        self._is_resized = True
        self._nodes: dict[str, _Node] = {}
        self._active: dict[int, tuple[PodGroupOf, Amounts, int]] = {}
        """By ticket: the group of an active entity, what it asks for, and its priority when it entered."""
        self._size = 0
        self._entries = 0
        self._stale: dict[str, Queue] = {}
        """Leaves whose path has changed since the last pop."""
        self._waiters: dict[str, set[str]] = {}
        """By path: leaves that wait for a limit there."""
        self._rejected: dict[str, tuple[Entity, str]] = {}
        """By key of the pod: applications that no queue takes."""
        self.notices: list[Notice] = []
        """Pods that have to wait, not reported yet."""
        self.follow_file: Callable[[Callable[[], None]], Coroutine[Any, Any, None]] | None = None
        """Applies changes of the configuration until it is cancelled, and calls its argument then."""

    # The interface of the heap of active pods

    def __len__(self) -> int:
        return self._size

    def push(self, info: Entity, rank: SortKey) -> None:
        self._entries += 1
        info.sub_queue = self
        info.ticket = self._entries
        self._size += 1
        try:
            group = self.group_of(members_of(info)[0].pod)
        except PlacementError as error:
            self._rejected[info.key] = (info, str(error))
            self.notices.append(Notice(info, str(error)))
            self._update_count()
            return
        amounts, priority = self._asked(info)
        key = (frozenset(amounts.items()), group.user, group.user_groups)
        group.active += 1
        self._active[info.ticket] = (group, amounts, priority)
        heappush(group.classes.setdefault(key, []), (rank, info.sequence, info.ticket, info))
        tree.add_pending(group, amounts, priority)
        node = self._node(group.queue)
        known = node.classes.get(key)
        if known is None:
            known = node.classes[key] = _Class(amounts)
        known.unreported.append(info)
        if not self._reorder_group(group):
            self._enter(group, key)
        self._reorder_path(group.queue)
        self._revive(group.queue)
        self.count = self._size

    def pop(self) -> Entity | None:
        """The next pod, or None if everything that is active has to wait."""
        self.refresh()
        info = self._pop(self.partition.root)
        self._update_count()
        return info

    def first(self) -> Entity | None:
        return next(iter(self), None)

    def remove(self, info: Entity) -> None:
        info.sub_queue = None
        self._size -= 1
        if self._rejected.pop(info.key, None) is None:
            self._leave(info)
        self._update_count()

    def __iter__(self) -> Iterator[Entity]:
        """The active pods in the order of the tree as it is, those that wait included."""

        def visit(queue: Queue) -> Iterator[Entity]:
            for child in tree.ordered_children(queue):
                yield from visit(child)
            for group in tree.ordered_groups(queue):
                assert isinstance(group, PodGroupOf)
                entries = sorted(entry for heap in group.classes.values() for entry in heap)
                yield from (entry[3] for entry in entries if self._is_current(entry))

        yield from visit(self.partition.root)
        yield from (info for info, _ in self._rejected.values())

    def _is_current(self, entry: tuple[SortKey, int, int, Entity]) -> bool:
        return entry[3].ticket == entry[2] and entry[3].sub_queue is self

    def _update_count(self) -> None:
        """`count` is above 0 if a pop may find a pod, or a notice is to be reported; `len` counts pods."""
        root = self._nodes.get(self.partition.root.path)
        self.count = self._size if self.notices or (root is not None and root.is_live) else 0

    def take_notices(self) -> list[tuple[QueuedPod, str]]:
        """Pods that have to wait and were not reported yet, with the reason."""
        notices, self.notices = self.notices, []
        return [(member, notice.message) for notice in notices for member in members_of(notice.info)]

    def resources_by_state(self) -> dict[tuple[str, str, str], float]:
        """The amounts of every queue, by queue, state (as YuniKorn calls it) and resource."""
        found: dict[tuple[str, str, str], float] = {}
        for queue in self.partition.root.downwards():
            states: dict[str, Amounts | None] = {
                "allocated": queue.used,
                "pending": queue.pending,
                "preempting": queue.leaving,
                "guaranteed": queue.guaranteed,
                "max": queue.ceiling,
            }
            for state, amounts in states.items():
                for kind, amount in (amounts or {}).items():
                    found[queue.path, state, kind] = float(amount)
        return found

    # Use

    def _use_changed(self, group: PodGroupOf) -> None:
        self._reorder_group(group)
        self._reorder_path(group.queue)

    def _freed(self, group: PodGroupOf) -> None:
        self._wake(group.queue)
        self._update_count()

    def _group_ended(self, group: PodGroupOf) -> None:
        self._node(group.queue).held.pop(group.name, None)

    def capacity_changed(self) -> None:
        """Nodes came, left or changed their size."""
        self._is_resized = True

    def refresh(self) -> None:
        """Brings shares up to date, as a pop would."""
        if self._is_resized:
            self._resize()
        if self._stale:
            self._reorder_stale()

    def _resize(self) -> None:
        """Takes the capacity of the cluster as the denominator of shares without a guarantee."""
        self._is_resized = False
        self.partition.root.capacity = {
            VCORE if kind == "cpu" else kind: amount for kind, amount in self._capacity().items() if amount
        }
        for node in list(self._nodes.values()):
            if node.queue.is_leaf:
                self._reorder_path(node.queue)

    def reload(self, config: PartitionConfig) -> None:
        """Applies a new configuration; groups stay in their queues.

        Raises:
            QueueConfigError: it cannot be applied, and nothing changes.
        """
        Partition(config)  # raises before anything has changed
        self.partition.reload(config)
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
            self._reorder_group(group)
            self._reorder_path(group.queue)
        self.wake_all()

    # Groups

    def _asked(self, info: Entity) -> tuple[Amounts, int]:
        """What a pod, or all members of a pod group, ask for, and the highest priority."""
        members = members_of(info)
        if len(members) == 1:
            return self.amounts_of(members[0].pod), members[0].pod.priority
        amounts = total(self.amounts_of(member.pod) for member in members)
        return amounts, max(member.pod.priority for member in members)

    def _leave(self, info: Entity) -> None:
        """A pod or group is no longer active."""
        group, amounts, priority = self._active.pop(info.ticket)
        group.active -= 1
        tree.remove_pending(group, amounts, priority)
        self._reorder_group(group)
        self._reorder_path(group.queue)
        self._forget_if_empty(group)

    # Order

    def _node(self, queue: Queue) -> _Node:
        node = self._nodes.get(queue.path)
        if node is None:
            node = self._nodes[queue.path] = _Node(queue)
        return node

    def _reorder_group(self, group: PodGroupOf) -> bool:
        """Enters a group again if its key has changed. False if it has not."""
        key = tree.group_key(group)
        if key == group.key:
            return False
        group.key = key
        for each in group.classes:
            self._enter(group, each)
        return True

    def _enter(self, group: PodGroupOf, key: ClassKey) -> None:
        self._entries += 1
        known = self._node(group.queue).classes.get(key)
        if known is not None:
            heappush(known.groups, (group.key, self._entries, group))

    def _reorder_path(self, leaf: Queue) -> None:
        """Something on the path of this leaf has changed; the next pop compares its queues again."""
        self._stale[leaf.path] = leaf

    def _reorder_stale(self) -> None:
        stale, self._stale = self._stale, {}
        seen: set[str] = set()
        for leaf in stale.values():
            for queue in leaf.path_up[:-1]:
                if queue.path in seen:
                    break
                seen.add(queue.path)
                node, key = self._node(queue), tree.queue_key(queue)
                if node.key != key:
                    node.key = key
                    if node.is_live:
                        self._offer(node)

    def _offer(self, node: _Node) -> None:
        parent = node.queue.parent
        assert parent is not None
        if node.key is None:
            node.key = tree.queue_key(node.queue)
        self._entries += 1
        heappush(self._node(parent).children, (node.key, self._entries, node.queue))

    def _revive(self, leaf: Queue) -> None:
        """Something in this leaf may be popped."""
        node = self._node(leaf)
        for group in node.held.values():
            group.is_held = False
            for key in group.classes:
                self._enter(group, key)
        node.held.clear()
        for queue in leaf.upwards():
            each = self._node(queue)
            if each.is_live:
                return
            each.is_live = True
            if queue.parent is not None:
                self._offer(each)

    def _wake(self, leaf: Queue) -> None:
        """Something was freed on the path of this leaf."""
        for queue in leaf.upwards():
            for path in self._waiters.pop(queue.path, ()):
                waiting = self.partition.find(path)
                if waiting is not None:
                    self._revive(waiting)

    def wake_all(self) -> None:
        """Limits have changed."""
        self._waiters.clear()
        for node in list(self._nodes.values()):
            if node.queue.is_leaf and node.classes:
                self._revive(node.queue)
        self._update_count()

    # The next pod

    def _pop(self, queue: Queue) -> Entity | None:
        node = self._nodes.get(queue.path)
        if node is None or not node.is_live:
            return None
        if queue.is_leaf:
            found = self._pop_from_leaf(node)
            if found is None:
                node.is_live = False
            return found
        children = node.children
        while children:
            key, _, child = children[0]
            below = self._nodes[child.path]
            if below.key != key or not below.is_live:
                heappop(children)
                continue
            found = self._pop(child)
            if found is not None:
                return found
            below.is_live = False
        node.is_live = False
        return None

    def _pop_from_leaf(self, node: _Node) -> Entity | None:
        leaf = node.queue
        room = tree.room(leaf)
        best: tuple[GroupKey, PodEntry, ClassKey, PodGroupOf] | None = None
        for key, each in list(node.classes.items()):
            group = self._head(node, each, key)
            if group is None:
                continue
            blocking = self._blocking(group, each.amounts, room)
            if blocking is not None:
                self._report(each, blocking)
                self._waiters.setdefault(blocking.queue, set()).add(leaf.path)
                continue
            entry = group.classes[key][0]
            if best is None or (group.key, entry[:3]) < (best[0], best[1][:3]):
                best = (group.key, entry, key, group)
        if best is None:
            return None
        _, entry, key, group = best
        heappop(group.classes[key])
        info = entry[3]
        info.sub_queue = None
        self._size -= 1
        if not group.classes[key]:
            del group.classes[key]
        asked = self._active[info.ticket][1]
        self._leave(info)
        if isinstance(info, QueuedGroup) and self._asked(info)[0] != asked:
            # Members have joined or left since it entered.
            self.push(info, entry[0])
            return self._pop_from_leaf(node)
        return info

    def _head(self, node: _Node, each: _Class, key: ClassKey) -> PodGroupOf | None:
        """The first group with a pod of this class that may run; removes outdated entries."""
        groups = each.groups
        while groups:
            rank, _, group = groups[0]
            pods = group.classes.get(key)
            while pods and not self._is_current(pods[0]):
                heappop(pods)
            if not pods or rank != group.key or group.is_held:
                if pods is not None and not pods:
                    del group.classes[key]
                heappop(groups)
                continue
            full = None if group.tasks else self._first_full(group)
            if full is None:
                return group
            group.is_held = True
            node.held[group.name] = group
            heappop(groups)
            self._report(each, full)
            self._waiters.setdefault(full.queue, set()).add(node.queue.path)
        del node.classes[key]
        if any(key in group.classes for group in node.held.values()):
            node.classes[key] = each
        return None

    def _first_full(self, group: PodGroupOf) -> Blocking | None:
        full = tree.first_full(group.queue, group.name)
        if full is not None:
            return Blocking(full.path, "applications", full.running, 1, full.max_groups)
        return self.partition.user_limits.first_full(group)

    def _blocking(self, group: PodGroupOf, amounts: Amounts, room: Amounts | None) -> Blocking | None:
        if not fits(room, amounts):
            return tree.blocking(group.queue, amounts)
        if self.partition.user_limits.limits:
            return self.partition.user_limits.blocking(group, amounts)
        return None

    def blocking(self, pod: Pod) -> Blocking | str | None:
        """What keeps a pod waiting now: a limit, or the text why no queue takes it; None if it has room."""
        try:
            group = self.group_of(pod)
        except PlacementError as error:
            return str(error)
        found = self._blocking(group, self.amounts_of(pod), tree.room(group.queue))
        if found is None and not group.tasks:
            found = self._first_full(group)
        self._forget_if_empty(group)
        return found

    def reason(self, pod: Pod, info: Entity | None) -> str:
        """Why an active pod waits now, as a sentence; "" if it has room, or is not active."""
        if info is None or info.sub_queue is not self:
            return ""
        found = self.blocking(pod)
        return found.sentence() if isinstance(found, Blocking) else found or ""

    def _report(self, each: _Class, blocking: Blocking) -> None:
        each.blocking = blocking
        waiting, each.unreported = each.unreported, each.unreported[MAX_REPORTED_AT_ONCE:]
        for info in waiting[:MAX_REPORTED_AT_ONCE]:
            if info.sub_queue is self:
                self.notices.append(Notice(info, blocking.sentence()))
