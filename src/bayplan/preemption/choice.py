"""What evicting would require on each node, and the choice of the node: upstream's pickOneNodeForPreemption.

`VictimTable` has the results of dry runs by row of the node table: single rows can be evaluated again.
Each criterion leaves only the best rows: fewest violated budgets, lowest priority of the most important
victim, smallest sum of priorities, fewest victims, latest start of the most important victims.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, MutableMapping
from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.framework.status import Status
from bayplan.preemption.victims import DryRun
from bayplan.state.columns import IdColumn, cells


class VictimTable:
    """Columns over node rows: what evicting would require there."""

    def __init__(self, rows: int) -> None:
        self.known: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        """Whether the row was evaluated and has not changed since."""
        self.forgotten: set[int] = set()
        """The rows that were evaluated and have changed since."""
        self.fits: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self.status_id: NDArray[np.int64] = np.full(rows, -1, dtype=np.int64)
        self.statuses: list[Status] = []
        self.violations: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.highest_priority: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.priority_sum: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.victim_count: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.negated_start: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        """The latest start is the best; all other columns are best if they are low."""
        self._victims: MutableMapping[int, IdColumn] = {}
        self._latest: DryRun | None = None
        self._index_in_latest: IdColumn = np.zeros(rows, dtype=np.intp)

    def put(self, found: DryRun) -> None:
        """Stores the results for some rows."""
        rows = found.rows
        self.known[rows] = True
        if self.forgotten:
            self.forgotten.difference_update(rows.tolist())
        self.fits[rows] = found.fits
        self.violations[rows] = found.violations
        self.highest_priority[rows] = found.highest_priority
        self.priority_sum[rows] = found.priority_sum
        self.victim_count[rows] = found.victim_count
        self.negated_start[rows] = -found.earliest_start
        self.status_id[rows] = self._renumbered(found)
        if self._latest is None:
            # The first dry run covers most rows; later ones few rows at a time.
            self._latest = found
            self._index_in_latest[rows] = np.arange(len(rows))
        else:
            for index, row in enumerate(rows.tolist()):
                self._victims[row] = found.victims_of(index)

    def put_not_helpful(self, row: int, status: Status) -> None:
        """Stores that evicting does not help on one row."""
        self.known[row] = True
        self.forgotten.discard(row)
        self.fits[row] = False
        self.status_id[row] = self._number(status)

    def overlay(self) -> VictimTable:
        """An independent copy of this table."""
        made = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(made, name, value.copy())
        made.forgotten, made.statuses = set(self.forgotten), list(self.statuses)
        made._victims = ChainMap({}, self._victims)
        return made

    def forget(self, rows: Collection[int]) -> None:
        """Marks rows to be evaluated again. Their previous results can still be read."""
        if rows:
            self.known[list(rows)] = False
            self.forgotten.update(rows)

    def victims_of(self, row: int) -> IdColumn:
        """Slots of the victims, most important first."""
        later = self._victims.get(row)
        if later is not None:
            return later
        assert self._latest is not None
        return self._latest.victims_of(int(self._index_in_latest[row]))

    def _renumbered(self, found: DryRun) -> NDArray[np.int64]:
        numbers = [self._number(status) for status in found.statuses]
        return np.array([*numbers, -1], dtype=np.int64).take(found.status_id)

    def _number(self, status: Status) -> int:
        if status not in self.statuses:
            self.statuses.append(status)
        return self.statuses.index(status)


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

MAX_CHANGED: Final = 1024
"""After so many evaluations all rows are sorted again."""


class Ranking:
    """The best of the same rows, again and again, while few of them change.

    The rows are sorted once. Those that are evaluated later are in a heap; an entry that is outdated stays
    there until it is the first.
    """

    def __init__(self, table: VictimTable, rows: IdColumn) -> None:
        self._table = table
        self._rows = rows
        place_of = np.full(len(table.fits), -1, dtype=np.intp)
        place_of[rows] = np.arange(len(rows))
        self._place_of = cells(place_of)
        self._sort()

    def _sort(self) -> None:
        self._sorted = ranked(self._table, self._rows[self._table.fits.take(self._rows)])
        self._first = 0
        """The index of the first of the sorted rows that was not evaluated again."""
        self._heap: list[_Entry] = []
        self._entry_of: dict[int, _Entry | None] = {}
        """The entries of the rows that were evaluated again; None: evicting does not help there."""

    def __contains__(self, row: int) -> bool:
        return bool(self._place_of[row] >= 0)

    def _entry(self, row: int) -> _Entry:
        losses = [loss[row].item() for loss in _criteria(self._table)]
        return (*losses, self._place_of[row], row)

    def update(self, rows: Iterable[int]) -> None:
        """These rows were evaluated again."""
        for row in rows:
            entry = self._entry_of[row] = self._entry(row) if self._table.fits[row] else None
            if entry is not None:
                heappush(self._heap, entry)
        if len(self._entry_of) + len(self._heap) > MAX_CHANGED:
            self._sort()

    def best(self) -> int | None:
        """The best row, the first of equals; None if evicting helps on none."""
        heap, ordered, entry_of = self._heap, self._sorted, self._entry_of
        while heap and entry_of[heap[0][-1]] is not heap[0]:
            heappop(heap)
        while self._first < len(ordered) and int(ordered[self._first]) in entry_of:
            self._first += 1
        entries = heap[:1]
        if self._first < len(ordered):
            entries.append(self._entry(int(ordered[self._first])))
        return min(entries)[-1] if entries else None


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
