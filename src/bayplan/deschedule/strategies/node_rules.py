"""Strategies for pods that would not be scheduled on their node today, because of its taints or labels.

Taints and labels may have changed since the pod was scheduled.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from bayplan.api.node import Taint
from bayplan.api.node_selectors import compile_terms, term_matches
from bayplan.api.pod import NO_SCHEDULE, PREFER_NO_SCHEDULE, Pod
from bayplan.deschedule.args import RemovePodsViolatingNodeAffinityArgs, RemovePodsViolatingNodeTaintsArgs
from bayplan.deschedule.node_fit import all_tolerated
from bayplan.deschedule.plugin import Cycle, Slots, Strategy, Verdict
from bayplan.deschedule.table import Bools, Floats

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class RemovePodsViolatingNodeTaints(Strategy):
    """Evicts pods that do not tolerate a NoSchedule taint of their node."""

    args_type: ClassVar = RemovePodsViolatingNodeTaintsArgs
    reason: ClassVar = "it does not tolerate a taint of its node"
    args: RemovePodsViolatingNodeTaintsArgs

    def deschedule(self, cycle: Cycle) -> None:
        mask = cycle.pods(self.args)
        cycle.evict_by_node(mask & self._violates(cycle, mask))

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        table = cycle.table
        node, own, pod = table.nodes[row], table.nodes[int(table.row[slot])], table.pods[slot]
        if self._tolerated(pod, node.spec.taints):
            bad = ", ".join(str(taint) for taint in own.spec.taints if not self._tolerated(pod, (taint,)))
            return Verdict(True, f"{own.name} has {bad}, and it tolerates all taints of {node.name}")
        return Verdict(False, f"{node.name} has a taint that it does not tolerate, too")

    def objects(self, cycle: Cycle, slot: int, row: int) -> str:
        """The scheduler accepts PreferNoSchedule, the policy may not."""
        node = cycle.table.nodes[row]
        tolerated = self._tolerated(cycle.table.pods[slot], node.spec.taints)
        return "" if tolerated else f"{node.name} has a taint that it does not tolerate"

    def _violates(self, cycle: Cycle, mask: Bools) -> Bools:
        """Evaluated once for each distinct pair of pod spec and taints."""
        table = cycle.table
        relevant = [tuple(filter(self._is_relevant, node.spec.taints)) for node in table.nodes]
        distinct = {taints: i for i, taints in enumerate(dict.fromkeys([(), *relevant]))}
        ids = np.array([*(distinct[taints] for taints in relevant), 0], np.int64)[table.row]
        wanted = mask & (ids > 0)
        pairs, where = np.unique(table.spec[wanted] * len(distinct) + ids[wanted], return_inverse=True)
        taints_of, specs = list(distinct), table.columns.spec_pods
        bad = [
            not all_tolerated(specs[pair // len(distinct)], taints_of[pair % len(distinct)])
            for pair in pairs.tolist()
        ]
        violates = np.zeros(len(mask), np.bool_)
        violates[wanted] = np.array(bad, np.bool_)[where]
        return violates

    def _is_relevant(self, taint: Taint) -> bool:
        args = self.args
        if taint.effect != NO_SCHEDULE and not (
            args.include_prefer_no_schedule and taint.effect == PREFER_NO_SCHEDULE
        ):
            return False
        names = {taint.key, f"{taint.key}={taint.value}"} if taint.value else {taint.key}
        if not names.isdisjoint(args.excluded_taints):
            return False
        return args.included_taints is None or not names.isdisjoint(args.included_taints)

    def _tolerated(self, pod: Pod, taints: tuple[Taint, ...]) -> bool:
        return all_tolerated(pod, tuple(filter(self._is_relevant, taints)))


class RemovePodsViolatingNodeAffinity(Strategy):
    """Evicts pods whose node affinity their node does not meet, or another node meets better."""

    args_type: ClassVar = RemovePodsViolatingNodeAffinityArgs
    reason: ClassVar = "its node does not meet its node affinity"
    args: RemovePodsViolatingNodeAffinityArgs

    def deschedule(self, cycle: Cycle) -> None:
        for kind in self.args.node_affinity_type:
            if kind == _REQUIRED:
                self._run(cycle, self._misses_required(cycle))
            elif kind == _PREFERRED:
                self._run(cycle, self._has_better(cycle))

    def _run(self, cycle: Cycle, violates: Bools) -> None:
        def choose(slots: Slots) -> Slots:
            return slots[[cycle.node_fit.fits_any(slot, cycle.rows) for slot in slots.tolist()]]

        cycle.evict_by_node(cycle.pods(self.args) & violates, choose)

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        table = cycle.table
        spec, own = int(table.spec[slot]), int(table.row[slot])
        name = table.nodes[row].name
        if _REQUIRED in self.args.node_affinity_type and not cycle.node_fit.affinity_mask(spec)[own]:
            return Verdict(True, f"{name} meets its required node affinity")
        weights = self._weights(cycle, spec)
        gain = float(weights[row] - weights[own])
        if gain > 0:
            return Verdict(True, f"{name} meets preferences of weight {gain:g} more", gain)
        return Verdict(False, f"{name} does not meet its preferences better")

    def _misses_required(self, cycle: Cycle) -> Bools:
        def misses(spec: int, pod: Pod) -> Bools | None:
            affinity = None if pod.spec.affinity is None else pod.spec.affinity.node_affinity
            if affinity is None or affinity.required is None:
                return None
            return ~cycle.node_fit.affinity_mask(spec)

        return cycle.table.by_spec_and_row(misses)

    def _has_better(self, cycle: Cycle) -> Bools:
        def better(spec: int, pod: Pod) -> Bools | None:
            affinity = None if pod.spec.affinity is None else pod.spec.affinity.node_affinity
            if affinity is None or not affinity.preferred:
                return None
            weights = self._weights(cycle, spec)
            return np.asarray(weights[cycle.rows].max(initial=0.0) > weights)

        return cycle.table.by_spec_and_row(better)

    def _weights(self, cycle: Cycle, spec: int) -> Floats:
        """The sum of the preferences that each node meets."""
        table = cycle.table
        weights = np.zeros(len(table.nodes))
        affinity = table.columns.spec_pods[spec].spec.affinity
        preferred = (
            () if affinity is None or affinity.node_affinity is None else affinity.node_affinity.preferred
        )
        for one in preferred:
            (*compiled,) = compile_terms((one.preference,))
            for term in compiled:
                met = [term_matches(term, node.labels, node.name) for node in table.nodes]
                weights[np.array(met, np.bool_)] += one.weight
        return weights
