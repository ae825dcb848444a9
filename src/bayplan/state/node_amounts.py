"""A plugin's own amounts by node: what a node has and what its pods use, for example of each of its GPUs.

A plugin that accounts for something the API does not know has one `NodeAmounts` per cluster. It is updated
like every other column: a pod that is assumed, bound, deleted or evicted changes one row. The same table
serves hypotheses (preemption, nominated pods), so the plugin's Filter is written once:

    free = Gpus.of(nodes).free(nodes)

What a pod takes is decided once, by Reserve or else by `place`, and remembered until the pod leaves its node
or its request changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.derived import derived
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.view import HypotheticalNode, NodeColumns, NodeInfo

RequestT = TypeVar("RequestT", bound=Hashable)

Amounts = NDArray[np.int64]


class _Taken(NamedTuple, Generic[RequestT]):
    """What one pod takes of its node."""

    pod: Pod
    request: RequestT
    amounts: Amounts


class NodeAmounts(Generic[RequestT]):
    """A table with one row for each node and one column for each thing that a node may have.

    Derive from it and implement `capacity`, `request` and `place`. There is one table of each class for a
    cluster; `of` returns it, up to date.
    """

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self.freshness = changes.freshness((), (changes.usage, changes.nodes))
        self._cluster: ReferenceType[Cluster] = ref(cluster)
        self._capacity: Amounts = np.zeros((0, 1), dtype=np.int64)
        self._free: Amounts = np.zeros((0, 1), dtype=np.int64)
        self._by_slot: Amounts = np.zeros((0, 1), dtype=np.int64)
        self._taken: dict[int, dict[str, _Taken[RequestT]]] = {}

    # Implemented by subclasses

    def capacity(self, node: Node) -> Sequence[int]:
        """What a node has: one number for each column. Nodes may have different numbers of columns."""
        raise NotImplementedError

    def request(self, pod: Pod) -> RequestT | None:
        """What a pod requests, parsed; None if it takes nothing. Equal requests are treated equally."""
        raise NotImplementedError

    def place(self, request: RequestT, free: Amounts) -> Sequence[int]:
        """What a pod with this request takes of each column of a node that has this much free.

        Called for pods that Reserve did not decide about. It must return amounts even if the node has too
        little, because the pod is already there.
        """
        raise NotImplementedError

    # Used by plugins

    @classmethod
    def of(cls, source: NodeColumns | Cluster) -> Self:
        """The table of the cluster, up to date."""
        return derived(source if isinstance(source, Cluster) else source.cluster, cls)

    def free(self, nodes: NodeColumns) -> Amounts:
        """What is left on these rows, hypothetical ones too: one line for each row. May be negative."""
        free = self._free.take(nodes.rows, axis=0)
        if isinstance(nodes, Hypothesis):
            self._apply_hypothesis(nodes, free)
        elif isinstance(nodes, HypotheticalNode):
            free[0] = self._free_with(free[0], nodes.changes, nodes.cluster)
        free.setflags(write=False)
        return free

    def free_on(self, node: NodeInfo) -> Amounts:
        """What is left on one node, with the pods that it has in the current hypothesis."""
        row = node.row
        taken = self._taken.get(row, {})
        free: Amounts = self._capacity[row].copy()
        for pod in node.pods:
            known = taken.get(pod.metadata.uid)
            if known is not None:
                free -= known.amounts
        for pod in node.pods:
            if pod.metadata.uid not in taken:
                free -= self._amounts_of(pod, free)
        free.setflags(write=False)
        return free

    def capacity_of(self, nodes: NodeColumns) -> Amounts:
        """What these rows have altogether."""
        return self._capacity.take(nodes.rows, axis=0)

    def taken_by(self, pod: Pod) -> Amounts | None:
        """What a pod takes of its node; None if it has no node or takes nothing."""
        row = self._row_of(pod)
        known = None if row is None else self._taken.get(row, {}).get(pod.metadata.uid)
        return None if known is None else known.amounts

    def reserve(self, pod: Pod, amounts: Sequence[int]) -> None:
        """Reserve decided what the pod takes of the node that it was assumed on."""
        row, request = self._row_of(pod), self.request(pod)
        if row is None or request is None:
            return
        self._widen(len(amounts))
        self._taken.setdefault(row, {})[pod.metadata.uid] = _Taken(pod, request, self._line(amounts))
        self._changed(row)

    def unreserve(self, pod: Pod) -> None:
        """Reverts `reserve`. Until the pod leaves the node, `place` decides what it takes."""
        row = self._row_of(pod)
        if row is not None and self._taken.get(row, {}).pop(pod.metadata.uid, None) is not None:
            self._changed(row)

    # Updates

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        """Processes what has changed since the last call (`derived` calls it)."""
        high = cluster.nodes.high
        if high > len(self._free):
            self._grow(max(high, 2 * len(self._free)))
        slots = len(cluster.pods.pod)
        if slots > len(self._by_slot):
            self._by_slot = _resized(self._by_slot, max(slots, 2 * len(self._by_slot)), self._width)
        for row in rows:
            self._read(cluster, row)

    def _read(self, cluster: Cluster, row: int) -> None:
        """Reads the node and the pods of one row."""
        node = cluster.nodes.node[row]
        amounts = () if node is None else self.capacity(node)
        self._widen(len(amounts))
        self._capacity[row] = self._line(amounts)
        before, now, new = self._taken.get(row, {}), {}, []
        free = self._capacity[row].copy()
        for slot in cluster.row_pods[row]:
            pod = cluster.pods.pod[slot]
            assert pod is not None
            uid = pod.metadata.uid
            known = before.get(uid)
            if known is None or known.pod is not pod:
                request = self.request(pod)
                if request is None:
                    self._by_slot[slot] = 0
                    continue
                if known is None or known.request != request:
                    new.append((slot, pod, request))
                    continue
                known = known._replace(pod=pod)
            now[uid] = known
            self._by_slot[slot] = known.amounts
        if now:
            free -= np.add.reduce([known.amounts for known in now.values()], axis=0)
        for slot, pod, request in new:
            line = self._line(self.place(request, free))
            now[pod.metadata.uid] = _Taken(pod, request, line)
            self._by_slot[slot] = line
            free -= line
        if now:
            self._taken[row] = now
        else:
            self._taken.pop(row, None)
        self._free[row] = free

    def _changed(self, row: int) -> None:
        cluster = self._cluster()
        assert cluster is not None
        cluster.changes.usage.record(row)

    def _row_of(self, pod: Pod) -> int | None:
        cluster = self._cluster()
        assert cluster is not None
        return cluster.nodes.row_of.get(cluster.node_of(pod.metadata.uid))

    # Hypotheses

    def _apply_hypothesis(self, nodes: Hypothesis, free: Amounts) -> None:
        """Adds the amounts of removed pods to `free`, and subtracts those of added ones."""
        signs, slots = nodes.signs, nodes.slots
        removed = np.flatnonzero(signs < 0)
        if len(removed):
            np.add.at(free, _positions(nodes, removed), self._by_slot.take(slots.take(removed), axis=0))
        pods = nodes.cluster.pods.pod
        added = np.flatnonzero(signs > 0)
        for slot, position in zip(slots.take(added).tolist(), _positions(nodes, added).tolist(), strict=True):
            pod = pods[slot]
            assert pod is not None
            free[position] -= self._amounts_of(pod, free[position])

    def _free_with(self, free: Amounts, changes: Sequence[tuple[int, int]], cluster: Cluster) -> Amounts:
        for slot, sign in changes:
            if sign < 0:
                free = free + self._by_slot[slot]
        for slot, sign in changes:
            if sign > 0:
                pod = cluster.pods.pod[slot]
                assert pod is not None
                free = free - self._amounts_of(pod, free)
        return free

    def _amounts_of(self, pod: Pod, free: Amounts) -> Any:
        request = self.request(pod)
        return 0 if request is None else self._line(self.place(request, free))

    # Sizes

    @property
    def _width(self) -> int:
        return int(self._free.shape[1])

    def _line(self, amounts: Sequence[int]) -> Amounts:
        if len(amounts) > self._width:
            name = type(self).__name__
            raise ValueError(f"{name}.place returned {len(amounts)} amounts; nodes have up to {self._width}")
        line = np.zeros(self._width, dtype=np.int64)
        line[: len(amounts)] = amounts
        return line

    def _grow(self, rows: int) -> None:
        self._capacity = _resized(self._capacity, rows, self._width)
        self._free = _resized(self._free, rows, self._width)

    def _widen(self, width: int) -> None:
        """Makes room for a node or pod with more columns than any before."""
        if width <= self._width:
            return
        self._by_slot = _resized(self._by_slot, len(self._by_slot), width)
        self._capacity = _resized(self._capacity, len(self._capacity), width)
        self._free = _resized(self._free, len(self._free), width)
        for taken in self._taken.values():
            for uid, known in taken.items():
                taken[uid] = known._replace(amounts=self._line(known.amounts.tolist()))


def _positions(nodes: Hypothesis, indexes: IdColumn) -> IdColumn:
    """For entries of `nodes.slots` the positions of their rows."""
    return nodes.starts.searchsorted(indexes, side="right") - 1


def _resized(table: Amounts, rows: int, width: int) -> Amounts:
    made = np.zeros((rows, width), dtype=np.int64)
    made[: len(table), : table.shape[1]] = table
    return made
