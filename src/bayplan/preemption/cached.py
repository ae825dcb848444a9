"""Cached dry runs: for identical pods only rows that changed are evaluated again.

This is correct if the filters depend on the row alone (`FilterOutcome.is_local`). For pods with affinity or
spreading constraints, rows are also evaluated again where these plugins reject the node or count a pod on it;
on all other rows only the cached filters matter, and their dry run is cached.
"""

from __future__ import annotations

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import FilterOutcome
from bayplan.preemption.table import Candidates, VictimTable
from bayplan.preemption.victims import FilterHypothesis, dry_run
from bayplan.snapshot.interning import IdColumn


class CachedDryRun:
    """The dry run for pods of one signature and priority."""

    def __init__(self, outcome: FilterOutcome) -> None:
        self._cluster = outcome.cluster
        changes = outcome.cluster.changes
        self._freshness = changes.freshness(
            (*outcome.topics, changes.size, changes.kind(PodDisruptionBudget)),
            (changes.usage, changes.nodes, changes.nominations),
        )
        self.table = VictimTable(0)

    def update(self) -> None:
        """Drops what is stale."""
        rows = self._freshness.stale_rows()
        if rows is None:
            self.table = VictimTable(self._cluster.nodes.high)
        else:
            self.table.forget(rows)
        self._freshness.mark_current()


def candidates(pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> Candidates:
    """What evicting would require on these rows, from a cached dry run where it is current."""
    if outcome.is_local:
        return Candidates(rows, _updated(pod, outcome, rows, outcome.filter_hypothesis))
    table = VictimTable(outcome.cluster.nodes.high)
    if outcome.local_filters is not None:
        local = outcome.local_filters.locally_decided()
        cached_rows, rows_left = rows[local.take(rows)], rows[~local.take(rows)]
        table = _updated(pod, outcome, cached_rows, outcome.local_filters.filter_hypothesis).overlay()
    else:
        rows_left = rows
    if len(rows_left):
        table.put(dry_run(outcome.cluster, pod.priority, rows_left, outcome.filter_hypothesis))
    return Candidates(rows, table)


def _updated(
    pod: Pod, outcome: FilterOutcome, rows: IdColumn, filter_hypothesis: FilterHypothesis
) -> VictimTable:
    """The cached table, with current results for these rows."""
    cluster, memory = outcome.cluster, outcome.memory
    cached = memory.get(CachedDryRun, pod.priority)
    if cached is None:
        cached = memory.put(CachedDryRun(outcome), pod.priority)
    cached.update()
    table, own = cached.table, cluster.nominated_row(pod.uid)
    if own >= 0:
        # A nominated pod does not compete with itself: the result for its row is valid for this pod only.
        table.forget((own,))
    unknown = rows[~table.known.take(rows)]
    if len(unknown):
        table.put(dry_run(cluster, pod.priority, unknown, filter_hypothesis))
    if own >= 0:
        table.forget((own,))
    return table
