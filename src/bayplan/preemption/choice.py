"""Chooses the node for preemption: upstream's pickOneNodeForPreemption.

Each criterion leaves only the best rows: fewest violated budgets, lowest priority of the most important
victim, smallest sum of priorities, fewest victims, latest start of the most important victims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from bayplan.framework.status import Status
from bayplan.preemption.table import VictimTable
from bayplan.snapshot.interning import IdColumn


def pick_node(table: VictimTable, rows: IdColumn) -> int | None:
    """The best of these rows, the first of equals; None if there are none."""
    ties = equally_good(table, rows)
    return int(ties[0]) if len(ties) else None


def ranked(table: VictimTable, rows: IdColumn) -> IdColumn:
    """These rows, the best first and equals in the order in which they were given."""
    losses = [loss.take(rows) for loss in _criteria(table)]
    return rows.take(np.lexsort(losses[::-1]))


def equally_good(table: VictimTable, rows: IdColumn) -> IdColumn:
    """The rows that are best by all criteria."""
    for losses in _criteria(table):
        if len(rows) <= 1:
            break
        values = losses.take(rows)
        least = values == values[values.argmin()]
        if np.count_nonzero(least) != len(least):
            rows = rows[least]
    return rows


def _criteria(table: VictimTable) -> tuple[NDArray[np.int64], ...]:
    return (
        table.violations,
        table.highest_priority,
        table.priority_sum,
        table.victim_count,
        table.negated_start,
    )


_Entry = tuple[int, ...]
"""The losses of a row, its place in the list and the row."""


class Ranking:
    """The best of the same rows, again and again, while few of them change: a heap.

    The entry of a row that was evaluated again stays in the heap until it is the first.
    """

    def __init__(self, table: VictimTable, rows: IdColumn) -> None:
        self._table = table
        self._place_of = dict(zip(rows.tolist(), range(len(rows)), strict=True))
        helped = rows[table.fits.take(rows)]
        losses = [loss.take(helped).tolist() for loss in _criteria(table)]
        listed = helped.tolist()
        places = map(self._place_of.__getitem__, listed)
        self._heap: list[_Entry] = list(zip(*losses, places, listed, strict=True))
        self._entry_of: dict[int, _Entry | None] = dict(zip(listed, self._heap, strict=True))
        heapify(self._heap)

    def __contains__(self, row: int) -> bool:
        return row in self._place_of

    def update(self, rows: Iterable[int]) -> None:
        """These rows were evaluated again."""
        table = self._table
        for row in rows:
            entry: _Entry | None = None
            if table.fits[row]:
                losses = (loss[row].item() for loss in _criteria(table))
                entry = (*losses, self._place_of[row], row)
                heappush(self._heap, entry)
            self._entry_of[row] = entry
        if len(self._heap) > 2 * len(self._place_of):
            self._heap = list(filter(None, self._entry_of.values()))
            heapify(self._heap)

    def best(self) -> int | None:
        """The best row, the first of equals; None if evicting helps on none."""
        heap = self._heap
        while heap and self._entry_of[heap[0][-1]] is not heap[0]:
            heappop(heap)
        return heap[0][-1] if heap else None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows where evicting may help, in the order of the node list, and the results for them."""

    rows: IdColumn
    table: VictimTable
    ranking: Ranking | None = None
    """Of these rows, if they are ranked."""

    def best(self) -> int | None:
        """The best of the rows, the first of equals; None if evicting helps on none."""
        return pick_node(self.table, self.helped) if self.ranking is None else self.ranking.best()

    @property
    def helped(self) -> IdColumn:
        """The rows where evicting helps."""
        return self.rows[self.table.fits.take(self.rows)]

    def status_counts(self) -> list[tuple[Status, int]]:
        """Each reason why evicting does not help, and the number of rows."""
        ids = self.table.status_id.take(self.rows)
        counts = np.bincount(ids[ids >= 0], minlength=len(self.table.statuses))
        return [
            (status, int(count)) for status, count in zip(self.table.statuses, counts, strict=True) if count
        ]
