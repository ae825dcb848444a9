"""Cached dry runs: for identical pods only rows that changed are evaluated again.

This is correct if the filters depend on the row alone (`FilterOutcome.is_local`). For pods with affinity or
spreading constraints, rows are also evaluated again where these plugins reject the node or count a pod on it;
on all other rows only the cached filters matter, and their dry run is cached.
"""

from __future__ import annotations

import numpy as np

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import FilterOutcome, FilterRow
from bayplan.preemption.choice import Candidates, Ranking, VictimTable
from bayplan.preemption.victims import FilterHypothesis, dry_run, not_helpful_status
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import FEW_ROWS


class CachedDryRun:
    """The dry run for pods of one signature and priority."""

    def __init__(self, outcome: FilterOutcome) -> None:
        self._cluster = outcome.cluster
        changes = outcome.cluster.changes
        self._freshness = changes.freshness(
            (*outcome.topics, changes.size, changes.kind(PodDisruptionBudget)),
            (changes.usage, changes.nodes, changes.nominations),
        )
        self._drop()

    def _drop(self) -> None:
        self.table = VictimTable(self._cluster.nodes.high)
        self._rows: IdColumn | None = None
        """The rows of the last pod: all are known, except for those that were forgotten since."""
        self.ranking: Ranking | None = None

    def update(self, own: int) -> None:
        """Drops what is stale, and the result for the row that the pod is nominated to, if there is one."""
        with self._freshness as rows:
            if rows is None:
                self._drop()
            else:
                self.table.forget(rows)
        if own >= 0:
            self.table.forget((own,))

    def unknown(self, rows: IdColumn) -> list[int]:
        """Those of the rows that have to be evaluated. If they are the rows of the last pod, as nearly always
        when pods preempt one after the other, they are ranked.

        Call `evaluated` afterwards; if a plugin fails before, all rows are looked up again.
        """
        last, self._rows = self._rows, None
        if last is None or not (rows is last or np.array_equal(rows, last)):
            self.ranking = None
            found: list[int] = rows[~self.table.known.take(rows)].tolist()
            return found
        if self.ranking is None:
            self.ranking = Ranking(self.table, rows)
        return [row for row in self.table.forgotten if row in self.ranking]

    def evaluated(self, rows: IdColumn, again: list[int]) -> None:
        """All these rows are known; some were evaluated again."""
        self._rows = rows
        if self.ranking is not None:
            self.ranking.update(again)


def candidates(pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> Candidates:
    """What evicting would require on these rows, from a cached dry run where it is current."""
    if outcome.is_local:
        cached = _updated(pod, outcome, rows, outcome.filter_hypothesis, outcome.filter_row)
        return Candidates(rows, cached.table, cached.ranking)
    table = VictimTable(outcome.cluster.nodes.high)
    if outcome.local_filters is not None:
        local = outcome.local_filters.locally_decided()
        cached_rows, rows_left = rows[local.take(rows)], rows[~local.take(rows)]
        table = _updated(pod, outcome, cached_rows, outcome.local_filters.filter_hypothesis).table.overlay()
    else:
        rows_left = rows
    if len(rows_left):
        table.put(dry_run(outcome.cluster, pod.priority, rows_left, outcome.filter_hypothesis))
    return Candidates(rows, table)


def _updated(
    pod: Pod,
    outcome: FilterOutcome,
    rows: IdColumn,
    filter_hypothesis: FilterHypothesis,
    filter_row: FilterRow | None = None,
) -> CachedDryRun:
    """The cached dry run, with current results for these rows."""
    cluster, memory = outcome.cluster, outcome.memory
    cached = memory.get(CachedDryRun, pod.priority)
    if cached is None:
        cached = memory.put(CachedDryRun(outcome), pod.priority)
    # A nominated pod does not compete with itself: the result for its row is valid for this pod only.
    own = cluster.nominated_row(pod.uid)
    cached.update(own)
    table, unknown = cached.table, cached.unknown(rows)
    left = unknown
    if filter_row is not None and len(unknown) <= FEW_ROWS:
        left = []
        for row in unknown:
            status = not_helpful_status(cluster, pod.priority, row, filter_row)
            if status is None:
                left.append(row)
            else:
                table.put_not_helpful(row, status)
    if left:
        evaluated = np.array(left, dtype=np.intp)
        table.put(dry_run(cluster, pod.priority, evaluated, filter_hypothesis))
    if outcome.is_local:
        cached.evaluated(rows, unknown)
    if own >= 0:
        table.forget((own,))
    return cached
