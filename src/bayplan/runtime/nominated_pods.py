"""Nominated pods: the results of the filters with them on their nodes.

A pod that preempted others is nominated to their node and waits until they are gone. A pod of lower or equal
priority must fit with it and without it. So every search depends on all nominations; if the filters depend on
the row alone, only nominated rows that changed are filtered again for identical pods.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import PASS, NodeStatuses, ReasonIds, RejectingPlugins
from bayplan.runtime.signature_results import SignatureResults
from bayplan.state.cluster import Cluster
from bayplan.state.interning import IdColumn
from bayplan.state.table import cells
from bayplan.state.what_if import FEW_ROWS, Changes, Hypothesis

RowFilter = Callable[[int, Changes], tuple[int, int]]
"""The plugin that rejects a row with these changes, or PASS, and the id of its reasons."""


class NominatedResults:
    """For pods of one signature and priority: the results of the filters with and without nominated pods.

    A row is rejected as it is with its nominated pods, or else as it is without them, as in `results`.
    """

    def __init__(self, cluster: Cluster, results: SignatureResults) -> None:
        self._cluster = cluster
        self._results = results
        changes = cluster.changes
        self._freshness = changes.freshness(
            (*results.topics, results.recombined), (changes.usage, changes.nodes, changes.nominations)
        )
        self._own_row = -1
        """The row to which the last pod was nominated itself: its result is not valid for other pods."""
        self.rejecting_plugin: RejectingPlugins
        """The plugin that rejects a row; PASS if none does."""
        self.reason_id: ReasonIds
        self.rejected: set[int] = set()
        """The rows that are rejected because of their nominated pods."""

    def update(
        self,
        pod: Pod,
        filter_hypothesis: Callable[[Hypothesis], NodeStatuses],
        filter_row: RowFilter | None,
    ) -> None:
        """Filters the rows that changed, and the one to which the pod is nominated itself.

        `results` must be up to date.
        """
        own = self._cluster.nominated_row(pod.uid)
        stale = self._freshness.stale_rows()
        if stale is None:
            results = self._results
            self.rejecting_plugin, self.reason_id = results.rejecting_plugin.copy(), results.reason_id.copy()
            self._plugin_cell, self._reason_cell = cells(self.rejecting_plugin), cells(self.reason_id)
            self.rejected.clear()
            self._filter_rows(pod, None, filter_hypothesis)
        else:
            outdated = {*stale, self._own_row, own} - {-1}
            if filter_row is not None and len(outdated) <= FEW_ROWS:
                for row in outdated:
                    self._filter_row(pod, row, filter_row)
            else:
                rows = np.fromiter(outdated, dtype=np.intp, count=len(outdated))
                self.rejecting_plugin[rows] = self._results.rejecting_plugin.take(rows)
                self.reason_id[rows] = self._results.reason_id.take(rows)
                self.rejected -= outdated
                self._filter_rows(pod, rows, filter_hypothesis)
        self._own_row = own
        self._freshness.mark_current()

    def _filter_row(self, pod: Pod, row: int, filter_row: RowFilter) -> None:
        nominated = nominated_on(self._cluster, pod, row)
        rejection = filter_row(row, nominated) if nominated else (PASS, 0)
        if rejection[0] == PASS:
            self.rejected.discard(row)
            rejection = self._results.rejection(row)
        else:
            self.rejected.add(row)
        self._plugin_cell[row], self._reason_cell[row] = rejection

    def _filter_rows(
        self, pod: Pod, rows: IdColumn | None, filter_hypothesis: Callable[[Hypothesis], NodeStatuses]
    ) -> None:
        nominated = with_nominated(self._cluster, pod, rows)
        if nominated is not None:
            found = filter_hypothesis(nominated)
            failing = (found.rejecting_plugin != PASS).nonzero()[0]
            at = nominated.rows.take(failing)
            self.rejecting_plugin[at] = found.rejecting_plugin.take(failing)
            self.reason_id[at] = found.reason_id.take(failing)
            self.rejected.update(at.tolist())


def with_nominated(cluster: Cluster, pod: Pod, rows: IdColumn | None) -> Hypothesis | None:
    """The rows with nominated pods of higher or equal priority, with those pods. None: there are none.

    `rows` selects rows; None: all.
    """
    if rows is not None and len(rows) <= FEW_ROWS:
        found = {row: here for row in rows.tolist() if (here := nominated_on(cluster, pod, row))}
        return Hypothesis.on_few_rows(cluster, list(found), list(found.values())) if found else None
    slots = _nominated_slots(cluster, pod, rows)
    if not len(slots):
        return None
    where = cluster.pods.row.array.take(slots)
    order = where.argsort(kind="stable")
    slots, where = slots.take(order), where.take(order)
    begins = np.ones(len(where), dtype=np.bool_)
    np.not_equal(where[1:], where[:-1], out=begins[1:])
    first = begins.nonzero()[0]
    signs = np.ones(len(slots), dtype=np.int64)
    return Hypothesis(cluster, where.take(first), slots, np.append(first, len(slots)), signs)


def add_nominated(base: Hypothesis, pod: Pod) -> tuple[IdColumn, Hypothesis] | None:
    """`base` with the nominated pods of higher or equal priority added, if there are any.

    Also returns the positions of these rows in `base`. None: there are none.
    """
    cluster = base.cluster
    nominated = with_nominated(cluster, pod, base.rows)
    if nominated is None:
        return None
    at = _places(base.rows, nominated.rows)
    if len(at) <= FEW_ROWS:
        changes = [[*base.changes(place), *nominated.changes(here)] for here, place in enumerate(at.tolist())]
        return at, Hypothesis.on_few_rows(cluster, nominated.rows.tolist(), changes)
    before = base.subset(at)
    # All pods of a row are adjacent, the nominated ones last.
    places = np.arange(len(at))
    lengths = np.diff(before.starts), np.diff(nominated.starts)
    order = np.concatenate([np.repeat(places, length) for length in lengths]).argsort(kind="stable")
    slots = np.concatenate((before.slots, nominated.slots)).take(order)
    signs = np.concatenate((before.signs, nominated.signs)).take(order)
    return at, Hypothesis(cluster, nominated.rows, slots, before.starts + nominated.starts, signs)


def _nominated_slots(cluster: Cluster, pod: Pod, rows: IdColumn | None) -> IdColumn:
    """Slots of the pods nominated to these rows with higher or equal priority."""
    pods, wanted_rows = cluster.pods, cluster.nodes.exists.read
    if rows is not None:
        among = np.zeros(len(wanted_rows), dtype=np.bool_)
        among[rows] = True
        wanted_rows = wanted_rows & among
    slots = pods.nominated.read.nonzero()[0]
    slots = slots[pods.priority.array.take(slots) >= pod.priority]
    slots = slots[slots != cluster.nominated_slot(pod.uid)]
    found: IdColumn = slots[wanted_rows.take(pods.row.array.take(slots))]
    return found


def nominated_on(cluster: Cluster, pod: Pod, row: int) -> Changes:
    """The pods nominated to one row with higher or equal priority."""
    here = cluster.nominated.get(row)
    if here is None or not cluster.nodes.exists.cell[row]:
        return ()
    itself, priority = cluster.nominated_slot(pod.uid), cluster.pods.priority.cell
    return [(slot, 1) for slot in here if slot != itself and priority[slot] >= pod.priority]


def _places(rows: IdColumn, wanted: IdColumn) -> IdColumn:
    """The index in `rows` of each of `wanted`."""
    if len(rows) == len(wanted) == 1:
        return np.zeros(1, dtype=np.intp)
    order = rows.argsort(kind="stable")
    return order.take(np.searchsorted(rows.take(order), wanted))
