"""The predicted usage of pods that were assigned after the last measurement."""

from __future__ import annotations

from itertools import compress
from typing import Final

import numpy as np

from bayplan.plugin import IntColumn
from bayplan.plugins.library.load_aware.columns import LoadColumns

REPORTING_SECONDS: Final = 60.0
"""A measurement may not include pods that were assigned up to this long before it."""
MAX_REMEMBERED_SECONDS: Final = 600.0
_NOTHING_COUNTED: Final = -1


class RecentPlacements:
    """Recently assigned pods, and their predicted usage on each row.

    A placement is added to the sum of its row. All sums are computed again only after a measurement, a node
    or a failed binding changed what counts; then pods are dropped that do not count any more.
    """

    def __init__(self) -> None:
        self._position: dict[str, int] = {}
        """Of each pod, by uid, in the lists."""
        self._uids: list[str] = []
        self._rows: list[int] = []
        self._times: list[float] = []
        self._milli: list[int] = []
        self._sums: IntColumn = np.zeros(0, dtype=np.int64)
        self._counted = 0
        """How many pods are in the sums."""
        self._counted_at = _NOTHING_COUNTED
        """The state of the columns by which they were counted."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, uid: str, row: int, now: float, milli: int) -> None:
        self.remove(uid)
        self._position[uid] = len(self._rows)
        self._uids.append(uid)
        self._rows.append(row)
        self._times.append(now)
        self._milli.append(milli)

    def remove(self, uid: str) -> None:
        position = self._position.pop(uid, None)
        if position is not None:
            self._milli[position] = 0
            self._counted_at = _NOTHING_COUNTED

    def missing(self, columns: LoadColumns, now: float) -> IntColumn:
        """For each row what its measurement does not include, in thousandths of a cpu."""
        if self._counted_at != columns.rows_computed:
            self._count_all(columns, now)
        elif self._counted < len(self._rows):
            for position in range(self._counted, len(self._rows)):
                row = self._rows[position]
                if self._times[position] > columns.measured_at[row] - REPORTING_SECONDS:
                    self._sums[row] += self._milli[position]
            self._counted = len(self._rows)
        return self._sums

    def _count_all(self, columns: LoadColumns, now: float) -> None:
        rows = np.array(self._rows, dtype=np.intp)
        times = np.array(self._times, dtype=np.float64)
        milli = np.array(self._milli, dtype=np.int64)
        first = np.maximum(columns.measured_at - REPORTING_SECONDS, now - MAX_REMEMBERED_SECONDS)
        counts = (milli > 0) & (times > first[rows]) & (times >= columns.named_at[rows])
        self._sums = np.zeros(len(first), dtype=np.int64)
        np.add.at(self._sums, rows[counts], milli[counts])
        if not counts.all():
            self._uids = list(compress(self._uids, counts.tolist()))
            self._position = dict(zip(self._uids, range(len(self._uids)), strict=True))
            self._rows, self._times = rows[counts].tolist(), times[counts].tolist()
            self._milli = milli[counts].tolist()
        self._counted = len(self._rows)
        self._counted_at = columns.rows_computed
