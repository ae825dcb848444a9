"""Evaluates preemption without side effects: whether the pod may preempt, on which nodes, and the best.

Dry runs are cached: for identical pods only rows that changed are evaluated again. This is correct if the
filters depend on the row alone (`FilterOutcome.is_local`). For pods with affinity or spreading constraints,
rows are also evaluated again where these plugins reject the node or count a pod on it; on all other rows only
the cached filters matter, and their dry run is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.framework.outcome import (
    Eviction,
    FilterOutcome,
    FilterRow,
    Nomination,
    PostFilterResult,
    fit_error,
)
from bayplan.framework.status import Code, Status, failure, unschedulable
from bayplan.preemption.choice import Candidates, Ranking, VictimTable, pick_node
from bayplan.preemption.units import dry_run_units, unit_priority
from bayplan.preemption.victims import (
    NEVER,
    PRIORITY_OFFSET,
    EvictionRule,
    FilterHypothesis,
    dry_run,
    not_helpful_status,
    preempted,
)
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import FEW_ROWS
from bayplan.state.pods import start_nanos

PREFIX: Final = "preemption: "
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL: Final = Status(Code.UNRESOLVABLE, ("Preemption is not helpful for scheduling",))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result. `ineligible` is the reason why the pod may not preempt; `chosen` is the chosen row."""

    ineligible: str = ""
    found: Candidates | None = None
    chosen: int | None = None

    def eviction(self, cluster: Cluster) -> Eviction | None:
        if self.found is None or self.chosen is None:
            return None
        return eviction_on(cluster, self.found, self.chosen)

    def all_evictions(self, cluster: Cluster) -> list[Eviction]:
        """The evictions on each node where evicting helps."""
        if self.found is None:
            return []
        return [eviction_on(cluster, self.found, row) for row in self.found.helped.tolist()]


def eviction_on(cluster: Cluster, found: Candidates, row: int) -> Eviction:
    """The eviction on one of the rows."""
    victims = []
    for slot in found.table.victims_of(row):
        pod = cluster.pods.pod[slot]
        assert pod is not None
        victims.append(pod)
    return Eviction(cluster.nodes.name[row], tuple(victims), int(found.table.violations[row]))


def success_status(eviction: Eviction, release: Release) -> Status:
    """The status of a preemption that found victims; from v1.37 on it has a text."""
    text = release.preemption_success.format(node=eviction.node_name, victims=len(eviction.victims))
    return Status(Code.SUCCESS, (text,) if text else ())


def pick_eviction(evictions: Sequence[Eviction]) -> Eviction | None:
    """The best of the given evictions (an extender may have changed them)."""

    def losses(eviction: Eviction) -> tuple[int, ...]:
        priorities = [victim.priority for victim in eviction.victims]
        highest = max(priorities)
        earliest = min(start_nanos(victim) for victim in eviction.victims if victim.priority == highest)
        return (
            eviction.pdb_violations,
            eviction.victims[0].priority,
            sum(priority + PRIORITY_OFFSET for priority in priorities),
            len(priorities),
            -earliest,
        )

    return min(evictions, key=losses, default=None)


