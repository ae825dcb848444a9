"""Dry runs that are kept: for pods alike, only rows that changed are judged again.

That is right where the filters' verdict on a row follows from the row alone (`FilterOutcome.row_local`).
Pods with affinity or spreading constraints are judged on all rows each time.
"""

from __future__ import annotations

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import FilterOutcome
from bayplan.preemption.table import Candidates, VictimTable
from bayplan.preemption.victims import dry_run
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
    cluster, key = outcome.cluster, (KeptDryRun, pod.priority)
    kept: KeptDryRun | None = outcome.kept.get(key) if outcome.row_local else None
    if kept is None:
        kept = KeptDryRun(cluster)
        if outcome.row_local:
            outcome.kept[key] = kept
    kept.forget_outdated()
    table, own = kept.table, cluster.nominated_row(pod.uid)
    if own >= 0:
        # Where the pod is expected itself it does not stand in its own way; what comes of that is of no use
        # to others, and what they found not to it.
        table.forget((own,))
    anew = rows[~table.known.take(rows)]
    if len(anew):
        table.put(dry_run(cluster, pod.priority, anew, outcome.judge))
    if own >= 0:
        table.forget((own,))
    return Candidates(rows, table)
