"""Sums over topology domains, brought up to date by what changed.

A domain is the set of nodes with one value of a label. Spreading and affinity need the number of matching
pods in each domain. The sums are brought up to date by the rows that changed: after one placement one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bayplan.clock import Changes, Log
from bayplan.state.interning import ABSENT
from bayplan.state.nodes import LabelColumn, NodeTable
from bayplan.state.table import Column, cells

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
