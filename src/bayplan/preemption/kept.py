"""Dry runs that are kept: for pods alike, only rows that changed are judged again.

That is right where the filters' verdict on a row follows from the row alone (`FilterOutcome.row_local`).
Pods with affinity or spreading constraints are judged on all rows each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import FilterOutcome
from bayplan.framework.status import Status
from bayplan.preemption.victims import DryRun, dry_run
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn


@dataclass(slots=True)
class KeptDryRun:
    """The last dry run for pods of one signature and priority, and how much of the logs it has seen."""

    found: DryRun
    budgets: int
    cursors: tuple[int, int, int]
    index: IdColumn
    """For each row of the table its place in `found`, -1 where it has none."""


def dry_run_of(pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> DryRun:
    """`dry_run`, made from an earlier one where that is possible."""
    cluster = outcome.cluster
    if not outcome.row_local:
        return dry_run(cluster, pod.priority, rows, outcome.judge)
    key = ("preemption", pod.priority, pod.uid if cluster.nominated_node(pod.uid) else "")
    known = outcome.kept.get(key)
    found = None
    if isinstance(known, KeptDryRun):
        found = _brought_up_to_date(known, pod, outcome, rows)
    if found is None:
        found = dry_run(cluster, pod.priority, rows, outcome.judge)
    index = np.full(cluster.nodes.high, -1, dtype=np.intp)
    index[found.rows] = np.arange(len(found.rows))
    outcome.kept[key] = KeptDryRun(found, _budgets(cluster), _cursors(cluster), index)
    return found


def _cursors(cluster: Cluster) -> tuple[int, int, int]:
    return cluster.usage_log.end, cluster.node_log.end, cluster.nomination_log.end


def _budgets(cluster: Cluster) -> int:
    return cluster.objects.of(PodDisruptionBudget).version


def _brought_up_to_date(known: KeptDryRun, pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> DryRun | None:
    cluster = outcome.cluster
    logs = (cluster.usage_log, cluster.node_log, cluster.nomination_log)
    changes = [log.since(cursor) for log, cursor in zip(logs, known.cursors, strict=True)]
    if _budgets(cluster) != known.budgets or len(known.index) != cluster.nodes.high:
        return None
    index = known.index.take(rows)
    for changed in changes:
        if changed is None:
            return None
        if changed:
            index[np.isin(rows, changed)] = -1
    anew = (index < 0).nonzero()[0]
    if len(anew) * 2 > len(rows):
        return None
    fresh = dry_run(cluster, pod.priority, rows.take(anew), outcome.judge)
    return _merged(known.found, fresh, rows, index, anew)


def _merged(old: DryRun, fresh: DryRun, rows: IdColumn, index: IdColumn, anew: IdColumn) -> DryRun:
    """Rows from both: `index` says where in `old`, those at `anew` come from `fresh`."""
    joined = index.copy()
    joined[anew] = len(old.rows) + np.arange(len(anew))
    lengths = np.concatenate((np.diff(old.starts), np.diff(fresh.starts))).take(joined)
    first = np.concatenate((old.starts[:-1], fresh.starts[:-1] + len(old.victims))).take(joined)
    starts = np.zeros(len(rows) + 1, dtype=np.intp)
    np.cumsum(lengths, out=starts[1:])
    picked = np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths)
    statuses = tuple(dict.fromkeys((*old.statuses, *fresh.statuses)))
    return DryRun(
        rows=rows,
        fits=np.concatenate((old.fits, fresh.fits)).take(joined),
        status_id=np.concatenate((_renumbered(old, statuses), _renumbered(fresh, statuses))).take(joined),
        statuses=statuses,
        victims=np.concatenate((old.victims, fresh.victims)).take(picked),
        starts=starts,
        violations=np.concatenate((old.violations, fresh.violations)).take(joined),
        highest_priority=np.concatenate((old.highest_priority, fresh.highest_priority)).take(joined),
        priority_sum=np.concatenate((old.priority_sum, fresh.priority_sum)).take(joined),
        victim_count=np.concatenate((old.victim_count, fresh.victim_count)).take(joined),
        earliest_start=np.concatenate((old.earliest_start, fresh.earliest_start)).take(joined),
    )


def _renumbered(found: DryRun, statuses: tuple[Status, ...]) -> NDArray[np.int64]:
    """The status ids of a dry run as indexes into another list of statuses."""
    numbers = np.array([*(statuses.index(status) for status in found.statuses), -1], dtype=np.int64)
    return numbers.take(found.status_id)
