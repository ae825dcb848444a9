"""Nodes that are promised to pods which go first: what the filters say with those pods there.

A pod that preempted others is nominated to their node and waits for them to go. Whoever is less important, or
as important and later, must fit with it there, and without it. So every search has to do with all promises
that were made; where a verdict follows from the row alone, only with those that changed since the last pod of
the same shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import PASS, NodeStatuses, Who, Why
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.following import RowFollower
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.what_if import FEW_ROWS, Changes, Hypothesis


class NominatedResults:
    """For pods of one signature and priority: the rows that are refused because of who is expected there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._follower = RowFollower(cluster)
        self._outdated: set[int] | None = None
        """Rows that have to be judged again; None: all of them."""
        self._allocate()

    def _allocate(self) -> None:
        rows = self._cluster.nodes.high
        self.who: Who = np.full(rows, PASS, dtype=np.int8)
        """Who refuses a row with those pods there; PASS where nobody does, and where nobody is expected."""
        self.why: Why = np.zeros(rows, dtype=np.int64)

    def renew(self, pod: Pod, judge: Callable[[Hypothesis], NodeStatuses]) -> None:
        """Judges the rows that changed, and the one where the pod is expected itself."""
        own = self._cluster.nominated_row(pod.uid)
        changed = self._follower.changed()
        self._outdated = None if changed is None or self._outdated is None else self._outdated | changed
        rows = None
        if self._outdated is None:
            self._allocate()
        else:
            if own >= 0:
                self._outdated.add(own)
            rows = np.fromiter(self._outdated, dtype=np.intp, count=len(self._outdated))
            self.who[rows] = PASS
        supposed = with_nominated(self._cluster, pod, rows)
        if supposed is not None:
            found = judge(supposed)
            self.who[supposed.rows] = found.who
            self.why[supposed.rows] = found.why
        # It does not stand in its own way, but in that of others.
        self._outdated = {own} if own >= 0 else set()


def with_nominated(cluster: Cluster, pod: Pod, rows: IdColumn | None) -> Hypothesis | None:
    """The rows where pods are expected that go before this one, with those pods there. None: there are none.

    `rows` says which rows are meant; None: all.
    """
    if rows is not None and len(rows) <= FEW_ROWS:
        found = {row: here for row in rows.tolist() if (here := _going_first_to(cluster, pod, row))}
        return Hypothesis.on_few_rows(cluster, list(found), list(found.values())) if found else None
    slots = _going_first(cluster, pod, rows)
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


def joined(base: Hypothesis, pod: Pod) -> tuple[IdColumn, Hypothesis] | None:
    """What `base` supposes, and that pods are there which are expected and go first, where there are any.

    Returns the places in `base` of these rows, too. None: there are none.
    """
    cluster = base.cluster
    promised = with_nominated(cluster, pod, base.rows)
    if promised is None:
        return None
    at = _places(base.rows, promised.rows)
    if len(at) <= FEW_ROWS:
        changes = [[*base.changes(place), *promised.changes(here)] for here, place in enumerate(at.tolist())]
        return at, Hypothesis.on_few_rows(cluster, promised.rows.tolist(), changes)
    before = base.subset(at)
    # All pods in question of a row stand together, those that are expected last.
    places = np.arange(len(at))
    lengths = np.diff(before.starts), np.diff(promised.starts)
    order = np.concatenate([np.repeat(places, length) for length in lengths]).argsort(kind="stable")
    slots = np.concatenate((before.slots, promised.slots)).take(order)
    signs = np.concatenate((before.signs, promised.signs)).take(order)
    return at, Hypothesis(cluster, promised.rows, slots, before.starts + promised.starts, signs)


def _going_first(cluster: Cluster, pod: Pod, rows: IdColumn | None) -> IdColumn:
    """Slots of the pods that are expected on these rows and go before this one."""
    pods, meant = cluster.pods, cluster.nodes.exists.read
    if rows is not None:
        among = np.zeros(len(meant), dtype=np.bool_)
        among[rows] = True
        meant = meant & among
    slots = pods.nominated.read.nonzero()[0]
    slots = slots[pods.priority.array.take(slots) >= pod.priority]
    slots = slots[slots != cluster.nominated_slot(pod.uid)]
    found: IdColumn = slots[meant.take(pods.row.array.take(slots))]
    return found


def _going_first_to(cluster: Cluster, pod: Pod, row: int) -> Changes:
    """The same for one row."""
    here = cluster.nominated.get(row)
    if here is None or not cluster.nodes.exists.cell[row]:
        return ()
    itself, priority = cluster.nominated_slot(pod.uid), cluster.pods.priority.cell
    return [(slot, 1) for slot in here if slot != itself and priority[slot] >= pod.priority]


def _places(rows: IdColumn, wanted: IdColumn) -> IdColumn:
    """Where in `rows` each of `wanted` stands."""
    if len(rows) == len(wanted) == 1:
        return np.zeros(1, dtype=np.intp)
    order = rows.argsort(kind="stable")
    return order.take(np.searchsorted(rows.take(order), wanted))
