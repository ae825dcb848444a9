"""Dry runs that are kept: for pods alike, only rows that changed are judged again.

That is right where the filters' verdict on a row follows from the row alone (`FilterOutcome.is_local`).
Pods with affinity or spreading constraints are judged anew on rows where these say no, or where pods are that
they count; on all others it is for the rest of the filters to say, and that is kept.
"""

from __future__ import annotations

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import FilterOutcome
from bayplan.preemption.table import Candidates, VictimTable
from bayplan.preemption.victims import Judge, dry_run
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.following import RowFollower
from bayplan.snapshot.interning import IdColumn


class KeptDryRun:
    """What is known for pods of one signature and priority."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._follower = RowFollower(cluster)
        self._budgets = -1
        self.table = VictimTable(0)

    def forget_outdated(self) -> None:
        """Forgets what is no longer true."""
        cluster, changed = self._cluster, self._follower.changed()
        budgets = cluster.objects.of(PodDisruptionBudget).version
        if changed is None or budgets != self._budgets:
            self._budgets = budgets
            self.table = VictimTable(cluster.nodes.high)
        else:
            self.table.forget(changed)


def judged(pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> Candidates:
    """What evicting would take on these rows, from an earlier dry run as far as that still holds."""
    if outcome.is_local:
        return Candidates(rows, _brought_up_to_date(pod, outcome, rows, outcome.filter_hypothesis))
    table = VictimTable(outcome.cluster.nodes.high)
    if outcome.local_filters is not None:
        alone = outcome.local_filters.locally_decided()
        kept_rows, rows_left = rows[alone.take(rows)], rows[~alone.take(rows)]
        table = _brought_up_to_date(
            pod, outcome, kept_rows, outcome.local_filters.filter_hypothesis
        ).overlay()
    else:
        rows_left = rows
    if len(rows_left):
        table.put(dry_run(outcome.cluster, pod.priority, rows_left, outcome.filter_hypothesis))
    return Candidates(rows, table)


def _brought_up_to_date(pod: Pod, outcome: FilterOutcome, rows: IdColumn, judge: Judge) -> VictimTable:
    """The table that is kept, in which these rows are known."""
    cluster, key = outcome.cluster, (KeptDryRun, pod.priority)
    kept: KeptDryRun | None = outcome.kept.get(key)
    if kept is None:
        kept = outcome.kept[key] = KeptDryRun(cluster)
    kept.forget_outdated()
    table, own = kept.table, cluster.nominated_row(pod.uid)
    if own >= 0:
        # Where the pod is expected itself it does not stand in its own way; what comes of that is of no use
        # to others, and what they found not to it.
        table.forget((own,))
    anew = rows[~table.known.take(rows)]
    if len(anew):
        table.put(dry_run(cluster, pod.priority, anew, judge))
    if own >= 0:
        table.forget((own,))
    return table
