"""The dry run: for each node, the pods of lower priority that would have to be evicted for the pod to fit.

All of them are removed first, on every node at once. Where the pod then fits, they are added back one by one,
most important first (those whose eviction would violate a budget before all others); a pod that no longer
fits is a victim. The loop is over ranks, not over nodes: each iteration adds back one pod on every node.

Importance is priority, then the earlier start. Upstream sorts by it with Go's `sort.Slice`, which moves
equally important pods if there are more than twelve, so such rows are sorted with `go_sort`.

Whether an eviction violates a PodDisruptionBudget is decided for each node on its own: in order of
importance, every pod that a budget protects uses one of its allowed disruptions, and those for which none is
left violate it. If several budgets protect a pod, releases differ in whether a violated one prevents it from
using disruptions of the next (`Release.budget_walk_stops`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector, compile_selector
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.errors import SelectorError
from bayplan.framework.outcome import FilterRow, NodeStatuses
from bayplan.framework.status import Code, Status
from bayplan.go_sort import MAX_INSERTION, go_sort_by
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import FEW_ROWS, Hypothesis
from bayplan.state.pods import NOT_STARTED
from bayplan.state.terms import SelectorIndex

NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = Status(Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))

PRIORITY_OFFSET: Final = 2**31
"""Added to each victim's priority when priorities are summed, so that more victims never look better."""

FilterHypothesis = Callable[[Hypothesis], NodeStatuses]

MayEvict = Callable[[int, Sequence[Pod]], Sequence[Pod]]
"""Which of the pods of a row may be evicted. They are passed, and returned, least important first."""


@dataclass(frozen=True, slots=True)
class MayEvictOnRows:
    """The same for many rows in one call.

    Attributes:
        slots: returns the slots of the pods on these rows that may be evicted, in any order.
    """

    slots: Callable[[Cluster, IdColumn], IdColumn]


EvictionRule = MayEvict | MayEvictOnRows


