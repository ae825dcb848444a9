"""The feasible nodes for identical pods, in the order in which they are evaluated, and the best of them.

A `Feasible` is reused from pod to pod. It depends on the signature's results: rows that begin to pass, or no
longer do, are inserted or removed, and the totals of rows whose pods changed are read again. Total score and
tie-break are one integer (`tie_rank`), so the best node is one argmax.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence, Set
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.points import TieBreak
from bayplan.runtime.signature_results import SignatureResults
from bayplan.state.cluster import Cluster
from bayplan.state.columns import FEW_ROWS, IdColumn, RowMask, cells
from bayplan.state.view import IntColumn, NodeColumns

_rank: NDArray[np.int64] = np.zeros(1, dtype=np.int64)


def heap_rank(length: int) -> NDArray[np.int64]:
    """For each position of a list of at least this length: its position in pre-order."""
    global _rank
    if len(_rank) < length:
        depth = max(length, 1024).bit_length()
        rank = np.zeros(2**depth - 1, dtype=np.int64)
        for level in range(depth - 1):
            first, size = 2**level - 1, 2**level
            parents = rank[first : first + size]
            children = rank[first + size : first + 3 * size].reshape(size, 2)
            children[:, 0] = parents + 1
            children[:, 1] = parents + 2 ** (depth - level - 1)
        _rank = rank
    return _rank


def tie_rank(tie_break: TieBreak, length: int) -> NDArray[np.int64]:
    """For each position of a list of at least this length: its rank among nodes with equal scores."""
    if tie_break is TieBreak.FIRST_NODE:
        return np.arange(length, dtype=np.int64)
    return heap_rank(length)


def pick(totals: NDArray[np.int64], max_total: int, tie_break: TieBreak = TieBreak.KUBE_SCHEDULER) -> int:
    """The position of the winner among feasible nodes, given in the order in which they were found.

    `max_total` is a bound for the totals. Usually total and rank fit into one integer, so that one argmax is
    enough.
    """
    if tie_break is TieBreak.FIRST_NODE:
        return int(totals.argmax())
    rank = heap_rank(len(totals))
    shift = len(rank).bit_length()
    if max_total < 1 << (62 - shift):
        key = totals << shift
        key -= rank[: len(totals)]
        return int(key.argmax())
    best = (totals == totals.max()).nonzero()[0]
    return int(best[rank.take(best).argmin()])


BLOCK: Final = 1024
"""The number of keys that are compared again when one of them has changed."""


class Maximum:
    """`keys.argmax()` for keys that are changed in place, one at a time.

    The largest key of each block is stored. After a change one block is compared again, and then the largest
    keys of all blocks. With 50,000 keys that is a tenth of the work.
    """

    __slots__ = ("_keys", "_largest", "_size")

    def __init__(self, keys: IntColumn, size: int = BLOCK) -> None:
        self._keys = keys
        self._size = size
        self._largest: IntColumn = np.maximum.reduceat(keys, np.arange(0, len(keys), size))

    def changed(self, position: int) -> None:
        """The key at this position has changed."""
        block = position // self._size
        keys = self._keys[block * self._size : (block + 1) * self._size]
        self._largest[block] = keys[keys.argmax()]

    def position(self) -> int:
        """The position of the largest key; the first of equal ones."""
        begin = int(self._largest.argmax()) * self._size
        return begin + int(self._keys[begin : begin + self._size].argmax())


MANY_ROWS: Final = 16384
"""From this number on, not all keys are compared for every pod."""

NOT_LISTED: Final = -1

Rejected = tuple[RowMask, ...]


MAX_PLACEMENTS: Final = 1000
"""How many sets of rows are remembered."""


class SearchOrder:
    """The rows that searches evaluate, in order."""

    def __init__(self, rows: IdColumn, size: int) -> None:
        self.rows = rows
        self.row_cell = cells(rows)
        self.size = size

    @cached_property
    def place_of(self) -> IdColumn:
        """For each row of the table its position in this list."""
        places = np.full(self.size, NOT_LISTED, dtype=np.intp)
        places[self.rows] = np.arange(len(self.rows))
        return places

    @cached_property
    def place_cell(self) -> Any:
        """`place_of` for reading one position at a time."""
        return cells(self.place_of)


class Candidates:
    """The rows that the searches of one profile evaluate."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.rotation: tuple[int, SearchOrder] | None = None
        """The whole node list of the last search, and the index where it began."""
        changes = cluster.changes
        self._rotation_freshness = changes.freshness((changes.order, changes.size))
        self._placements: dict[int, tuple[IdColumn, int, SearchOrder]] = {}
        """By the id of the array: the rows that members of groups were restricted to."""

    def of(self, start: int, rows: IdColumn | None, names: Set[str] | None) -> SearchOrder:
        """The rows to evaluate, in order.

        Args:
            start: where the last search ended; the list may have become shorter since.
            rows: the rows that a member of a group is restricted to.
            names: the nodes that PreFilter named.
        """
        if rows is None:
            start %= self._cluster.node_count or 1
            if names is None:
                return self._rotated(start)
            return self._named(self._cluster.order, start, names)
        start %= len(rows) or 1
        return self._among(rows, start) if names is None else self._named(rows, start, names)

    def _rotated(self, start: int) -> SearchOrder:
        """The node list from an index on; the same object while neither changes."""
        cluster, rotation = self._cluster, self.rotation
        if rotation is None or rotation[0] != start or not self._rotation_freshness.is_current:
            rotation = self.rotation = (start, SearchOrder(_from(cluster.order, start), cluster.nodes.high))
            self._rotation_freshness.mark_current()
        return rotation[1]

    def _among(self, rows: IdColumn, start: int) -> SearchOrder:
        last = self._placements.get(id(rows))
        if last is None or last[1] != start or last[2].size != self._cluster.nodes.high:
            if len(self._placements) >= MAX_PLACEMENTS:
                self._placements.clear()
            last = (rows, start, SearchOrder(_from(rows, start), self._cluster.nodes.high))
            self._placements[id(rows)] = last
        return last[2]

    def _named(self, order: IdColumn, start: int, names: Set[str]) -> SearchOrder:
        """Those of the rows that PreFilter named."""
        nodes = self._cluster.nodes
        row_of, exists = nodes.row_of, nodes.exists.cell
        named = {row_of[name] for name in names if name in row_of}
        wanted = np.zeros(nodes.high, dtype=np.bool_)
        wanted[[row for row in named if exists[row]]] = True
        order = order[wanted.take(order)]
        return SearchOrder(_from(order, start % len(order)) if len(order) else order, nodes.high)


