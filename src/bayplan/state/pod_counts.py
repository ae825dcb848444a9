"""The number of pods on each node that match a selector, updated incrementally.

A query gets a column over the nodes. It is filled once from the pod table; from then on a pod that is added
or removed changes one cell of each query it matches, found by the id of its set of labels. Queries that were
not used for a long time are dropped.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.clock import COUNT_HISTORY, Changes, Clock, Log
from bayplan.state.label_sets import LabelSet, LabelSets, PodQuery, SelectorIndex, narrowest
from bayplan.state.pods import PodTable
from bayplan.state.table import Column, Table

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
        self._fresh = label_sets.fresh
        self._counts: dict[PodQuery, PodCount] = {}
        self._index: SelectorIndex[PodQuery] = SelectorIndex()
        self._of_set: list[list[PodCount]] = []
        self._uses = 0

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, query: PodQuery) -> PodCount:
        if self._fresh:
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
        if self._fresh:
            self._add_new_sets()
        for count in self._of_set[label_set.id]:
            if not (terminating and count.query.alive):
                count.column.cell[row] += change
                count.changed.record(row)

    def _add_new_sets(self) -> None:
        for fresh in self._fresh:
            counts: list[PodCount] = []
            if fresh.id == len(self._of_set):
                self._of_set.append(counts)
            else:
                for count in self._of_set[fresh.id]:
                    count.remove_set(fresh.id)
                self._of_set[fresh.id] = counts
            for query in self._index.candidates(fresh.labels):
                if query.matches(fresh.namespace, fresh.labels):
                    count = self._counts[query]
                    count.add_set(fresh)
                    counts.append(count)
        self._fresh.clear()

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
                self._of_set[label_set.id].append(count)
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
                self._of_set[set_id].remove(count)
