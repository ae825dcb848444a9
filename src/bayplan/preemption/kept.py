"""Dry runs that are kept: for pods alike, only rows that changed are judged again.

That is right where the filters' verdict on a row follows from the row alone (`FilterOutcome.row_local`).
Pods with affinity or spreading constraints are judged on all rows each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import FilterOutcome
from bayplan.preemption.table import Candidates, VictimTable
from bayplan.preemption.victims import dry_run
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn


@dataclass(slots=True)
class KeptDryRun:
    """What is known for pods of one signature and priority, and how much of the logs it has seen."""

    table: VictimTable
    itself: str
    """The uid of a pod that is nominated itself, and so does not count among those that go before it."""
    budgets: int
    cursors: tuple[int, int, int]

    def follow(self, cluster: Cluster) -> bool:
        """Forgets what is no longer true. False where all of it has to be forgotten."""
        logs = (cluster.usage_log, cluster.node_log, cluster.nomination_log)
        changes = [log.since(cursor) for log, cursor in zip(logs, self.cursors, strict=True)]
        self.cursors = _cursors(cluster)
        if self.budgets != _budgets(cluster) or len(self.table.known) != cluster.nodes.high:
            return False
        for changed in changes:
            if changed is None:
                return False
            if changed:
                self.table.known[changed] = False
        return True


def judged(pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> Candidates:
    """What evicting would take on these rows, from an earlier dry run as far as that still holds."""
    cluster = outcome.cluster
    itself = pod.uid if cluster.nominated_node(pod.uid) else ""
    key = ("preemption", pod.priority, bool(itself))
    known = outcome.kept.get(key) if outcome.row_local else None
    if not isinstance(known, KeptDryRun) or known.itself != itself or not known.follow(cluster):
        known = KeptDryRun(VictimTable(cluster.nodes.high), itself, _budgets(cluster), _cursors(cluster))
        if outcome.row_local:
            outcome.kept[key] = known
    anew = rows[~known.table.known.take(rows)]
    if len(anew):
        known.table.put(dry_run(cluster, pod.priority, anew, outcome.judge))
    return Candidates(rows, known.table)


def _cursors(cluster: Cluster) -> tuple[int, int, int]:
    return cluster.usage_log.end, cluster.node_log.end, cluster.nomination_log.end


def _budgets(cluster: Cluster) -> int:
    return cluster.objects.of(PodDisruptionBudget).version
