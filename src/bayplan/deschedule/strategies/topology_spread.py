"""RemovePodsViolatingTopologySpreadConstraint: pods whose domains have become too unequal.

Each constraint of each namespace is balanced by itself, by calculation: pods of the largest domains are
assigned to the smallest until the skew is small enough, and those that would fit there are evicted. The
scheduler may decide otherwise; `accepts` checks that the new node really reduces the skew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayplan.api.node_selectors import required_node_affinity
from bayplan.api.pod import Pod, Toleration
from bayplan.api.selectors import SpreadConstraint, own_constraints
from bayplan.deschedule.args import RemovePodsViolatingTopologySpreadConstraintArgs
from bayplan.deschedule.eviction import Result
from bayplan.deschedule.plugin import Cycle, Goal, Slots, Strategy, Verdict
from bayplan.deschedule.table import Bools, Flag
from bayplan.errors import SelectorError


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A constraint with what its inclusion policies need of the pod that has it."""

    constraint: SpreadConstraint
    spec: int
    """A spec with these requirements."""
    requirements: object
    tolerations: tuple[Toleration, ...] | None

    @property
    def key(self) -> object:
        one = self.constraint
        return (
            one.max_skew,
            one.topology_key,
            one.selector,
            one.honors_node_affinity,
            one.honors_taints,
            self.requirements,
            self.tolerations,
        )


