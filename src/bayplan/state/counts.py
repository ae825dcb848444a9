"""The number of pods that match a selector, on each node and in each topology domain.

A query gets a column over the nodes (`PodCounts`). It is filled once from the pod table; from then on a pod
that is added or removed changes one cell of each query it matches, found by the id of its set of labels.
Queries that were not used for a long time are dropped.

A domain is the set of nodes with one value of a label. Spreading and affinity need the number of matching
pods in each domain (`DomainSums`), brought up to date by the rows that changed: after one placement one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bayplan.clock import COUNT_HISTORY, Changes, Clock, Log
from bayplan.state.columns import ABSENT, Column, Table, cells
from bayplan.state.nodes import LabelColumn, NodeTable
from bayplan.state.pods import PodTable
from bayplan.state.terms import LabelSet, LabelSets, PodQuery, SelectorIndex, narrowest

MAX_QUERIES: Final = 2048
"""The maximum number of columns; above it the least recently used half is dropped."""


class PodCount:
    """The column of one query, and which sets of labels it matches."""

    __slots__ = ("_table", "changed", "column", "last_used", "matching", "query")

    def __init__(self, query: PodQuery, column: Column, clock: Clock) -> None:
        self.query = query
        self.column = column
        self.changed: Log[int] = Log(clock, COUNT_HISTORY)
        """The rows where a matching pod was added or removed."""
        self.matching: set[int] = set()
        self.last_used = 0
        self._table: NDArray[np.bool_] | None = None

    def matches_set(self, sets: int) -> NDArray[np.bool_]:
        """A table over the ids of label sets: which of them match."""
        if self._table is None or len(self._table) < sets:
            self._table = np.zeros(sets, dtype=np.bool_)
            self._table[list(self.matching)] = True
        return self._table

    def add_set(self, label_set: LabelSet) -> None:
        self.matching.add(label_set.id)
        self._table = None

    def remove_set(self, set_id: int) -> None:
        """The id now belongs to another set."""
        self.matching.discard(set_id)
        self._table = None


class PodCounts:
    """The columns of all queries in use."""

    def __init__(self, nodes: Table, pods: PodTable, label_sets: LabelSets, changes: Changes) -> None:
        self._dropped = changes.queries
        self._nodes = nodes
        self._pods = pods
        self._label_sets = label_sets
        self.fresh = label_sets.fresh
        """New sets, of which the queries are not known yet."""
        self._counts: dict[PodQuery, PodCount] = {}
        self._index: SelectorIndex[PodQuery] = SelectorIndex()
        self.of_set: list[list[PodCount]] = []
        """For each id of a set of labels the counts whose query matches it."""
        self._uses = 0

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, query: PodQuery) -> PodCount:
        if self.fresh:
            self._add_new_sets()
        found = self._counts.get(query)
        if found is None:
            found = self._start(query)
        self.touch(found)
        return found

    def touch(self, count: PodCount) -> None:
        """Marks a count as used. The topic `queries` changes when counts are dropped."""
        self._uses += 1
        count.last_used = self._uses

    def add(self, label_set: LabelSet, terminating: bool, row: int, change: int) -> None:
        """A pod with these labels was added to the row (change 1) or removed (-1)."""
        if self.fresh:
            self._add_new_sets()
        for count in self.of_set[label_set.id]:
            if not (terminating and count.query.alive):
                count.column.cell[row] += change
                count.changed.record(row)

    def _add_new_sets(self) -> None:
        for fresh in self.fresh:
            counts: list[PodCount] = []
            if fresh.id == len(self.of_set):
                self.of_set.append(counts)
            else:
                for count in self.of_set[fresh.id]:
                    count.remove_set(fresh.id)
                self.of_set[fresh.id] = counts
            for query in self._index.candidates(fresh.labels):
                if query.matches(fresh.namespace, fresh.labels):
                    count = self._counts[query]
                    count.add_set(fresh)
                    counts.append(count)
        self.fresh.clear()

    def _start(self, query: PodQuery) -> PodCount:
        if len(self._counts) >= MAX_QUERIES:
            self._drop_unused()
        count = PodCount(query, self._nodes.column(np.int64), self._dropped.clock)
        selector = narrowest(query)
        self._counts[query] = count
        self._index.add(selector, query)
        for label_set in self._label_sets.candidates(selector):
            if query.matches(label_set.namespace, label_set.labels):
                count.add_set(label_set)
                self.of_set[label_set.id].append(count)
        if count.matching:
            self._fill(count)
        return count

    def _fill(self, count: PodCount) -> None:
        pods = self._pods
        counted = pods.assigned.read & count.matches_set(len(self._label_sets)).take(pods.label_set.read)
        if count.query.alive:
            counted &= ~pods.terminating.read
        rows = pods.row.read[counted]
        count.column.array[: self._nodes.high] = np.bincount(rows, minlength=self._nodes.high)

    def _drop_unused(self) -> None:
        oldest = sorted(self._counts.values(), key=lambda count: count.last_used)[: MAX_QUERIES // 2]
        self._dropped.change()
        for count in oldest:
            del self._counts[count.query]
            self._index.discard(narrowest(count.query), count.query)
            self._nodes.drop_column(count.column)
            for set_id in count.matching:
                self.of_set[set_id].remove(count)


REBUILD_SHARE = 16
"""If more than 1/16 of the rows changed, summing again is cheaper than updating."""


class RowCounts(Protocol):
    """A number for each row of the node table, and the rows where it has changed."""

    column: Column
    changed: Log[int]


class DomainSums:
    """For one column of counts and one label key: the sum of the counts over each domain.

    `sums` has an entry for each value of the label and a last one, for nodes without it, that stays 0.
    `members` has the number of counted nodes in each domain. Only rows with `eligible` (None: all that exist)
    are summed.
    """

    __slots__ = (
        "_counts",
        "_eligible",
        "_freshness",
        "_label",
        "_nodes",
        "_occupied",
        "_seen",
        "_seen_cell",
        "_sum_cell",
        "members",
        "sums",
        "total",
    )

    def __init__(
        self,
        nodes: NodeTable,
        changes: Changes,
        counts: RowCounts,
        label: LabelColumn,
        eligible: NDArray[np.bool_] | None = None,
    ) -> None:
        self._nodes = nodes
        self._freshness = changes.freshness((changes.topology,), (counts.changed,))
        self._counts = counts.column
        self._label = label
        self._eligible = eligible
        self._seen: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._seen_cell: Any = None
        self.sums: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.members: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.total = 0
        self._occupied: NDArray[np.bool_] | None = None
        self._rebuild()

    def refresh(self) -> Sequence[int] | None:
        """Brings the sums up to date. Returns the rows whose domain has got its first pod or lost its last.

        None: those of any domain. `eligible` is as long as the table was when it was created: after a change
        of topology the owner creates new sums with a new mask.
        """
        changed = self._freshness.stale_rows()
        if changed is None or len(changed) * REBUILD_SHARE > len(self._seen) + 256:
            self._rebuild()
            return None
        flipped: list[int] | None = []
        count, seen, domain = self._counts.cell, self._seen_cell, self._label.column.cell
        for row in changed:
            now, before = count[row], seen[row]
            if now == before:
                continue
            here = domain[row]
            counted = self._eligible is None or self._eligible[row]
            if counted and here != ABSENT and self._nodes.exists.cell[row]:
                difference, sum_before = now - before, self._sum_cell[here]
                sum_now = sum_before + difference
                if (sum_before > 0) != (sum_now > 0):
                    flipped = self._flip(here, row, flipped)
                self._sum_cell[here] = sum_now
                self.total += difference
            seen[row] = now
        self._freshness.mark_current()
        return flipped

    def _flip(self, domain: int, row: int, flipped: list[int] | None) -> list[int] | None:
        """A domain has got its first pod, or lost its last. Usually only small ones do that often."""
        if self._eligible is not None or self.members[domain] != 1:
            self._occupied = None
            return None
        if self._occupied is not None:
            self._occupied[row] = not self._occupied[row]
        if flipped is not None:
            flipped.append(row)
        return flipped

    def occupied(self) -> NDArray[np.bool_]:
        """For each row of the table whether its domain has a sum above 0. The array is updated in place."""
        if self._occupied is None:
            self._occupied = (self.sums > 0).take(self._label.column.read)
        return self._occupied

    def is_occupied(self, row: int) -> bool:
        """The same for one row."""
        occupied: bool = self._sum_cell[self._label.column.cell[row]] > 0
        return occupied

    def _rebuild(self) -> None:
        self._occupied = None
        self._seen = self._counts.read.copy()
        self._seen_cell = cells(self._seen)
        domain = self._label.column.read
        counted = self._nodes.exists.read & (domain != ABSENT)
        if self._eligible is not None:
            counted = counted & self._eligible
        rows = counted.nonzero()[0]
        size = len(self._label.values) + 1
        domains = domain.take(rows)
        self.members = np.bincount(domains, minlength=size)
        self.sums = np.bincount(domains, weights=self._seen.take(rows), minlength=size).astype(np.int64)
        self._sum_cell = cells(self.sums)
        self.total = int(self.sums.sum())
        self._freshness.mark_current()
