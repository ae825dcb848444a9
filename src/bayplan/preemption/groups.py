"""Preemption for a whole group.

A group searches the cluster as one: all units of lower priority (`units.py`) are removed, the members are
placed, and the units are added back, most important first, as long as every member still fits on the node it
was given. The members keep their nodes meanwhile, so this is one placement and a series of checks.

If the filters of all members depend on the row alone, only members on the rows of a unit are checked again,
and units elsewhere stay without a check. That identical members would not fit is known without removing any
unit: a group that cannot fit is tried again and again, often in a full cluster.

podgrouppreemption.go: SelectVictimsOnDomain
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.group_api import GroupOutcome, GroupPostFilterResult, GroupSteps, Placed
from bayplan.framework.outcome import Eviction, Nomination
from bayplan.framework.status import Code, Status, unresolvable, unschedulable
from bayplan.preemption.units import (
    all_units_below,
    pods_in,
    slots_below,
    sorted_units,
    unit_priority,
    violations,
)
from bayplan.preemption.victims import NEVER, preempted
from bayplan.state.cluster import Cluster
from bayplan.state.groups import NEVER as NEVER_POLICY

PREFIX: Final = "pod group preemption: "
ONGOING: Final = "ongoing preemption on nominated nodes"
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
FOUND: Final = "found a placement for podgroup, preempting {victims} victims"
MAX_PRIORITY: Final = 2**31 - 1
CLUSTER: Final = "cluster"
"""The name of the node in events: a group preempts on many."""


def preempt(
    outcome: GroupOutcome,
    *,
    has_own_policy: bool,
    allowed: Callable[[Sequence[Sequence[int]]], Sequence[int]] | None = None,
    most: int | None = None,
) -> GroupSteps[GroupPostFilterResult]:
    """The victims that make room for the group, and the nodes of its members; or why there are none.

    Args:
        allowed: which units may be evicted, in place of all with a lower priority: it gets their slots, and
            returns their indexes in order.
        most: the number of members that get room; None for as many as find a node.
    """
    cluster, group = outcome.cluster, outcome.group
    policies = [group.preemption_policy] if has_own_policy else _policies(outcome.pods)
    if NEVER_POLICY in policies:
        return _answer(unschedulable(NEVER))
    ongoing = terminating_victims(cluster, outcome.pods, group.priority, any_priority=allowed is not None)
    if next(ongoing, None) is not None:
        nominated = {pod.uid: Nomination(pod.status.nominated_node_name) for pod in outcome.pods}
        return _answer(Status(Code.SUCCESS, (ONGOING,)), nominated)
    if allowed is None:
        units, slots = None, slots_below(cluster, group.priority)
    else:
        units = all_units_below(cluster, MAX_PRIORITY + 1)
        units = units.take(allowed(units.slots))
        slots = [slot for unit in units.slots for slot in unit]
    if not len(slots):
        return _answer(unresolvable(NO_VICTIMS))
    failed = outcome.fails_without(slots)
    if failed is not None:
        return _answer(failed)
    if units is None:
        units = all_units_below(cluster, group.priority)
    units.violations = violations(cluster, units.slots)
    cluster.undo.mark()
    try:
        cluster.remove_pods(slots)
        found = yield from outcome.place_again()
        if not found.status.is_success:
            return _answer(Status(Code.UNSCHEDULABLE, found.status.reasons))
        members = found.placed[:most]
        reprieve = _Reprieve(cluster, members, is_local=outcome.is_local)
        turns = reprieve.affecting(units.slots)
        turns.sort(key=lambda index: not units.violations[index])
        victims = [units[index] for index in turns if not reprieve.fits_with(units.slots[index])]
    finally:
        cluster.undo.revert()
    evicted = [pod for unit in sorted_units(victims) for pod in pods_in(cluster, unit.slots)]
    nominations = {placed.pod.uid: Nomination(cluster.nodes.name[placed.row]) for placed in members}
    return _answer(
        Status(Code.SUCCESS, (FOUND.format(victims=len(evicted)),)),
        nominations,
        Eviction(CLUSTER, tuple(evicted), sum(unit.violations for unit in victims)),
    )


def _answer(
    status: Status, nominations: dict[str, Nomination] | None = None, eviction: Eviction | None = None
) -> GroupPostFilterResult:
    text = Status(status.code, (PREFIX + status.message,))
    return GroupPostFilterResult(text, nominations or {}, eviction)


def _policies(pods: Iterable[Pod]) -> list[str | None]:
    return [pod.spec.preemption_policy for pod in pods]


def terminating_victims(
    cluster: Cluster, members: Iterable[Pod], priority: int, *, any_priority: bool
) -> Iterator[Pod]:
    """The victims of preemption that are terminating on the nominated node of any member.

    `any_priority`: victims need not have a lower priority.
    """
    rows = {cluster.nodes.row_of.get(pod.status.nominated_node_name) for pod in members}
    return (
        other
        for row in rows
        if row is not None
        for other in cluster.pods_on(row)
        if other.is_terminating
        and preempted(other)
        and (any_priority or unit_priority(cluster, other) < priority)
    )


class _Reprieve:
    """Adds units back to the columns, from which all of them were removed, while the members still fit.

    Members are added only while a unit is tried; if plugins decide node by node (`is_local`), only those on
    its nodes. A pod that is identical to one that was rejected there is then rejected without a check, as
    long as no other pod was added to the node.
    """

    def __init__(self, cluster: Cluster, placed: Sequence[Placed], *, is_local: bool) -> None:
        self._cluster = cluster
        self._is_local = is_local
        self._placed = placed
        self._on_row: dict[int, list[Placed]] = {}
        self._rejected: dict[int, list[int]] = {}
        """By row: the slots of pods that were rejected since the last was added."""
        if is_local:
            for member in placed:
                self._on_row.setdefault(member.row, []).append(member)

    def affecting(self, units: Sequence[list[int]]) -> list[int]:
        """The indices of the units that may be in the way of a member; the others can stay."""
        if not self._is_local:
            return list(range(len(units)))
        has_member = np.zeros(self._cluster.nodes.high, dtype=np.bool_)
        has_member[list(self._on_row)] = True
        near = has_member.take(self._cluster.pods.row.array).tolist()
        return [index for index, slots in enumerate(units) if any(near[slot] for slot in slots)]

    def fits_with(self, slots: Sequence[int]) -> bool:
        """Whether all members still fit with the pods of one more unit. If not, these are removed again."""
        cluster, row_of = self._cluster, self._cluster.pods.row.cell
        affected = self._placed
        if self._is_local:
            slots = [slot for slot in slots if row_of[slot] in self._on_row]
            if len(slots) == 1 and self._is_rejected(slots[0]):
                return False
            rows = dict.fromkeys(row_of[slot] for slot in slots)
            affected = [member for row in rows for member in self._on_row[row]]
        unit = pods_in(cluster, slots)
        for pod, slot in zip(unit, slots, strict=True):
            cluster.add_pod(pod, cluster.nodes.name[row_of[slot]], cluster.pods.info_of(slot))
        put: list[Placed] = []
        fits = True
        for number, member in enumerate(affected, start=1):
            fits = member.fits()
            if not fits or number == len(affected):
                break
            member.put()
            put.append(member)
        for member in reversed(put):
            member.take()
        if not fits:
            for pod in reversed(unit):
                cluster.remove_pod(pod.uid)
            if len(slots) == 1:
                self._rejected.setdefault(row_of[slots[0]], []).append(slots[0])
        else:
            for slot in slots:
                self._rejected.pop(row_of[slot], None)
        return fits

    def _is_rejected(self, slot: int) -> bool:
        """Whether an identical pod was rejected on the same node, to which none was added since."""
        pods = self._cluster.pods
        return any(
            pods.info[slot] is pods.info[other]
            and pods.terminating.cell[slot] == pods.terminating.cell[other]
            and _annotations(pods.pod[slot]) == _annotations(pods.pod[other])
            for other in self._rejected.get(pods.row.cell[slot], ())
        )


def _annotations(pod: Pod | None) -> Mapping[str, str]:
    """Plugins may read them, but they are not part of the signature."""
    assert pod is not None
    return pod.metadata.annotations
