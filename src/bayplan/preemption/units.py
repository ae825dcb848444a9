"""Which pods are evicted together, and the victims of a single pod among them.

A *unit* is what preemption evicts as a whole: one pod, or all pods of a group with disruptionMode `all`,
wherever they run; of several such groups in a tree, the highest. Its priority is that of the root.
`victims.py` has the same search for pods that are all evicted alone; `groups.py` preempts for a group.

default_preemption.go: SelectVictimsOnNode
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.outcome import FilterOutcome
from bayplan.framework.status import Code, Status
from bayplan.go_sort import go_argsort, go_sort_by
from bayplan.preemption.victims import NO_VICTIMS, PRIORITY_OFFSET, DryRun, violating
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.groups import Group
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.pods import NOT_STARTED
from bayplan.state.view import IntColumn

SINGLE_POD: Final = 1
MEMBER: Final = 2
COMPOSITE: Final = 3

Importance = tuple[int, int, int, int, int]


@dataclass(slots=True, eq=False)
class Unit:
    """Pods that are evicted together."""

    priority: int
    rank: int
    """Composite groups are more important than pods of groups, and those than single pods, if all have the
    same priority. A pod that names a group is one of a group, even if that does not exist any more."""
    order: int
    """In which they were met: units whose pods have not started rank in this order."""
    slots: list[int] = field(default_factory=list)
    start: int = NOT_STARTED
    violations: int = 0

    @property
    def importance(self) -> Importance:
        """The smaller, the more important."""
        order = self.order if self.start == NOT_STARTED else 0
        return -self.priority, -self.rank, -len(self.slots), self.start, order


def unit_priority(cluster: Cluster, pod: Pod) -> int:
    """The priority by which a pod is evicted: that of the root of its group, if there is one."""
    group = None if cluster.groups is None else cluster.groups.group_of(pod)
    if group is None or cluster.groups is None:
        return pod.priority
    return cluster.groups.with_ancestors(group)[-1].priority


def units_below(cluster: Cluster, priority: int, rows: Iterable[int]) -> list[Unit]:
    """The units of lower priority with a pod on these rows, in this order."""
    pods, groups = cluster.pods, cluster.groups
    start, priorities = pods.start.cell, pods.priority.cell
    found: list[Unit] = []
    as_one: dict[str, Unit | None] = {}
    for row in rows:
        for slot in cluster.row_pods[row]:
            pod = pods.pod[slot]
            assert pod is not None
            group, rank = None, SINGLE_POD
            if groups is not None and pod.spec.scheduling_group is not None:
                group, rank = groups.group_of(pod), MEMBER
            if group is None:
                if priorities[slot] < priority:
                    found.append(Unit(priorities[slot], rank, len(found), [slot], start[slot]))
                continue
            assert groups is not None
            own = groups.with_ancestors(group)[-1].priority
            whole = groups.evicted_as_one(group)
            if own >= priority:
                continue
            if whole is None:
                found.append(Unit(own, MEMBER, len(found), [slot], start[slot]))
            elif whole.uid not in as_one:
                as_one[whole.uid] = unit = _whole(cluster, whole, own, len(found))
                found.append(unit)
    return found


def _whole(cluster: Cluster, group: Group, priority: int, order: int) -> Unit:
    """All scheduled pods of a group, in an order that does not depend on what was evaluated before."""
    assert cluster.groups is not None
    members = cluster.groups.states_below(group)
    slots = sorted(cluster.slot_of(uid) for state in members for uid in state.scheduled)
    starts, rank = cluster.pods.start.cell, COMPOSITE if group.key.is_composite else MEMBER
    return Unit(priority, rank, order, slots, min(starts[slot] for slot in slots))


@dataclass(slots=True)
class UnitTable:
    """All units below a priority, in columns, most important first. Objects are made of those that matter."""

    priority: IntColumn
    rank: IntColumn
    order: IntColumn
    start: IntColumn
    slots: list[list[int]]
    violations: IntColumn

    def __len__(self) -> int:
        return len(self.slots)

    def take(self, indexes: Sequence[int]) -> UnitTable:
        """Only these units."""
        kept = np.array(indexes, dtype=np.intp)
        return UnitTable(
            self.priority.take(kept),
            self.rank.take(kept),
            self.order.take(kept),
            self.start.take(kept),
            [self.slots[index] for index in indexes],
            self.violations.take(kept),
        )

    def __getitem__(self, index: int) -> Unit:
        return Unit(
            int(self.priority[index]),
            int(self.rank[index]),
            int(self.order[index]),
            self.slots[index],
            int(self.start[index]),
            int(self.violations[index]),
        )


def slots_below(cluster: Cluster, priority: int) -> list[int]:
    """The pods of all units of lower priority."""
    pods, groups = cluster.pods, cluster.groups
    assert groups is not None
    is_below = pods.assigned.array & (pods.priority.array < priority)
    for state in groups.states():
        group = groups.group(state.key)
        if group is not None:
            own = groups.with_ancestors(group)[-1].priority
            is_below[[cluster.slot_of(uid) for uid in state.scheduled]] = own < priority
    slots: list[int] = is_below.nonzero()[0].tolist()
    return slots


def all_units_below(cluster: Cluster, priority: int) -> UnitTable:
    """`units_below` on all nodes, sorted: members of groups are visited one by one, single pods are not."""
    pods, row_pods = cluster.pods, cluster.row_pods
    slots = np.fromiter(chain.from_iterable(row_pods[row] for row in cluster.order.tolist()), dtype=np.intp)
    place_of = np.full(pods.high, -1, dtype=np.int64)
    place_of[slots] = np.arange(len(slots))
    is_single = pods.priority.array.take(slots) < priority
    units: list[Unit] = []
    as_one: dict[str, Unit] = {}
    groups = cluster.groups
    assert groups is not None
    is_member = np.zeros(len(slots), dtype=np.bool_)
    for state in groups.states():
        group = groups.group(state.key)
        here = [slot for uid in state.scheduled if place_of[slot := cluster.slot_of(uid)] >= 0]
        places = place_of.take(here)
        if group is None:
            is_member[places] = True
            continue
        is_single[places] = False
        own = groups.with_ancestors(group)[-1].priority
        if not here or own >= priority:
            continue
        whole, first = groups.evicted_as_one(group), int(places.min())
        if whole is None:
            starts = pods.start.array.take(here).tolist()
            units += [
                Unit(own, MEMBER, place, [slot], start)
                for slot, place, start in zip(here, places.tolist(), starts, strict=True)
            ]
        elif (known := as_one.get(whole.uid)) is None:
            as_one[whole.uid] = unit = _whole(cluster, whole, own, first)
            units.append(unit)
        else:
            known.order = min(known.order, first)
    places = is_single.nonzero()[0]
    ranks_alone = np.where(is_member.take(places), MEMBER, SINGLE_POD)
    single = slots.take(places)
    shapes = np.array(
        [(unit.priority, unit.rank, len(unit.slots), unit.order, unit.start) for unit in units],
        dtype=np.int64,
    ).reshape(len(units), 5)
    ones = np.ones(len(single), dtype=np.int64)
    started = pods.start.array.take(single)
    of_single = (pods.priority.array.take(single), ranks_alone, ones, places, started)
    priorities, ranks, sizes, order, start = map(np.concatenate, zip(of_single, shapes.T, strict=True))
    met = order.argsort()
    keys = (-priorities, -ranks, -sizes, start, np.where(start == NOT_STARTED, order, 0))
    sort = met.take(go_argsort([key.take(met) for key in keys]))
    of_unit = [[slot] for slot in single.tolist()] + [unit.slots for unit in units]
    return UnitTable(
        priority=priorities.take(sort),
        rank=ranks.take(sort),
        order=order.take(sort),
        start=start.take(sort),
        slots=[of_unit[index] for index in sort.tolist()],
        violations=np.zeros(len(sort), dtype=np.int64),
    )


def sorted_units(units: Iterable[Unit]) -> list[Unit]:
    """Most important first, as Go sorts them."""
    return go_sort_by(units, lambda unit: unit.importance)


def violations(cluster: Cluster, units: Sequence[list[int]]) -> IntColumn:
    """How many budgets each of these units, by its slots, would violate if all were evicted in this order."""
    slots = np.fromiter(chain.from_iterable(units), dtype=np.intp)
    ends = np.array([0, len(slots)], dtype=np.intp)
    signs = np.full(len(slots), -1, dtype=np.int64)
    breaks = violating(Hypothesis(cluster, np.zeros(1, dtype=np.intp), slots, ends, signs))
    if not breaks.any():
        return np.zeros(len(units), dtype=np.int64)
    before = np.zeros(len(slots) + 1, dtype=np.int64)
    np.cumsum(breaks, out=before[1:])
    lengths = np.zeros(len(units) + 1, dtype=np.intp)
    np.cumsum([len(unit) for unit in units], out=lengths[1:])
    return np.diff(before.take(lengths))


def pods_in(cluster: Cluster, slots: Iterable[int]) -> list[Pod]:
    found = []
    for slot in slots:
        pod = cluster.pods.pod[slot]
        assert pod is not None
        found.append(pod)
    return found


# A single pod preempts


def dry_run_units(outcome: FilterOutcome, priority: int, rows: IdColumn) -> DryRun:
    """`victims.dry_run` for rows with pods of groups: what is evicted together is added back together.

    The pods that a victim has on other nodes are victims, too. Where results depend on other rows, they are
    removed there while the row is evaluated.
    """
    cluster = outcome.cluster
    statuses: list[Status] = []
    units_on = {row: sorted_units(units_below(cluster, priority, [row])) for row in rows.tolist()}
    known = _known_by_sharing(outcome, units_on)
    found = [known.get(row) or _victims_on(outcome, units, row) for row, units in units_on.items()]
    status_id = np.full(len(rows), -1, dtype=np.int64)
    victims: list[int] = []
    starts, violations, highest, sums, earliest = [0], [], [], [], []
    start, priorities = cluster.pods.start.cell, cluster.pods.priority.cell
    for index, answer in enumerate(found):
        units = [] if isinstance(answer, Status) else answer
        if isinstance(answer, Status):
            status_id[index] = len(statuses)
            statuses.append(answer)
        slots = [slot for unit in units for slot in unit.slots]
        first = priorities[slots[0]] if slots else 0
        victims += slots
        starts.append(len(victims))
        violations.append(sum(unit.violations for unit in units))
        highest.append(first)
        sums.append(sum(priorities[slot] + PRIORITY_OFFSET for slot in slots))
        earliest.append(min((start[slot] for slot in slots if priorities[slot] == first), default=0))
    ends = np.array(starts, dtype=np.intp)
    counts: NDArray[np.int64] = (ends[1:] - ends[:-1]).astype(np.int64)
    return DryRun(
        rows=rows,
        fits=counts > 0,
        status_id=status_id,
        statuses=tuple(statuses),
        victims=np.array(victims, dtype=np.intp),
        starts=ends,
        violations=np.array(violations, dtype=np.int64),
        highest_priority=np.array(highest, dtype=np.int64),
        priority_sum=np.array(sums, dtype=np.int64),
        victim_count=counts,
        earliest_start=np.array(earliest, dtype=np.int64),
    )


def _known_by_sharing(
    outcome: FilterOutcome, units_on: Mapping[int, list[Unit]]
) -> dict[int, list[Unit] | Status]:
    """The results that need no evaluation of each row by itself.

    Rows without units have no victims. Where results depend on other rows, the pods of a gang are removed
    and PreFilter runs once for all rows that have the same units; rows with one unit, which fit without it,
    cannot keep it, because they were rejected with it.
    """
    cluster = outcome.cluster
    known: dict[int, list[Unit] | Status] = {row: NO_VICTIMS for row, units in units_on.items() if not units}
    if outcome.is_local or outcome.filter_again is None:
        return known
    rows_with: dict[frozenset[int], list[int]] = {}
    for row, units in units_on.items():
        if units:
            rows_with.setdefault(frozenset(slot for unit in units for slot in unit.slots), []).append(row)
    for slots, rows in rows_with.items():
        if len(rows) == 1 and len(units_on[rows[0]]) > 1:
            continue
        cluster.undo.mark()
        try:
            cluster.remove_pods(sorted(slots))
            rejection = outcome.filter_again()
            for row in rows:
                rejected = rejection(Hypothesis.on_few_rows(cluster, [row], [[]]))
                if rejected is not None:
                    known[row] = rejected
                elif len(units_on[row]) == 1:
                    known[row] = units_on[row]
        finally:
            cluster.undo.revert()
    for answer in known.values():
        if isinstance(answer, list):
            answer[0].violations = int(violations(cluster, [answer[0].slots])[0])
    return known


def _victims_on(outcome: FilterOutcome, units: list[Unit], row: int) -> list[Unit] | Status:
    """The units to evict for the pod to fit on one row, most important first; or why that does not help."""
    cluster = outcome.cluster
    for unit, count in zip(units, violations(cluster, [unit.slots for unit in units]).tolist(), strict=True):
        unit.violations = count
    with _WithoutUnits(outcome, row, units) as removed:
        rejected = removed.rejection()
        if rejected is not None:
            return rejected
        turns = sorted(units, key=lambda unit: not unit.violations)
        victims = [unit for unit in turns if not removed.fits_with(unit)]
    if not victims:
        name = cluster.nodes.name[row]
        return Status(Code.ERROR, (f'expected at least one victim pod on node "{name}"',))
    return sorted_units(victims)


class _WithoutUnits:
    """One row without the pods of some units, to which units are added back.

    The pods of the row are removed by a hypothesis. Those on other nodes are removed from the cluster, and
    PreFilter runs again, unless results depend on the row alone (DefaultPreemption runs the extensions of
    PreFilter for them).
    """

    def __init__(self, outcome: FilterOutcome, row: int, units: Sequence[Unit]) -> None:
        cluster = self._cluster = outcome.cluster
        self._row = row
        self._rejection: Callable[[Hypothesis], Status | None] = lambda hypothesis: outcome.filter_hypothesis(
            hypothesis
        ).status(0)
        self._filter_again = None if outcome.is_local else outcome.filter_again
        here = set(cluster.row_pods[row])
        self._signs = {slot: -1 for unit in units for slot in unit.slots if slot in here}
        self._away = [slot for unit in units for slot in unit.slots if slot not in here]

    def __enter__(self) -> Self:
        self._cluster.undo.mark()
        if self._filter_again is not None:
            if self._away:
                self._cluster.remove_pods(self._away)
            self._rejection = self._filter_again()
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.undo.revert()

    def rejection(self) -> Status | None:
        hypothesis = Hypothesis.on_few_rows(self._cluster, [self._row], [list(self._signs.items())])
        return self._rejection(hypothesis)

    def fits_with(self, unit: Unit) -> bool:
        """Whether the pod still fits with one more unit. If not, that is removed again."""
        here = [slot for slot in unit.slots if slot in self._signs]
        away = [slot for slot in unit.slots if slot not in self._signs]
        self._signs.update(dict.fromkeys(here, 0))
        self._change_away(away, 1)
        if self.rejection() is None:
            return True
        self._signs.update(dict.fromkeys(here, -1))
        self._change_away(away, -1)
        return False

    def _change_away(self, slots: Sequence[int], sign: int) -> None:
        """Adds pods on other nodes (1) or removes them again (-1)."""
        if not slots or self._filter_again is None:
            return
        cluster = self._cluster
        for slot, pod in zip(slots, pods_in(cluster, slots), strict=True):
            if sign > 0:
                name = cluster.nodes.name[cluster.pods.row.cell[slot]]
                cluster.add_pod(pod, name, cluster.pods.info_of(slot))
            else:
                cluster.remove_pod(pod.uid)
        self._rejection = self._filter_again()
