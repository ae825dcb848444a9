"""The nodes that fit pods of a shape, in the order in which they are found, and the best of them.

A `Feasible` lives on from pod to pod. While the same rows pass, only the totals of rows where pods came or
went are read again; a row or two that begin to pass, or no longer do, are put in or taken out. Total score
and tie-break are one integer (`ties.py`), so the best node is one argmax.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.runtime.signature_results import SignatureResults
from bayplan.runtime.ties import heap_rank, pick
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.table import cells
from bayplan.snapshot.view import IntColumn, NodeColumns

FEW_ROWS: Final = 8
"""Up to so many rows are taken in, taken out or read again one by one; beyond, all of them are."""

NOT_LISTED: Final = -1

Masks = tuple[NDArray[np.bool_], ...]


class SearchOrder:
    """The rows that searches look at, in order."""

    __slots__ = ("_high", "_places", "rows")

    def __init__(self, rows: IdColumn, high: int) -> None:
        self.rows = rows
        self._high = high
        self._places: Any = None

    @property
    def places(self) -> Any:
        """For each row of the table its place in this list."""
        if self._places is None:
            places = np.full(self._high, NOT_LISTED, dtype=np.intp)
            places[self.rows] = np.arange(len(self.rows))
            self._places = cells(places)
        return self._places


class Feasible:
    """Rows that pass, with what kept plugins think of them.

    Args:
        candidates: the rows looked at, in order; the search stops once `wanted` of them pass.
        passing: for each row of the table whether it passes.
        masks: what plugins that are not kept reject; None where that is mixed up with other node_statuses.
        most: a bound for total scores.
    """

    def __init__(
        self,
        cluster: Cluster,
        results: SignatureResults,
        candidates: SearchOrder,
        passing: NDArray[np.bool_],
        masks: Masks | None,
        *,
        wanted: int,
        most: int,
    ) -> None:
        self._cluster = cluster
        self._candidates = candidates
        self._topology = cluster.topology_version
        rows = candidates.rows
        fitting = passing.take(rows).nonzero()[0]
        self._complete = len(fitting) <= wanted
        self.evaluated = rows if self._complete else rows[: fitting[wanted]]
        """The rows that were looked at until enough were found."""
        self._count = count = min(len(fitting), wanted)
        self._fitting, self._fitting_cell = _room(len(rows))
        self._fitting[:count] = fitting[:count]
        self._view: NodeColumns | None = None
        self._totals, self._total_cell = _room(len(rows))
        self._keys, self._key_cell = _room(len(rows))
        self._normalized: IntColumn | None = None
        self._scores_version = -1
        self._usage_cursor = -1
        self._has_keys = False
        self._rank = heap_rank(len(rows))
        self._most = most
        shift = len(self._rank).bit_length()
        self._shift = shift if most < 1 << (62 - shift) else 0
        self._remember(results, passing, masks)

    def __len__(self) -> int:
        return self._count

    def _remember(self, results: SignatureResults, passing: NDArray[np.bool_], masks: Masks | None) -> None:
        self._results = results
        self._version = results.feasible_version
        self._passing = passing
        self._masks = masks

    # Which rows

    def is_about(self, candidates: SearchOrder) -> bool:
        """Whether these rows are looked at, and their labels and taints are as they were."""
        return self._candidates is candidates and self._topology == self._cluster.topology_version

    def holds(self, results: SignatureResults, masks: Masks | None) -> bool:
        """Whether nobody has said anything new. Masks are shared until they change: identity will do."""
        if self._results is not results or self._version != results.feasible_version:
            return False
        known = self._masks
        if masks is None or known is None or len(masks) != len(known):
            return False
        return all(mine is given for mine, given in zip(known, masks, strict=True))

    def follow(self, results: SignatureResults, passing: NDArray[np.bool_], masks: Masks | None) -> bool:
        """Takes rows in or out, if they are few. False where it is better to begin anew."""
        changed = (passing != self._passing).nonzero()[0]
        if len(changed):
            if len(changed) > FEW_ROWS or not self._complete or self._normalized is not None:
                return False
            for row in changed.tolist():
                place = self._candidates.places[row]
                if place != NOT_LISTED:
                    self._take_in(row, place) if passing[row] else self._take_out(place)
            self._view = None
            self._has_keys = False
        if self._results is not results:
            self._usage_cursor = -1
        self._remember(results, passing, masks)
        return True

    def _take_in(self, row: int, place: int) -> None:
        at, end = self._position(place), self._count
        for column in (self._fitting, self._totals):
            column[at + 1 : end + 1] = column[at:end]
        self._fitting_cell[at] = place
        self._total_cell[at] = self._results.total_of(row)
        self._count += 1

    def _take_out(self, place: int) -> None:
        at, end = self._position(place), self._count
        for column in (self._fitting, self._totals):
            column[at : end - 1] = column[at + 1 : end]
        self._count -= 1

    def _position(self, place: int) -> int:
        """Where in the list the candidate at this place stands, or would."""
        return bisect_left(self._fitting_cell, place, 0, self._count)

    @property
    def view(self) -> NodeColumns:
        """The rows as columns: one object, with what was gathered from it, while they stay the same."""
        if self._view is None:
            rows = self._candidates.rows.take(self._fitting[: self._count])
            self._view = NodeColumns(self._cluster, rows)
        return self._view

    # What they are worth

    @property
    def unit(self) -> int:
        """What one point of score counts for in `best`."""
        return 1 << self._shift

    def best(self, pod: Pod, added: IntColumn | None) -> int:
        """The row with the highest total, by kept plugins and what others add (in units)."""
        self._follow_scores(pod)
        count = self._count
        if not self._shift:
            totals = self._totals[:count]
            position = pick(totals if added is None else totals + added, self._most)
        else:
            if not self._has_keys:
                self._make_keys()
            keys = self._keys[:count]
            position = int((keys if added is None else keys + added).argmax())
        return self.row_at(position)

    def row_at(self, position: int) -> int:
        return int(self._candidates.rows[self._fitting_cell[position]])

    def _follow_scores(self, pod: Pod) -> None:
        results, log = self._results, self._cluster.usage_log
        if self._scores_version != results.scores_version:
            self._read_all(pod)
        elif self._usage_cursor != log.end:
            changed = log.since(self._usage_cursor)
            if changed is None or len(changed) > FEW_ROWS or results.normal_follows_usage:
                self._read_all(pod)
            else:
                for row in changed:
                    self._read_one(row)
        self._scores_version, self._usage_cursor = results.scores_version, log.end

    def _read_all(self, pod: Pod) -> None:
        rows, results = self.view.rows, self._results
        totals = results.totals(rows)
        self._normalized = results.normalized(pod, rows)
        if self._normalized is not None:
            totals += self._normalized
        self._totals[: self._count] = totals
        self._has_keys = False

    def _read_one(self, row: int) -> None:
        place = self._candidates.places[row]
        at = self._position(place)
        if at == self._count or self._fitting_cell[at] != place:
            return
        total = self._results.total_of(row)
        if self._normalized is not None:
            total += int(self._normalized[at])
        self._total_cell[at] = total
        if self._has_keys:
            self._key_cell[at] = (total << self._shift) - int(self._rank[at])

    def _make_keys(self) -> None:
        keys = self._keys[: self._count]
        np.left_shift(self._totals[: self._count], self._shift, out=keys)
        keys -= self._rank[: self._count]
        self._has_keys = True


def _room(size: int) -> tuple[NDArray[np.int64], Any]:
    """A column that may be filled up to this size, and its cells."""
    column = np.empty(size, dtype=np.int64)
    return column, cells(column)
