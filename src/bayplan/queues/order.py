"""The order of queues and groups, kept up to date as use changes.

Each queue is an entry in a heap of its parent, each group in heaps of its leaf. A change of use marks its
leaf, and the next pop compares the queues of marked paths again (`_reorder_stale`). Outdated entries stay
in their heaps until they come to the top, or are too many.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappush, heapreplace
from typing import Any, Final

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts
from bayplan.queues.tree import GroupKey, Queue, QueueKey
from bayplan.queues.usage import ClassKey, PodGroupOf, QueueTree, QueueUsage
from bayplan.state.pods import PodInfo

GroupHeap = list[tuple[GroupKey, int, PodGroupOf]]
"""An entry with another key than that of its group, or in the wrong heap of its class, is outdated."""

_MAX_OUTDATED: Final = 64


@dataclass(slots=True)
class PodClass:
    """Active pods of a leaf that either all fit into the room, or none."""

    amounts: Amounts
    running: GroupHeap = field(default_factory=list)
    """Groups with a task."""
    new: GroupHeap = field(default_factory=list)
    """Groups without one; they may be kept from beginning."""
    unreported: list[int] = field(default_factory=list)
    """By ticket; some of its pods have left the class since."""
    unreported_new: list[int] = field(default_factory=list)
    """Pods of groups that had no task when they entered."""
    max_unreported: int = _MAX_OUTDATED
    """The length of these lists at which pods that have left are removed."""


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
    ready: dict[ClassKey, PodClass] = field(default_factory=dict)
    """Those that are not known to be blocked."""


class QueueOrder(QueueUsage):
    """Which queues and groups are first."""

    def __init__(
        self,
        partition: QueueTree,
        infos: Callable[[Pod], PodInfo],
        namespace: Callable[[str], Namespace | None],
    ) -> None:
        super().__init__(partition, infos, namespace)
        self._nodes: dict[str, QueueNode] = {}
        self._entries = 0
        self._stale: list[QueueNode] = []
        """Leaves whose path has changed since the last pop."""
        self._waiters: dict[str, dict[str, QueueNode]] = {}
        """By path: leaves that wait for a limit there, by their path."""

    def share(self, queue: Queue) -> float:
        """How much of what it is entitled to a queue uses, by the dialect; the lowest share is first."""
        return tree.share(queue)

    def _queue_key(self, queue: Queue) -> QueueKey:
        """The position of a queue among its siblings, by the dialect."""
        return tree.queue_key(queue)

    def _group_key(self, group: PodGroupOf) -> GroupKey:
        """The position of a group in its leaf, by the dialect."""
        return tree.group_key(group)

    @abstractmethod
    def _update_count(self) -> None:
        """What may be popped has changed."""

    def _node(self, queue: Queue) -> QueueNode:
        node = self._nodes.get(queue.path)
        if node is None:
            parent = None if queue.parent is None else self._node(queue.parent)
            node = self._nodes[queue.path] = QueueNode(queue, parent)
        return node

    def _reorder_group(self, group: PodGroupOf, *, again: bool = False) -> bool:
        """Enters a group again if its position has changed. False if it has not.

        Args:
            again: its use or queue has changed; otherwise only its priority, time and first task may have.
        """
        is_running = bool(group.tasks)
        if (
            not again
            and group.key_priority == group.priority
            and group.key_created == group.created
            and group.is_running is is_running
            and group.key
        ):
            return False
        key = self._group_key(group)
        if key == group.key and is_running is group.is_running:
            return False
        group.key, group.is_running = key, is_running
        group.key_priority, group.key_created = group.priority, group.created
        if group.classes:
            node = self._node(group.queue)
            for each in group.classes:
                self._enter(node, group, each)
        return True

    def _enter(self, node: QueueNode, group: PodGroupOf, key: ClassKey) -> None:
        known = node.classes.get(key)
        if known is None:
            known = node.classes[key] = PodClass(key[0].amounts)
        if key not in node.ready:
            node.ready[key] = known
            self._revive(node)
        self._entries += 1
        heap = known.running if group.is_running else known.new
        entry = (group.key, self._entries, group)
        if heap and heap[0][2] is group:
            heapreplace(heap, entry)
            return
        heappush(heap, entry)
        if len(heap) > 2 * len(node.queue.groups) + _MAX_OUTDATED:
            current = {id(entry[2]): entry for entry in heap if self._is_ranked(entry, key)}
            heap[:] = current.values()
            heapify(heap)

    def _is_ranked(self, entry: tuple[GroupKey, int, PodGroupOf], key: ClassKey) -> bool:
        group = entry[2]
        return entry[0] == group.key and key in group.classes

    def _mark_stale(self, leaf: QueueNode) -> None:
        """Something on the path of this leaf has changed; the next pop compares its queues again."""
        if not leaf.is_stale:
            leaf.is_stale = True
            self._stale.append(leaf)

    def _reorder_stale(self) -> None:
        stale, self._stale = self._stale, []
        seen = set[QueueNode]()
        for leaf in stale:
            leaf.is_stale = False
            node, parent = leaf, leaf.parent
            while parent is not None and node not in seen:
                seen.add(node)
                key = self._queue_key(node.queue)
                if node.key != key:
                    node.key = key
                    if node.is_live:
                        self._offer(node)
                node, parent = parent, parent.parent

    def _offer(self, node: QueueNode) -> None:
        parent = node.parent
        assert parent is not None
        if node.key is None:
            node.key = self._queue_key(node.queue)
        self._entries += 1
        heap, last = parent.children, node.entry
        entry = node.entry = (*node.key, self._entries, node)
        if heap and heap[0] is last:
            heapreplace(heap, entry)
            return
        heappush(heap, entry)
        if len(heap) > 2 * len(parent.queue.children) + _MAX_OUTDATED:
            heap[:] = (each for each in heap if each is each[-1].entry)
            heapify(heap)

    def _revive(self, node: QueueNode | None) -> None:
        """Something in this leaf may be popped."""
        while node is not None and not node.is_live:
            node.is_live = True
            if node.parent is not None:
                self._offer(node)
            node = node.parent

    def _wake(self, leaf: Queue) -> None:
        """Something was freed on the path of this leaf."""
        waiters = self._waiters
        for queue in leaf.path_up if waiters else ():
            for waiting in waiters.pop(queue.path, {}).values():
                self._wake_leaf(waiting)

    def _wake_leaf(self, node: QueueNode) -> None:
        if node.classes:
            node.ready = dict(node.classes)
            self._revive(node)

    def wake_all(self) -> None:
        """Limits have changed."""
        self._waiters.clear()
        for node in list(self._nodes.values()):
            self._wake_leaf(node)
        self._update_count()
