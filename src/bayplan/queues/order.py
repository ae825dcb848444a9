"""The order of queues and groups, kept up to date as use changes.

Each queue is an entry in a heap of its parent, each group in heaps of its leaf. A change of use marks its
leaf, and the next pop compares the queues of marked paths again (`_reorder_stale`). Outdated entries stay
in their heaps until they come to the top, or are too many.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from heapq import heapify, heappush, heapreplace
from typing import Final

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.queues import tree
from bayplan.queues.records import GroupPods, PodGroupOf, QueueNode
from bayplan.queues.tree import GroupKey, Queue, QueueKey
from bayplan.queues.usage import QueueTree, QueueUsage
from bayplan.state.pods import PodInfo

MAX_OUTDATED: Final = 64
"""Outdated entries of a heap, above the number of current ones, at which they are removed."""


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
        """The position of a group in its leaf, by the dialect; () if nothing of it is active."""
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

    def _leaf_of(self, group: PodGroupOf) -> QueueNode:
        """The node of the leaf of a group."""
        node = group.node
        if node is None:
            node = group.node = self._node(group.queue)
        return node

    def _reorder_group(self, group: PodGroupOf, *, again: bool = False) -> None:
        """Enters a group again if its position has changed.

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
            return
        key = self._group_key(group)
        if key == group.key and is_running is group.is_running:
            return
        group.key, group.is_running = key, is_running
        group.key_priority, group.key_created = group.priority, group.created
        if key:
            for pods in group.classes.values():
                self._enter(pods)

    def _enter(self, pods: GroupPods) -> None:
        """Puts a group with active pods in its place among the groups of their class.

        Something of the class may be popped then, even if it was set aside: the first task of a group frees
        its others of the limit on the number of groups.
        """
        group, pod_class = pods.group, pods.pod_class
        node = pod_class.node
        if pod_class not in node.ready:
            node.ready[pod_class] = None
            self._revive(node)
        self._entries += 1
        heap, last = pod_class.running if group.is_running else pod_class.new, pods.entry
        entry = pods.entry = (*group.key, self._entries, pods)
        if heap and heap[0] is last:
            heapreplace(heap, entry)
            return
        heappush(heap, entry)
        if len(heap) > 2 * len(group.queue.groups) + MAX_OUTDATED:
            heap[:] = (each for each in heap if each is each[-1].entry and each[-1].entries)
            heapify(heap)

    def _mark_stale(self, leaf: QueueNode) -> None:
        """Something on the path of this leaf has changed; the next pop compares its queues again."""
        if not leaf.is_stale:
            leaf.is_stale = True
            self._stale.append(leaf)

    def _reorder_stale(self) -> None:
        """Compares the queues on the paths of stale leaves again."""
        stale, self._stale = self._stale, []
        for node in stale:
            node.is_stale = False
            while (parent := node.parent) is not None:
                key = self._queue_key(node.queue)
                if node.key != key:
                    node.key = key
                    if node.is_live:
                        self._offer(node, parent)
                node = parent

    def _offer(self, node: QueueNode, parent: QueueNode) -> None:
        """Puts a queue in its place among the children of its parent."""
        key = node.key
        if key is None:
            key = node.key = self._queue_key(node.queue)
        self._entries += 1
        heap, last = parent.children, node.entry
        entry = node.entry = (*key, self._entries, node)
        if heap and heap[0] is last:
            heapreplace(heap, entry)
            return
        heappush(heap, entry)
        if len(heap) > 2 * len(parent.queue.children) + MAX_OUTDATED:
            heap[:] = (each for each in heap if each is each[-1].entry)
            heapify(heap)

    def _revive(self, node: QueueNode | None) -> None:
        """Something in this leaf may be popped."""
        while node is not None and not node.is_live:
            node.is_live = True
            if node.parent is not None:
                self._offer(node, node.parent)
            node = node.parent

    def _wake(self, leaf: Queue) -> None:
        """Something was freed on the path of this leaf."""
        waiters = self._waiters
        for queue in leaf.path_up if waiters else ():
            for waiting in waiters.pop(queue.path, {}).values():
                self._wake_leaf(waiting)

    def _wake_leaf(self, node: QueueNode) -> None:
        if node.classes:
            node.ready = dict.fromkeys(node.classes.values())
            self._revive(node)

    def wake_all(self) -> None:
        """Limits have changed."""
        self._waiters.clear()
        for node in list(self._nodes.values()):
            self._wake_leaf(node)
        self._update_count()
