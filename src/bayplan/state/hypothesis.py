"""Hypothetical columns: these pods removed, those added.

Each row is its own hypothesis: a pod removed from one node is still there when another node is evaluated, as
preemption and nominated pods require. A hypothesis is a list of pod slots, ordered by row, each with a sign:
-1 removed, +1 added, 0 unchanged. Every change of a column is then one sum over segments of that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import HostPort, Pod
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, distinct_ids
from bayplan.state.pods import PodInfo
from bayplan.state.terms import CarriedTerm, PodQuery
from bayplan.state.view import HypotheticalNode, IntColumn, NodeColumns, NodeInfo

FEW_ROWS: Final = 8
"""Up to this many rows plain numbers are faster than arrays."""

Changes = Sequence[tuple[int, int]]
"""Slots of the pods in question on one row, each with its sign."""


class Hypothesis(NodeColumns):
    """Rows with pods added and removed.

    `slots[starts[i]:starts[i + 1]]` are the pods in question on row i, with their `signs`.
    """

    __slots__ = ("signs", "slots", "starts")

    def __init__(
        self, cluster: Cluster, rows: IdColumn, slots: IdColumn, starts: IdColumn, signs: NDArray[np.int64]
    ) -> None:
        super().__init__(cluster, rows)
        self.slots = slots
        self.starts = starts
        self.signs = signs

    @classmethod
    def on_few_rows(cls, cluster: Cluster, rows: Sequence[int], changes: Sequence[Changes]) -> Hypothesis:
        """Creates a hypothesis from lists."""
        slots = [slot for here in changes for slot, _ in here]
        signs = [sign for here in changes for _, sign in here]
        starts = [0, *accumulate(len(here) for here in changes)]
        return cls(
            cluster,
            np.array(rows, dtype=np.intp),
            np.array(slots, dtype=np.intp),
            np.array(starts, dtype=np.intp),
            np.array(signs, dtype=np.int64),
        )

    @property
    def rows(self) -> IdColumn:
        assert self._rows is not None
        return self._rows

    def changes(self, position: int) -> Changes:
        """The pods in question on one of the rows."""
        here = slice(self.starts[position], self.starts[position + 1])
        return list(zip(self.slots[here].tolist(), self.signs[here].tolist(), strict=True))

    def one(self, position: int) -> HypotheticalNode:
        """One of the rows, in plain numbers."""
        return HypotheticalNode(self.cluster, int(self.rows[position]), self.changes(position))

    def change(self, amounts: NDArray[Any]) -> IntColumn:
        """Sum of sign times amount over the pods of each row; `amounts` has an entry for each of `slots`."""
        running = np.zeros(len(self.slots) + 1, dtype=np.int64)
        np.cumsum(self.signs * amounts, out=running[1:])
        return running.take(self.starts[1:]) - running.take(self.starts[:-1])

    def subset(self, keep: IdColumn) -> Hypothesis:
        """The same hypothesis on some of its rows."""
        lengths = (self.starts[1:] - self.starts[:-1]).take(keep)
        starts = np.zeros(len(keep) + 1, dtype=np.intp)
        np.cumsum(lengths, out=starts[1:])
        first = self.starts[:-1].take(keep)
        picked = np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths)
        return Hypothesis(
            self.cluster, self.rows.take(keep), self.slots.take(picked), starts, self.signs.take(picked)
        )

    def changed_pods(self, position: int) -> tuple[list[Pod], list[Pod]]:
        """The pods that are removed from a row and those that are added."""
        gone, added = [], []
        for index in range(self.starts[position], self.starts[position + 1]):
            pod = self.cluster.pods.pod[self.slots[index]]
            assert pod is not None
            if self.signs[index] < 0:
                gone.append(pod)
            elif self.signs[index] > 0:
                added.append(pod)
        return gone, added

    @property
    def pod_count(self) -> IntColumn:
        count: IntColumn = super().pod_count + self.change(np.ones(len(self.slots), dtype=np.int64))
        return count

    def requested(self, resource: str) -> IntColumn:
        amounts = self.cluster.pods.requests(resource).array.take(self.slots)
        total = super().requested(resource) + self.change(amounts)
        return self._exact(total, lambda one: one.requested(resource))

    @property
    def nonzero_cpu_milli(self) -> IntColumn:
        total = super().nonzero_cpu_milli + self._change_of(lambda info: info.nonzero_cpu_milli)
        return self._exact(total, lambda one: one.nonzero_cpu_milli)

    @property
    def nonzero_memory_bytes(self) -> IntColumn:
        total = super().nonzero_memory_bytes + self._change_of(lambda info: info.nonzero_memory_bytes)
        return self._exact(total, lambda one: one.nonzero_memory_bytes)

    def _exact(self, total: IntColumn, of: Callable[[HypotheticalNode], int]) -> IntColumn:
        """Sums over columns, with those that could have overflowed computed again in plain numbers."""
        large, recounted = self.cluster.pods.large, self.cluster.recounted_rows
        if large or recounted:
            for position, row in enumerate(self.rows.tolist()):
                here = self.slots[self.starts[position] : self.starts[position + 1]]
                if row in recounted or not large.isdisjoint(here.tolist()):
                    total[position] = of(self.one(position))
        return total

    def _change_of(self, amount: Callable[[PodInfo], int]) -> IntColumn:
        """The change of an amount that is not in a column; filters rarely need it."""
        amounts = (amount(self.cluster.pods.info_of(slot)) for slot in self.slots.tolist())
        return self.change(np.fromiter(amounts, dtype=np.int64, count=len(self.slots)))

    def pods_on(self, position: int) -> list[Pod]:
        gone, added = self.changed_pods(position)
        left = {pod.uid for pod in gone}
        return [pod for pod in super().pods_on(position) if pod.uid not in left] + added

    def node_infos(self) -> Iterator[NodeInfo]:
        for position in range(len(self)):
            yield self.node_info(position)

    def used_ports(self, position: int) -> set[HostPort]:
        """As upstream: all pods in question are removed, then those that stay are added again.

        Ports are a set there, so a port that two pods share is removed with the first of them.
        """
        used = set(super().used_ports(position))
        info_of = self.cluster.pods.info_of
        ports = [(sign, info_of(slot).host_ports) for slot, sign in self.changes(position)]
        for sign, theirs in ports:
            if sign <= 0:
                used.difference_update(theirs)
        for sign, theirs in ports:
            if sign >= 0:
                used.update(theirs)
        return used

    def positions_using_ports(self, ports: Iterable[HostPort]) -> IdColumn:
        users = set(super().positions_using_ports(ports).tolist())
        added = (self.signs > 0).nonzero()[0]
        with_ports = [
            index
            for index, slot in zip(added.tolist(), self.slots.take(added).tolist(), strict=True)
            if self.cluster.pods.info_of(slot).host_ports
        ]
        users.update((np.searchsorted(self.starts, with_ports, side="right") - 1).tolist())
        return np.array(sorted(users), dtype=np.intp)

    def matching_change(self, query: PodQuery) -> IntColumn:
        pods, cluster = self.cluster.pods, self.cluster
        matches = cluster.count(query).matches_set(len(cluster.label_sets))
        matching = matches.take(pods.label_set.array.take(self.slots))
        if query.alive:
            matching = matching & ~pods.terminating.array.take(self.slots)
        return self.change(matching)

    def carried_change(self, carried: CarriedTerm) -> IntColumn:
        times = self.cluster.term_sets.multiplicity(carried)
        return self.change(times.take(self.cluster.pods.terms.array.take(self.slots)))

    def added_terms(self) -> tuple[CarriedTerm, ...]:
        ids = self.cluster.pods.terms.array.take(self.slots[self.signs > 0])
        found = (self.cluster.term_sets[terms_id] for terms_id in distinct_ids(ids))
        return tuple(dict.fromkeys(carried for terms in found for carried in terms.carried))
