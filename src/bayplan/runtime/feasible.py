"""The feasible nodes for identical pods, in the order in which they are evaluated, and the best of them.

A `Feasible` is reused from pod to pod. It depends on the signature's results: rows that begin to pass, or no
longer do, are inserted or removed, and the totals of rows whose pods changed are read again. Total score and
tie-break are one integer (`ties.py`), so the best node is one argmax.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.tie_break import TieBreak
from bayplan.runtime.maximum import Maximum
from bayplan.runtime.signature_results import SignatureResults
from bayplan.runtime.ties import pick, tie_rank
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.table import cells
from bayplan.snapshot.view import IntColumn, NodeColumns

FEW_ROWS: Final = 8
"""Up to this many rows are inserted, removed or read again one by one."""

MANY_ROWS: Final = 16384
"""From this number on, not all keys are compared for every pod."""

NOT_LISTED: Final = -1

Masks = tuple[NDArray[np.bool_], ...]


class SearchOrder:
    """The rows that searches evaluate, in order."""

    __slots__ = ("_place_cell", "_places", "_size", "row_cell", "rows")

    def __init__(self, rows: IdColumn, size: int) -> None:
        self.rows = rows
        self.row_cell = cells(rows)
        self._size = size
        self._places: IdColumn | None = None
        self._place_cell: Any = None

    @property
    def place_of(self) -> IdColumn:
        """For each row of the table its position in this list."""
        if self._places is None:
            self._places = np.full(self._size, NOT_LISTED, dtype=np.intp)
            self._places[self.rows] = np.arange(len(self.rows))
        return self._places

    @property
    def place_cell(self) -> Any:
        """`place_of` for reading one position at a time."""
        if self._place_cell is None:
            self._place_cell = cells(self.place_of)
        return self._place_cell


class Feasible:
    """Rows that pass, with their total scores by cached plugins.

    Args:
        order: the rows evaluated, in order; the search stops once `wanted` of them pass.
        passing: for each row of the table whether it passes.
        masks: the rows that uncached plugins reject; None if nominated pods or errors reject others.
        max_total: a bound for total scores.
        tie_break: which of several rows with the same total is the best.
    """

    def __init__(
        self,
        cluster: Cluster,
        results: SignatureResults,
        order: SearchOrder,
        passing: NDArray[np.bool_],
        masks: Masks | None,
        *,
        wanted: int,
        max_total: int,
        tie_break: TieBreak = TieBreak.KUBE_SCHEDULER,
    ) -> None:
        self._cluster = cluster
        self._results = results
        self._order = order
        self._passing = passing
        self._masks = masks
        changes = cluster.changes
        self._rows_freshness = changes.freshness(
            (results.recombined, changes.topology), (results.passing_rows,)
        )
        self._scores_freshness = changes.freshness((results.scores_changed,), (changes.usage,))
        rows = order.rows
        fitting = passing.take(rows).nonzero()[0]
        self._wanted = wanted
        self._complete = len(fitting) <= wanted
        self.evaluated = rows if self._complete else rows[: fitting[wanted]]
        """The rows that were evaluated until enough were found."""
        self._count = count = min(len(fitting), wanted)
        self._fitting, self._fitting_cell = _empty_column(len(rows))
        self._fitting[:count] = fitting[:count]
        self._view: NodeColumns | None = None
        self._totals, self._total_cell = _empty_column(len(rows))
        self._keys, self._key_cell = _empty_column(len(rows))
        self._normalized: IntColumn | None = None
        self._has_keys = False
        self._maximum: Maximum | None = None
        self._tie_break = tie_break
        self._rank = tie_rank(tie_break, len(rows))
        self._rank_cell = cells(self._rank)
        self._max_total = max_total
        shift = len(self._rank).bit_length()
        self._shift = shift if max_total < 1 << (62 - shift) else 0
        self._rows_freshness.mark_current()

    def __len__(self) -> int:
        return self._count

    # Which rows

    def update(
        self,
        results: SignatureResults,
        order: SearchOrder,
        passing: Callable[[], NDArray[np.bool_]],
        masks: Masks | None,
    ) -> bool:
        """Inserts and removes rows, if they are few. False if starting from scratch is better."""
        if self._results is not results or self._order is not order:
            return False
        if masks == () and self._masks == ():
            return self.update_passing()
        stale = self._rows_freshness.stale_rows()
        if stale is None:
            return False
        if not stale and _same(masks, self._masks):
            return True
        now = passing()
        if not self._replace((now != self._passing).nonzero()[0].tolist(), now):
            return False
        self._masks = masks
        return True

    def update_passing(self) -> bool:
        """Like `update`, if no uncached plugin rejects any row, now or before."""
        stale = self._rows_freshness.stale_rows()
        if not stale:
            return stale is not None
        return self._replace(stale if len(stale) == 1 else set(stale), self._results.passing)

    def _replace(self, changed: Collection[int], passing: NDArray[np.bool_]) -> bool:
        """Inserts or removes these rows, if they are few."""
        if changed:
            if len(changed) > FEW_ROWS or not self._complete or self._normalized is not None:
                return False
            self._insert_or_remove(changed, passing)
            if self._count > self._wanted:
                # The search now stops earlier.
                return False
        self._passing = passing
        self._rows_freshness.mark_current()
        return True

    def _insert_or_remove(self, rows: Collection[int], passing: NDArray[np.bool_]) -> None:
        place_of = self._order.place_cell
        for row in rows:
            place = place_of[row]
            if place == NOT_LISTED:
                continue
            at, end = bisect_left(self._fitting_cell, place, 0, self._count), self._count
            listed = at < end and self._fitting_cell[at] == place
            if listed == bool(passing[row]):
                continue
            if listed:
                for column in (self._fitting, self._totals):
                    column[at : end - 1] = column[at + 1 : end]
                self._count -= 1
            else:
                for column in (self._fitting, self._totals):
                    column[at + 1 : end + 1] = column[at:end]
                self._fitting_cell[at] = place
                self._total_cell[at] = self._results.total_of(row)
                self._count += 1
        self._view = None
        self._has_keys = False

    @property
    def view(self) -> NodeColumns:
        """The rows as columns: the same object, with its gathered columns, while the rows stay the same."""
        if self._view is None:
            rows = self._order.rows.take(self._fitting[: self._count])
            self._view = NodeColumns(self._cluster, rows)
        return self._view

    # Scores

    @property
    def unit(self) -> int:
        """The value of one point of score in `best`."""
        return 1 << self._shift

    def best(self, pod: Pod, added: IntColumn | None) -> int:
        """The row with the highest total of cached plugins and `added` (in units)."""
        self._update_scores(pod)
        count = self._count
        if not self._shift:
            totals = self._totals[:count]
            position = pick(totals if added is None else totals + added, self._max_total, self._tie_break)
        else:
            if not self._has_keys:
                self._make_keys()
            position = self._largest_key() if added is None else int((self._keys[:count] + added).argmax())
        return self.row_at(position)

    def _largest_key(self) -> int:
        keys = self._keys[: self._count]
        if self._count < MANY_ROWS:
            return int(keys.argmax())
        if self._maximum is None:
            self._maximum = Maximum(keys)
        return self._maximum.position()

    def row_at(self, position: int) -> int:
        row: int = self._order.row_cell[self._fitting_cell[position]]
        return row

    def _update_scores(self, pod: Pod) -> None:
        rows = self._scores_freshness.stale_rows()
        if rows is None or (rows and self._results.normalized_by_usage):
            self._read_all(pod)
        elif len(rows) <= FEW_ROWS:
            for row in rows:
                self._read_one(row)
        else:
            self._read_rows(rows)
        self._scores_freshness.mark_current()

    def _read_all(self, pod: Pod) -> None:
        rows, results = self.view.rows, self._results
        totals = results.totals(rows)
        self._normalized = results.normalized(pod, rows)
        if self._normalized is not None:
            totals += self._normalized
        self._totals[: self._count] = totals
        self._has_keys = False

    def _read_one(self, row: int) -> None:
        at = self._position(self._order.place_cell[row])
        if at is None:
            return
        total = self._results.total_of(row)
        if self._normalized is not None:
            total += int(self._normalized[at])
        self._total_cell[at] = total
        if self._has_keys:
            self._key_cell[at] = (total << self._shift) - self._rank_cell[at]
            if self._maximum is not None:
                self._maximum.changed(at)

    def _position(self, place: int) -> int | None:
        """The position among the rows that pass; None if the row does not."""
        count, fitting = self._count, self._fitting_cell
        if count == len(fitting):
            return place if place != NOT_LISTED else None
        at = bisect_left(fitting, place, 0, count)
        return at if at < count and fitting[at] == place else None

    def _read_rows(self, rows: Sequence[int]) -> None:
        """Like `_read_one` for several rows, with arrays."""
        changed = np.array(rows, dtype=np.intp)
        places = self._order.place_of.take(changed)
        if self._count == len(self._fitting):
            at, listed = places, places != NOT_LISTED
        else:
            fitting = self._fitting[: self._count]
            at = fitting.searchsorted(places)
            at[at == self._count] = 0
            listed = fitting.take(at) == places
        if np.count_nonzero(listed) != len(listed):
            at, changed = at[listed], changed[listed]
        totals = self._results.totals(changed)
        if self._normalized is not None:
            totals += self._normalized.take(at)
        self._totals[at] = totals
        if self._has_keys:
            self._keys[at] = (totals << self._shift) - self._rank.take(at)
            self._maximum = None

    def _make_keys(self) -> None:
        keys = self._keys[: self._count]
        np.left_shift(self._totals[: self._count], self._shift, out=keys)
        keys -= self._rank[: self._count]
        self._has_keys = True
        self._maximum = None


def _same(masks: Masks | None, known: Masks | None) -> bool:
    """Whether uncached plugins reject the same rows: a mask is the same array until it changes."""
    if masks is None or known is None or len(masks) != len(known):
        return False
    return all(map(operator.is_, known, masks))


def _empty_column(size: int) -> tuple[NDArray[np.int64], Any]:
    """A column that may be filled up to this size, and its cells."""
    column = np.empty(size, dtype=np.int64)
    return column, cells(column)
