"""The results of dry runs by row of the node table, so that single rows can be evaluated again."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, MutableMapping
from copy import copy

import numpy as np
from numpy.typing import NDArray

from bayplan.framework.status import Status
from bayplan.preemption.victims import DryRun
from bayplan.state.columns import IdColumn


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