def ineligible(pod: Pod, outcome: FilterOutcome, *, any_priority: bool = False) -> str:
    """The reason why the pod may not preempt now; empty if it may.

    `any_priority`: victims need not have a lower priority.
    """
    if pod.spec.preemption_policy == "Never":
        return NEVER
    cluster, nominated = outcome.cluster, pod.status.nominated_node_name
    if not nominated:
        return ""
    row = cluster.nodes.row_of.get(nominated)
    status = outcome.diagnosis.absent_nodes_status if row is None else outcome.diagnosis.status(row)
    if status.code is Code.UNRESOLVABLE or row is None:
        return ""
    for other in cluster.pods_on(row):
        lower = any_priority or unit_priority(cluster, other) < pod.priority
        if other.is_terminating and lower and preempted(other):
            # Victims are already terminating there; evicting pods elsewhere would be unnecessary.
            return TERMINATING
    return ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Stops once enough candidates are found, as upstream, if that is configured."""

    percentage: int
    absolute: int
    offset: float
    """Where to begin, as a fraction of the list between 0 and 1."""


def evaluate(
    pod: Pod, outcome: FilterOutcome, sampling: Sampling | None = None, may_evict: EvictionRule | None = None
) -> Evaluation:
    """Evaluates the nodes where evicting may help (without `sampling`: all of them), and chooses among
    them.

    `may_evict` replaces the rule that pods of lower priority may be evicted; nothing is cached then.
    """
    reason = ineligible(pod, outcome, any_priority=may_evict is not None)
    if reason:
        return Evaluation(ineligible=reason)
    rows = outcome.diagnosis.rows_with(Code.UNSCHEDULABLE)
    if may_evict is None:
        found = candidates(pod, outcome, rows)
    else:
        table = VictimTable(outcome.cluster.nodes.high)
        if len(rows):
            table.put(dry_run(outcome.cluster, pod.priority, rows, outcome.filter_hypothesis, may_evict))
        found = Candidates(rows, table)
    chosen = found.best() if sampling is None else pick_node(found.table, _sampled(found, sampling))
    return Evaluation(found=found, chosen=chosen)


def _sampled(found: Candidates, sampling: Sampling) -> IdColumn:
    """The nodes that would have been found before the search stopped.

    It stops once there are enough, at least one of them without a violated budget.
    """
    count = len(found.rows)
    wanted = min(count, max(count * sampling.percentage // 100, sampling.absolute))
    first = int(sampling.offset * count)
    rotated = np.concatenate((found.rows[first:], found.rows[:first]))
    fits = found.table.fits.take(rotated)
    without_violation = np.cumsum(fits & (found.table.violations.take(rotated) == 0))
    enough = (without_violation >= 1) & (np.cumsum(fits) >= wanted)
    if not enough.any():
        # Upstream keeps at most this many candidates that violate budgets.
        return rotated[fits][:wanted]
    end = int(enough.argmax()) + 1
    return rotated[:end][fits[:end]]


def preemption_result(evaluation: Evaluation, outcome: FilterOutcome) -> PostFilterResult:
    """The result of a PostFilter plugin that preempts: victims and a nomination, or why there are none."""
    if evaluation.ineligible:
        return PostFilterResult(unschedulable(PREFIX + evaluation.ineligible))
    eviction = evaluation.eviction(outcome.cluster)
    if eviction is not None:
        return PostFilterResult(
            success_status(eviction, outcome.cluster.release),
            Nomination(eviction.node_name),
            eviction,
            alternatives=lambda: evaluation.all_evictions(outcome.cluster),
        )
    errors = preemption_errors(evaluation)
    if errors:
        text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return PostFilterResult(failure(PREFIX + text), Nomination(""))
    return PostFilterResult(unschedulable(PREFIX + why_not(evaluation, outcome)), Nomination(""))


def why_not(evaluation: Evaluation, outcome: FilterOutcome) -> str:
    """The message if evicting helps on no node: the reasons for each node."""
    counts = [] if evaluation.found is None else evaluation.found.status_counts()
    return fit_error(outcome.diagnosis.node_count, counts, NOT_HELPFUL)


def preemption_errors(evaluation: Evaluation) -> list[str]:
    """The errors on nodes, each text once."""
    if evaluation.found is None:
        return []
    texts = [
        f'running "{status.plugin}" filter plugin: {status.message}' if status.plugin else status.message
        for status, _ in evaluation.found.status_counts()
        if status.code is Code.ERROR
    ]
    return list(dict.fromkeys(texts))


# Cached dry runs


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
    """What evicting would require on these rows, from a cached dry run where it is current.

    Rows with pods of groups are evaluated each time: their victims may be elsewhere, too.
    """
    groups = outcome.cluster.groups
    with_groups = np.zeros(0, dtype=np.intp) if groups is None else groups.rows(outcome.cluster.node_row)
    if not len(with_groups):
        return _candidates(pod, outcome, rows)
    is_mixed = np.isin(rows, with_groups)
    table = _candidates(pod, outcome, rows[~is_mixed]).table.overlay()
    if is_mixed.any():
        table.put(dry_run_units(outcome, pod.priority, rows[is_mixed]))
    return Candidates(rows, table)


def _candidates(pod: Pod, outcome: FilterOutcome, rows: IdColumn) -> Candidates:
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