class RemovePodsViolatingTopologySpreadConstraint(Strategy):
    """Evicts pods of domains that exceed the allowed skew."""

    args_type: ClassVar = RemovePodsViolatingTopologySpreadConstraintArgs
    goal: ClassVar = Goal.BALANCE
    reason: ClassVar = "a topology spread constraint is violated"
    args: RemovePodsViolatingTopologySpreadConstraintArgs

    def balance(self, cycle: Cycle) -> None:
        table = cycle.table
        slots = np.flatnonzero(cycle.pods(self.args))
        slots = slots[cycle.checks.filter(slots)]
        if not any(pod.spec.topology_spread_constraints for pod in table.columns.spec_pods):
            return
        marked: dict[int, None] = {}
        # Within a namespace node by node, as upstream lists them.
        slots = slots[np.lexsort((table.row[slots], table.namespace[slots]))]
        for group in _by_namespace(table.namespace, slots):
            for constraint in self._constraints(cycle, group):
                marked.update(dict.fromkeys(self._balance(cycle, constraint, group)))
        full: set[int] = set()
        for slot in marked:
            if int(table.row[slot]) in full or not len(cycle.allowed(np.array([slot]))):
                continue
            result = cycle.evict(slot)
            if result is Result.TOTAL_LIMIT:
                return
            if result is Result.NODE_LIMIT:
                full.add(int(table.row[slot]))

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        objection, gain = self._change(cycle, slot, row)
        name = cycle.table.nodes[row].name
        if objection:
            return Verdict(False, objection)
        if gain > 0:
            return Verdict(True, f"the skew of its constraints decreases on {name}", gain)
        return Verdict(False, f"{name} is not in a smaller domain")

    def objects(self, cycle: Cycle, slot: int, row: int) -> str:
        """A larger domain would grow."""
        return self._change(cycle, slot, row)[0]

    def _change(self, cycle: Cycle, slot: int, row: int) -> tuple[str, float]:
        """Why a constraint would be met less than now, or ""; and by how much skews would decrease."""
        table = cycle.table
        pods = np.flatnonzero(table.counted & (table.namespace == table.namespace[slot]))
        own, gain = int(table.row[slot]), 0.0
        for one in self._constraints(cycle, pods):
            if not one.constraint.selector.matches(table.pods[slot].labels):
                continue
            key = one.constraint.topology_key
            here, there = table.nodes[own].labels.get(key), table.nodes[row].labels.get(key)
            if here is None or there is None or here == there:
                continue
            domains = self._domains(cycle, one, pods)
            before, after = len(domains.get(here, ())), len(domains.get(there, ())) + 1
            if after > before:
                return f"{there} would have {after} pods of the constraint on {key}, {here} has {before}", 0.0
            gain += before - after
        return "", gain

    def _constraints(self, cycle: Cycle, slots: Slots) -> Iterator[_Constraint]:
        """The distinct constraints of pods, in the order of their first occurrence."""
        table = cycle.table
        seen: set[object] = set()
        combined = table.spec[slots] * len(table.columns.labels) + table.labels[slots]
        _, first = np.unique(combined, return_index=True)
        for slot in slots[np.sort(first)].tolist():
            pod = table.pods[slot]
            for constraint in self._own(pod):
                made = _Constraint(
                    constraint,
                    int(table.spec[slot]),
                    required_node_affinity(pod) if constraint.honors_node_affinity else None,
                    pod.spec.tolerations if constraint.honors_taints else None,
                )
                if made.key not in seen:
                    seen.add(made.key)
                    yield made

    def _own(self, pod: Pod) -> Iterator[SpreadConstraint]:
        for one in pod.spec.topology_spread_constraints:
            if one.when_unsatisfiable in self.args.constraints:
                try:
                    yield from own_constraints((one,), one.when_unsatisfiable, pod.labels)
                except SelectorError:
                    continue

    def _eligible(self, cycle: Cycle, one: _Constraint) -> Bools:
        eligible = cycle.rows.copy()
        if one.constraint.honors_node_affinity:
            eligible &= cycle.node_fit.affinity_mask(one.spec)
        if one.constraint.honors_taints:
            eligible &= cycle.node_fit.taints_mask(one.spec)
        return eligible

    def _domains(self, cycle: Cycle, one: _Constraint, slots: Slots) -> dict[str, list[int]]:
        """The pods of each domain, in order."""
        table, key = cycle.table, one.constraint.topology_key
        domains: dict[str, list[int]] = {}
        for row in np.flatnonzero(self._eligible(cycle, one)).tolist():
            value = table.nodes[row].labels.get(key)
            if value is not None:
                domains.setdefault(value, [])
        counted = (table.flags[slots] & Flag.TERMINATING == 0) & table.matches(one.constraint.selector)[slots]
        for slot in slots[counted].tolist():
            value = table.nodes[int(table.row[slot])].labels.get(key)
            if value is not None:
                domains.setdefault(value, []).append(slot)
        return domains

    def _balance(self, cycle: Cycle, one: _Constraint, slots: Slots) -> Iterator[int]:
        """The pods to evict for one constraint. topologyspreadconstraint.go: balanceDomains"""
        domains = self._domains(cycle, one, slots)
        sizes = [len(pods) for pods in domains.values()]
        if not sizes or max(sizes) - min(sizes) <= one.constraint.max_skew:
            return
        table, max_skew = cycle.table, one.constraint.max_skew
        average = sum(sizes) / len(sizes)
        ordered = sorted(domains.items(), key=lambda item: len(item[1]))
        small = {value for value, pods in ordered if len(pods) < average}
        key = one.constraint.topology_key
        eligible = self._eligible(cycle, one)
        in_small = [node.labels.get(key) in small for node in table.nodes]
        below = eligible & np.array(in_small, np.bool_)
        lists = [sorted(pods, key=lambda slot: self._rank(cycle, slot)) for _, pods in ordered]
        fits: dict[int, bool] = {}

        def fits_below(slot: int) -> bool:
            if slot not in fits:
                fits[slot] = cycle.node_fit.fits_any_other(slot, below)
            return fits[slot]

        i, j = 0, len(lists) - 1
        while i < j:
            if len(lists[j]) <= average:
                j -= 1
            skew = len(lists[j]) - len(lists[i])
            if skew <= max_skew:
                i += 1
                continue
            moves = min(
                math.ceil(len(lists[j]) - average),
                math.ceil(average - len(lists[i])),
                math.ceil((skew - max_skew) / 2),
            )
            if moves <= 0:
                i += 1
                continue
            largest = sorted(lists[j], key=fits_below)
            for slot in largest[len(largest) - moves :]:
                if not self.args.topology_balance_node_fit or fits_below(slot):
                    yield slot
            lists[i] = lists[i] + largest[len(largest) - moves :]
            lists[j] = largest[: len(largest) - moves]

    def _rank(self, cycle: Cycle, slot: int) -> tuple[bool, bool, int]:
        """Pods are taken from the end: those without node selector or affinity first."""
        table = cycle.table
        pod = table.pods[slot]
        affinity = pod.spec.affinity
        is_bound = bool(pod.spec.node_selector) or (
            affinity is not None and affinity.node_affinity is not None
        )
        has_priority = bool(table.flags[slot] & Flag.HAS_PRIORITY)
        return not is_bound, has_priority, int(table.priority[slot])


def _by_namespace(namespace: Slots, slots: Slots) -> Iterator[Slots]:
    """The pods of each namespace, in order."""
    starts = np.flatnonzero(np.diff(namespace[slots], prepend=-1))
    yield from np.split(slots, starts[1:]) if len(starts) else ()