def _from(rows: IdColumn, start: int) -> IdColumn:
    """These rows, beginning with the one at this index."""
    return np.concatenate((rows[start:], rows[:start])) if start else rows


class Feasible:
    """Rows that pass, with their total scores by cached plugins.

    Args:
        order: the rows evaluated, in order; the search stops once `wanted` of them pass.
        rejected: the rows that uncached plugins and nominated pods reject besides.
        max_total: a bound for total scores.
        tie_break: which of several rows with the same total is the best.
    """

    def __init__(
        self,
        cluster: Cluster,
        results: SignatureResults,
        order: SearchOrder,
        rejected: Rejected,
        *,
        wanted: int,
        max_total: int,
        tie_break: TieBreak = TieBreak.KUBE_SCHEDULER,
    ) -> None:
        self._cluster = cluster
        self._results = results
        self.order = order
        self._rejected = rejected
        changes = cluster.changes
        self._rows_freshness = changes.freshness(
            (results.recombined, changes.topology, *(rows.replaced for rows in rejected)),
            (results.passing_rows, *(rows.changed for rows in rejected)),
        )
        self._scores_freshness = changes.freshness((results.scores_changed,), (changes.usage,))
        rows, passing = order.rows, results.passing
        for mask in rejected:
            passing = passing & ~mask.mask
        fitting = passing.take(rows).nonzero()[0]
        self._wanted = wanted
        self._complete = len(fitting) <= wanted
        self.evaluated = rows if self._complete else rows[: fitting[wanted]]
        """The rows that were evaluated until enough were found."""
        self.count = count = min(len(fitting), wanted)
        # The positions in the order, and the totals in units (of `unit`).
        self._columns = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
        self._begin_at(0)
        self._fitting[:count] = fitting[:count]
        self._view: NodeColumns | None = None
        self._keys = np.empty(len(rows), dtype=np.int64)
        self._key_cell = cells(self._keys)
        self._normalized: IntColumn | None = None
        self._keys_until = 0
        """The keys of the positions before this one are up to date."""
        self._maximum: Maximum | None = None
        self._tie_break = tie_break
        self._rank = tie_rank(tie_break, len(rows))
        self._rank_cell = cells(self._rank)
        self._max_total = max_total
        shift = len(self._rank).bit_length()
        self._shift = shift if max_total < 1 << (62 - shift) else 0
        self._rows_freshness.mark_current()

    # Which rows

    def update(self, results: SignatureResults, order: SearchOrder, rejected: Rejected) -> bool:
        """Inserts and removes rows, if they are few. False if starting from scratch is better."""
        if self._results is not results or self.order is not order or self._rejected != rejected:
            return False
        stale = self._rows_freshness.stale_rows()
        if not stale:
            return stale is not None
        is_passing = self._is_passing if rejected else results.is_passing
        return self._replace(stale if len(stale) == 1 else set(stale), is_passing)

    def _is_passing(self, row: int) -> bool:
        for rows in self._rejected:
            if rows.cell[row]:
                return False
        return self._results.is_passing(row)

    def _replace(self, changed: Collection[int], is_passing: Callable[[int], bool]) -> bool:
        """Inserts or removes these rows, if they are few."""
        if changed:
            if len(changed) > FEW_ROWS or not self._complete or self._normalized is not None:
                return False
            self._insert_or_remove(changed, is_passing)
            if self.count > self._wanted:
                # The search now stops earlier.
                return False
        self._rows_freshness.mark_current()
        return True

    def _insert_or_remove(self, rows: Collection[int], is_passing: Callable[[int], bool]) -> None:
        place_of = self.order.place_cell
        for row in rows:
            place = place_of[row]
            if place == NOT_LISTED:
                continue
            at, end = bisect_left(self._fitting_cell, place, 0, self.count), self.count
            listed = at < end and self._fitting_cell[at] == place
            if listed == is_passing(row):
                continue
            if listed:
                self._close_gap(at)
            else:
                self._open_gap(at)
                self._fitting_cell[at] = place
                results = self._results
                total = results.node_total_cell[row] + results.usage.total_cell[row]
                self._total_cell[at] = total << self._shift
            if at < self._keys_until:
                self._keys_until = at
        self._view = None
        self._maximum = None

    # Of the entries before and behind a gap, the fewer are moved. Slices of cells are moved in place; those
    # of arrays would be copied twice.

    def _close_gap(self, at: int) -> None:
        end = self.count
        near_begin = at < end // 2
        for cell in (self._fitting_cell, self._total_cell):
            if near_begin:
                cell[1 : at + 1] = cell[:at]
            else:
                cell[at : end - 1] = cell[at + 1 : end]
        self.count -= 1
        if near_begin:
            self._begin_at(self._begin + 1)

    def _open_gap(self, at: int) -> None:
        end = self.count
        near_begin = self._begin > 0 and (at < end // 2 or end == len(self._fitting))
        if near_begin:
            self._begin_at(self._begin - 1)
        for cell in (self._fitting_cell, self._total_cell):
            if near_begin:
                cell[:at] = cell[1 : at + 1]
            else:
                cell[at + 1 : end + 1] = cell[at:end]
        self.count += 1

    def _begin_at(self, begin: int) -> None:
        """The entries begin at this index of the columns."""
        self._begin = begin
        fitting, totals = self._columns
        self._fitting, self._totals = fitting[begin:], totals[begin:]
        self._fitting_cell, self._total_cell = cells(self._fitting), cells(self._totals)

    @property
    def view(self) -> NodeColumns:
        """The rows as columns: the same object, with its gathered columns, while the rows stay the same."""
        if self._view is None:
            rows = self.order.rows.take(self._fitting[: self.count])
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
        count = self.count
        if not self._shift:
            totals = self._totals[:count]
            position = pick(totals if added is None else totals + added, self._max_total, self._tie_break)
        else:
            if self._keys_until < count:
                self._make_keys()
            keys = self._keys[:count]
            if added is not None or count < MANY_ROWS:
                position = int((keys if added is None else keys + added).argmax())
            else:
                if self._maximum is None:
                    self._maximum = Maximum(keys)
                position = self._maximum.position()
        row: int = self.order.row_cell[self._fitting_cell[position]]
        return row

    def row_at(self, position: int) -> int:
        row: int = self.order.row_cell[self._fitting_cell[position]]
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
        np.left_shift(totals, self._shift, out=self._totals[: self.count])
        self._keys_until = 0

    def _read_one(self, row: int) -> None:
        at = self._position(self.order.place_cell[row])
        if at is None:
            return
        results = self._results
        total = results.node_total_cell[row] + results.usage.total_cell[row]
        if self._normalized is not None:
            total += int(self._normalized[at])
        total <<= self._shift
        self._total_cell[at] = total
        if at < self._keys_until:
            self._key_cell[at] = total - self._rank_cell[at]
            if self._maximum is not None:
                self._maximum.changed(at)

    def _position(self, place: int) -> int | None:
        """The position among the rows that pass; None if the row does not."""
        count, fitting = self.count, self._fitting_cell
        if count == len(self.order.rows):
            return place if place != NOT_LISTED else None
        at = bisect_left(fitting, place, 0, count)
        return at if at < count and fitting[at] == place else None

    def _read_rows(self, rows: Sequence[int]) -> None:
        """Like `_read_one` for several rows, with arrays."""
        changed = np.fromiter(rows, dtype=np.intp, count=len(rows))
        places = self.order.place_of.take(changed)
        if self.count == len(self.order.rows):
            at, listed = places, places != NOT_LISTED
        else:
            fitting = self._fitting[: self.count]
            at = fitting.searchsorted(places)
            at[at == self.count] = 0
            listed = fitting.take(at) == places
        if np.count_nonzero(listed) != len(listed):
            at, changed = at[listed], changed[listed]
        totals = self._results.totals(changed)
        if self._normalized is not None:
            totals += self._normalized.take(at)
        totals <<= self._shift
        self._totals[at] = totals
        if self._keys_until:
            totals -= self._rank.take(at)
            self._keys[at] = totals
            self._maximum = None

    def _make_keys(self) -> None:
        stale = slice(self._keys_until, self.count)
        np.subtract(self._totals[stale], self._rank[stale], out=self._keys[stale])
        self._keys_until = self.count
        self._maximum = None