def preempted(pod: Pod) -> bool:
    """Whether the pod was evicted for another."""
    return any(
        condition.type == "DisruptionTarget"
        and condition.status == "True"
        and condition.reason == "PreemptionByScheduler"
        for condition in pod.status.conditions
    )


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result for some rows. All arrays except `victims` have one entry per row."""

    rows: IdColumn
    fits: NDArray[np.bool_]
    """Whether evicting helps."""
    status_id: NDArray[np.int64]
    """Why it does not help: an index into `statuses`, -1 where it does."""
    statuses: tuple[Status, ...]
    victims: IdColumn
    """Slots of all victims: those of row i are `victims[starts[i]:starts[i + 1]]`, most important first."""
    starts: IdColumn
    violations: NDArray[np.int64]
    highest_priority: NDArray[np.int64]
    priority_sum: NDArray[np.int64]
    victim_count: NDArray[np.int64]
    earliest_start: NDArray[np.int64]
    """The start time of the victims with the highest priority."""

    def victims_of(self, index: int) -> IdColumn:
        return self.victims[self.starts[index] : self.starts[index + 1]]


def dry_run(
    cluster: Cluster,
    priority: int,
    rows: IdColumn,
    filter_hypothesis: FilterHypothesis,
    may_evict: EvictionRule | None = None,
) -> DryRun:
    """The victims on each of these rows for a pod of this priority.

    `may_evict` replaces the rule that pods of lower priority may be evicted.
    """
    if may_evict is None:
        candidates = _lower_priority(cluster, priority, rows)
    elif isinstance(may_evict, MayEvictOnRows):
        candidates = _without(cluster, may_evict.slots(cluster, rows), rows)
    else:
        candidates = _allowed_by(cluster, may_evict, rows)
    lengths = candidates.starts[1:] - candidates.starts[:-1]
    statuses = [NO_VICTIMS]
    status_id = np.zeros(len(rows), dtype=np.int64)
    helped = with_candidates = lengths.nonzero()[0]
    if len(with_candidates):
        node_statuses = filter_hypothesis(
            candidates if len(with_candidates) == len(rows) else candidates.subset(with_candidates)
        )
        for status, positions in node_statuses.statuses():
            status_id[with_candidates.take(positions)] = len(statuses)
            statuses.append(status)
        helped = with_candidates.take(node_statuses.passing.nonzero()[0])
        status_id[helped] = -1
    if not len(helped):
        return _no_candidates(rows, status_id, statuses)
    return _summary(candidates, helped, status_id, statuses, filter_hypothesis)


def not_helpful_status(cluster: Cluster, priority: int, row: int, filter_row: FilterRow) -> Status | None:
    """Why evicting does not help on one row; None if it may: then `dry_run` finds the victims.

    The first step of `dry_run` in plain numbers. Most rows that changed since the last pod have just been
    taken by another preemptor, and go no further.
    """
    removed = [(slot, -1) for slot in _ordered_on(cluster, priority, row)]
    return filter_row(row, removed) if removed else NO_VICTIMS


def _no_candidates(rows: IdColumn, status_id: NDArray[np.int64], statuses: list[Status]) -> DryRun:
    """The result if evicting helps on none of the rows."""
    nothing = np.zeros(len(rows), dtype=np.int64)
    return DryRun(
        rows=rows,
        fits=np.zeros(len(rows), dtype=np.bool_),
        status_id=status_id,
        statuses=tuple(statuses),
        victims=np.zeros(0, dtype=np.intp),
        starts=np.zeros(len(rows) + 1, dtype=np.intp),
        violations=nothing,
        highest_priority=nothing,
        priority_sum=nothing,
        victim_count=nothing,
        earliest_start=nothing,
    )


def _summary(
    candidates: Hypothesis,
    helped: IdColumn,
    status_id: NDArray[np.int64],
    statuses: list[Status],
    filter_hypothesis: FilterHypothesis,
) -> DryRun:
    rows = candidates.rows
    count = len(rows)
    evicted = candidates.subset(helped)
    breaks_budget = violating(evicted)
    _reprieve(evicted, breaks_budget, filter_hypothesis)
    removed = evicted.signs < 0
    pods = evicted.cluster.pods
    slots = _most_important_first(evicted, removed, breaks_budget)
    starts = np.zeros(count + 1, dtype=np.intp)
    per_row = np.zeros(count, dtype=np.intp)
    ones = np.ones(len(evicted.slots), dtype=np.int64)
    per_row[helped] = -evicted.change(ones)
    np.cumsum(per_row, out=starts[1:])
    for index in helped[per_row[helped] == 0]:
        # It fits although all pods were added back: some filter is not deterministic.
        status_id[index] = len(statuses)
        name = evicted.cluster.nodes.name[int(rows[index])]
        statuses.append(Status(Code.ERROR, (f'expected at least one victim pod on node "{name}"',)))
    priorities = pods.priority.array.take(slots)
    start_times = pods.start.array.take(slots)
    nothing = np.zeros(count, dtype=np.int64)
    result = DryRun(
        rows=rows,
        fits=per_row > 0,
        status_id=status_id,
        statuses=tuple(statuses),
        victims=slots,
        starts=starts,
        violations=nothing.copy(),
        highest_priority=nothing.copy(),
        priority_sum=nothing.copy(),
        victim_count=per_row.astype(np.int64),
        earliest_start=nothing.copy(),
    )
    if len(slots):
        with_victims = per_row.nonzero()[0]
        first = starts[:-1].take(with_victims)
        highest = priorities.take(first)
        result.highest_priority[with_victims] = highest
        result.priority_sum[with_victims] = np.add.reduceat(priorities + PRIORITY_OFFSET, first)
        among_highest = priorities == np.repeat(highest, per_row.take(with_victims))
        latest = np.iinfo(np.int64).max
        result.earliest_start[with_victims] = np.minimum.reduceat(
            np.where(among_highest, start_times, latest), first
        )
        result.violations[with_victims] = np.add.reduceat(breaks_budget[removed].astype(np.int64), first)
    return result


def _most_important_first(
    evicted: Hypothesis, removed: NDArray[np.bool_], breaks_budget: NDArray[np.bool_]
) -> IdColumn:
    """The victims of each row: those that violate a budget, then the others, sorted by importance."""
    slots = evicted.slots[removed]
    violating = breaks_budget[removed]
    if not violating.any() or violating.all():
        return slots
    row = np.repeat(np.arange(len(evicted)), evicted.starts[1:] - evicted.starts[:-1])[removed]
    start, position = evicted.cluster.pods.start.array, evicted.cluster.pods.position.array
    given = np.arange(len(slots)) + len(slots) * ~violating
    turn = np.where(start.take(slots) == NOT_STARTED, position.take(slots), given)
    return _sorted_rows(evicted.cluster, slots, row, given, turn)


def _reprieve(
    evicted: Hypothesis, breaks_budget: NDArray[np.bool_], filter_hypothesis: FilterHypothesis
) -> None:
    """Adds pods back where the preemptor still fits. Changes the signs of the hypothesis in place."""
    starts, lengths = evicted.starts[:-1], evicted.starts[1:] - evicted.starts[:-1]
    if not len(lengths):
        return
    turn = np.arange(len(evicted.slots))
    if breaks_budget.any():
        turn = np.lexsort((~breaks_budget, np.repeat(np.arange(len(lengths)), lengths)))
    for rank in range(int(lengths.max(initial=0))):
        positions = (lengths > rank).nonzero()[0]
        reprieved = turn.take(starts.take(positions) + rank)
        evicted.signs[reprieved] = 0
        hypothesis = evicted if len(positions) == len(lengths) else evicted.subset(positions)
        rejected = reprieved[~filter_hypothesis(hypothesis).passing]
        evicted.signs[rejected] = -1


def _lower_priority(cluster: Cluster, priority: int, rows: IdColumn) -> Hypothesis:
    """A hypothesis without the pods of lower priority on these rows, ordered by importance within each
    row."""
    pods = cluster.pods
    if len(rows) <= FEW_ROWS:
        few = rows.tolist()
        removed = [[(slot, -1) for slot in _ordered_on(cluster, priority, row)] for row in few]
        return Hypothesis.on_few_rows(cluster, few, removed)
    return _without(cluster, (pods.assigned.read & (pods.priority.read < priority)).nonzero()[0], rows)


def _without(cluster: Cluster, slots: IdColumn, rows: IdColumn) -> Hypothesis:
    """A hypothesis without those of these pods that are on these rows, ordered in the same way."""
    pods = cluster.pods
    at = np.full(cluster.nodes.high, -1, dtype=np.intp)
    at[rows] = np.arange(len(rows))
    where = at.take(pods.row.read.take(slots))
    slots, where = slots[where >= 0], where[where >= 0]
    position = pods.position.array.take(slots)
    slots = _sorted_rows(cluster, slots, where, position, position)
    starts = np.zeros(len(rows) + 1, dtype=np.intp)
    np.cumsum(np.bincount(where, minlength=len(rows)), out=starts[1:])
    return Hypothesis(cluster, rows, slots, starts, np.full(len(slots), -1, dtype=np.int64))


def _allowed_by(cluster: Cluster, may_evict: MayEvict, rows: IdColumn) -> Hypothesis:
    """A hypothesis without the pods that a plugin allows to evict, ordered in the same way."""
    pods = cluster.pods.pod
    removed = []
    for row in rows.tolist():
        slots = _by_importance(cluster, cluster.row_pods[row])
        here = [pod for slot in reversed(slots) if (pod := pods[slot]) is not None]
        chosen = {pod.uid for pod in may_evict(row, here)}
        removed.append(
            [(slot, -1) for slot in slots if (pod := pods[slot]) is not None and pod.uid in chosen]
        )
    return Hypothesis.on_few_rows(cluster, rows.tolist(), removed)


def _ordered_on(cluster: Cluster, priority: int, row: int) -> list[int]:
    """The pods of lower priority on one row, most important first."""
    priorities = cluster.pods.priority.cell
    return _by_importance(cluster, [slot for slot in cluster.row_pods[row] if priorities[slot] < priority])


def _by_importance(cluster: Cluster, slots: Sequence[int]) -> list[int]:
    """The pods of one row, most important first."""
    pods = cluster.pods
    priorities, start, position = pods.priority.cell, pods.start.cell, pods.position.cell
    if len(slots) <= MAX_INSERTION:
        return sorted(slots, key=lambda slot: (-priorities[slot], start[slot], position[slot]))
    return _crowded_row(cluster, sorted(slots, key=position.__getitem__))


def _crowded_row(cluster: Cluster, slots: Sequence[int]) -> list[int]:
    """The same for more than twelve pods, of which equally important ones are moved.

    A pod that has not started counts as started now, each a moment later than those before it on the node, so
    no two of them are equal.
    """
    pods = cluster.pods
    priorities, start, position = pods.priority.cell, pods.start.cell, pods.position.cell

    def importance(slot: int) -> tuple[int, int, int]:
        return -priorities[slot], start[slot], position[slot] if start[slot] == NOT_STARTED else 0

    return go_sort_by(slots, importance)


def _sorted_rows(
    cluster: Cluster, slots: IdColumn, where: IdColumn, given: IdColumn, turn: IdColumn
) -> IdColumn:
    """`_by_importance` for pods of many rows: row after row, in the order of `where`.

    Up to twelve equally important pods of a row are in the order of `turn`. More are sorted one row at a
    time, from the order of `given`, unless they are in order as they are given.
    """
    pods = cluster.pods
    priority, start = pods.priority.array.take(slots), pods.start.array.take(slots)
    order = np.lexsort((turn, start, -priority, where))
    result = slots.take(order)
    counts = np.bincount(where)
    if counts.max(initial=0) > MAX_INSERTION:
        where, priority, start, given = (column.take(order) for column in (where, priority, start, given))
        same_row = where[1:] == where[:-1]
        equal = same_row & (priority[1:] == priority[:-1]) & (start[1:] == start[:-1])
        moved = same_row & (given[1:] < given[:-1])
        ends = counts.cumsum()
        for row in np.intersect1d(where[1:][equal & (start[1:] != NOT_STARTED)], where[1:][moved]).tolist():
            if counts[row] > MAX_INSERTION:
                here = slice(ends[row] - counts[row], ends[row])
                result[here] = _crowded_row(cluster, result[here].take(given[here].argsort()).tolist())
    return result


# PodDisruptionBudgets


def violating(evicted: Hypothesis) -> NDArray[np.bool_]:
    """For each pod of the hypothesis (in order of importance within its row): whether its eviction violates a
    budget.

    Linear in the pods and in the pairs of a budget and a pod that it protects.
    """
    cluster = evicted.cluster
    result = np.zeros(len(evicted.slots), dtype=np.bool_)
    budgets = cluster.objects.of(PodDisruptionBudget)
    if not len(budgets) or not len(evicted.slots):
        return result
    label_sets = cluster.pods.label_set.array.take(evicted.slots)
    grouped = label_sets.argsort(kind="stable")
    set_ids, first_of_set = np.unique(label_sets.take(grouped), return_index=True)
    pods_of = dict(zip(set_ids.tolist(), np.split(grouped, first_of_set[1:]), strict=True))
    row = np.repeat(np.arange(len(evicted)), evicted.starts[1:] - evicted.starts[:-1])
    for budget, matching_sets in _protecting(budgets, cluster, list(pods_of)):
        protected = np.sort(np.concatenate([pods_of[set_id] for set_id in matching_sets]))
        if budget.status.disrupted_pods:
            names = (cluster.pods.pod[slot] for slot in evicted.slots.take(protected).tolist())
            evicting = [pod is not None and pod.name in budget.status.disrupted_pods for pod in names]
            protected = protected[~np.array(evicting)]
        if cluster.release.budget_walk_stops:
            protected = protected[~result.take(protected)]
        rows = row.take(protected)
        used = np.arange(1, len(protected) + 1) - np.searchsorted(rows, rows)
        result[protected[used > budget.status.disruptions_allowed]] = True
    return result


def _protecting(
    budgets: Iterable[PodDisruptionBudget], cluster: Cluster, set_ids: list[int]
) -> Iterable[tuple[PodDisruptionBudget, list[int]]]:
    """Each budget that protects some of these sets of labels, with their ids."""
    label_sets = [cluster.label_sets[set_id] for set_id in set_ids]
    namespaces = {label_set.namespace for label_set in label_sets if label_set.labels}
    known: list[tuple[PodDisruptionBudget, Selector, list[int]]] = []
    indexes: defaultdict[str, SelectorIndex[int]] = defaultdict(SelectorIndex)
    for budget in budgets:
        selector = _selector(budget) if budget.namespace in namespaces else None
        if selector is not None:
            indexes[budget.namespace].add(selector, len(known))
            known.append((budget, selector, []))
    for label_set in label_sets:
        if label_set.labels and label_set.namespace in indexes:
            for number in indexes[label_set.namespace].candidates(label_set.labels):
                _, selector, matching = known[number]
                if selector.matches(label_set.labels):
                    matching.append(label_set.id)
    return ((budget, matching) for budget, _, matching in known if matching)


def _selector(budget: PodDisruptionBudget) -> Selector | None:
    """None for budgets that protect nothing: without a selector, with an empty or a malformed one."""
    try:
        selector = compile_selector(budget.spec.selector)
    except SelectorError:
        return None
    return None if selector.is_empty or selector.is_nothing else selector
