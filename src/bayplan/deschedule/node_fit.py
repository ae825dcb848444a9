"""NodeFit: upstream's own estimate of whether a pod fits a node.

It is not the scheduler: it ignores volumes, ports, spreading, pod affinity and devices, and checks only the
pod's own anti-affinity terms on the one node. `decision: upstream` needs it exactly; `decision: scheduler`
runs the scheduler instead (`planner.py`).

Results are masks over all nodes for each distinct spec, brought up to date for rows that evictions changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bayplan.api.node import Node, Taint
from bayplan.api.node_selectors import RequiredNodeAffinity, required_node_affinity
from bayplan.api.pod import EXISTS, NO_EXECUTE, NO_SCHEDULE, Pod, PodAffinityTerm, Toleration
from bayplan.api.pod import tolerates as tolerates_without_numbers
from bayplan.api.quantity import PODS
from bayplan.api.selectors import Selector, compile_selector, parse_int64
from bayplan.deschedule.table import BASIC, NOT_REQUESTED, Bools, ClusterTable, Ints
from bayplan.errors import SelectorError
from bayplan.framework.args import aggregate
from bayplan.state.columns import Interner

UNSCHEDULABLE: Final = "node is not schedulable"
SELECTOR: Final = "pod node selector does not match the node label"
TAINTS: Final = "pod does not tolerate taints on the node"
ANTI_AFFINITY: Final = "pod matches inter-pod anti-affinity rule of other pod on node"
INSUFFICIENT: Final = "insufficient {resource}"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint, with the operators Lt and Gt of new releases."""
    if toleration.operator not in ("Lt", "Gt"):
        return tolerates_without_numbers(toleration, taint)
    bound, value = parse_int64(toleration.value), parse_int64(taint.value)
    if bound is None or value is None:
        return False
    is_within = value < bound if toleration.operator == "Lt" else value > bound
    return is_within and tolerates_without_numbers(replace(toleration, operator=EXISTS), taint)


def all_tolerated(pod: Pod, taints: tuple[Taint, ...]) -> bool:
    return all(any(tolerates(one, taint) for one in pod.spec.tolerations) for taint in taints)


def tolerates_node(pod: Pod, taints: tuple[Taint, ...]) -> bool:
    """Whether the pod tolerates the taints that keep pods off a node."""
    return all_tolerated(pod, tuple(taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)))


@dataclass(slots=True)
class _Fit:
    """The nodes of one spec: what depends on Node objects, and with resources."""

    allowed: Bools
    fits: Bools
    seen: int
    """How many changes of rows `fits` has."""


class NodeFit:
    """Which nodes pods fit, by upstream's rules, on the table as it is now."""

    def __init__(self, table: ClusterTable) -> None:
        self._table = table
        self._specs: dict[int, _Fit] = {}
        self._affinity: dict[RequiredNodeAffinity, Bools] = {}
        self._tolerated: dict[tuple[Toleration, ...], Bools] = {}
        self._stating: dict[str, Bools] = {}
        self._matches: dict[tuple[frozenset[str], Selector], Bools] = {}

    # What depends on Node objects only

    @cached_property
    def _taints(self) -> tuple[list[tuple[Taint, ...]], NDArray[np.intp]]:
        """The distinct taints, and for each node which of them it has."""
        ids: Interner[tuple[Taint, ...]] = Interner()
        of_nodes = np.array([ids.intern(node.spec.taints) for node in self._table.nodes], np.intp)
        return ids.values, of_nodes

    def affinity_mask(self, spec: int) -> Bools:
        """The nodes that match nodeSelector and required node affinity."""
        affinity = required_node_affinity(self._table.columns.spec_pods[spec])
        found = self._affinity.get(affinity)
        if found is None:
            nodes = self._table.nodes
            if affinity.is_empty:
                found = np.ones(len(nodes), np.bool_)
            else:
                found = np.array([affinity.matches(node.labels, node.name) for node in nodes], np.bool_)
            self._affinity[affinity] = found
        return found

    def taints_mask(self, spec: int) -> Bools:
        """The nodes whose NoSchedule and NoExecute taints the pod tolerates."""
        pod = self._table.columns.spec_pods[spec]
        found = self._tolerated.get(pod.spec.tolerations)
        if found is None:
            distinct, of_nodes = self._taints
            found = np.array([tolerates_node(pod, taints) for taints in distinct], np.bool_)[of_nodes]
            self._tolerated[pod.spec.tolerations] = found
        return found

    # With the pods of the nodes

    def _fit_of(self, spec: int) -> _Fit:
        table = self._table
        found = self._specs.get(spec)
        if found is None:
            allowed = ~table.unschedulable & self.affinity_mask(spec) & self.taints_mask(spec)
            found = self._specs[spec] = _Fit(allowed, allowed & self._has_room(spec, None), 0)
            found.seen = len(table.changed_rows)
        elif found.seen < len(table.changed_rows):
            rows = np.array(sorted(set(table.changed_rows[found.seen :]) - {-1}), np.intp)
            found.fits[rows] = found.allowed[rows] & self._has_room(spec, rows)
            found.seen = len(table.changed_rows)
        return found

    def _has_room(self, spec: int, rows: NDArray[np.intp] | None) -> Bools:
        wanted, available = self._wanted(spec), self._available(rows)
        fits: Bools = (wanted <= available).all(axis=1) & (available[:, 2] > 0)
        return fits

    def _wanted(self, spec: int) -> Ints:
        columns = self._table.columns
        width = len(columns.resources)
        wanted = np.where(columns.requested[spec, :width], columns.requests[spec, :width], NOT_REQUESTED)
        wanted[2] = 0
        return wanted

    def _available(self, rows: NDArray[np.intp] | None) -> Ints:
        """(nodes, resources). Of a resource that a node does not state, nothing is left: never less."""
        table = self._table
        at = slice(None) if rows is None else rows
        left = table.allocatable[at] - table.used[at]
        for column, name in enumerate(table.columns.resources[BASIC:], BASIC):
            np.maximum(left[:, column], 0, out=left[:, column], where=~self._states(name)[at])
        return left

    def _states(self, resource: str) -> Bools:
        """The nodes whose allocatable resources have this one."""
        found = self._stating.get(resource)
        if found is None:
            stated = [resource in node.status.allocatable for node in self._table.nodes]
            found = self._stating[resource] = np.array(stated, np.bool_)
        return found

    def mask(self, slot: int) -> Bools:
        """The nodes that the pod fits; on its own node resources are not checked."""
        table = self._table
        spec, own = int(table.spec[slot]), int(table.row[slot])
        found = self._fit_of(spec)
        fits = found.fits
        if own >= 0 and fits[own] != found.allowed[own]:
            fits = fits.copy()
            fits[own] = found.allowed[own]
        excluded = self._excluded(slot)
        return fits if excluded is None else fits & ~excluded

    def fits_any_other(self, slot: int, rows: Bools) -> bool:
        """Whether the pod fits one of these nodes that is not its own."""
        table = self._table
        own = int(table.row[slot])
        found = self._fit_of(int(table.spec[slot])).fits
        excluded = self._excluded(slot)
        fits = found & rows if excluded is None else found & rows & ~excluded
        count = np.count_nonzero(fits)
        return bool(count > (1 if own >= 0 and fits[own] else 0))

    def fits_any(self, slot: int, rows: Bools) -> bool:
        return bool((self.mask(slot) & rows).any())

    def _excluded(self, slot: int) -> Bools | None:
        """The nodes that the required anti-affinity of the pod excludes; None if it has none."""
        violated, problem = self._anti_affinity(slot)
        return np.ones(len(self._table.nodes), np.bool_) if problem else violated

    def _anti_affinity(self, slot: int) -> tuple[Bools | None, str]:
        """The nodes on which a required term of the pod is violated; None if it has none.

        Terms are evaluated until one does not parse. Its problem, if there is one, excludes the other nodes.
        """
        pod = self._table.pods[slot]
        terms = required_anti_affinity(pod)
        if not terms:
            return None, ""
        violated = np.zeros(len(self._table.nodes), np.bool_)
        for term in terms:
            try:
                others = self.others(pod, term)
            except SelectorError as error:
                return violated, error.problem
            rows = self._table.row[others]
            here = np.zeros(len(violated), np.bool_)
            here[rows[rows >= 0]] = True
            violated |= here & self.has_label(term.topology_key)
        return violated, ""

    def others(self, pod: Pod, term: PodAffinityTerm) -> NDArray[np.intp]:
        """The pods that a term of this pod is about: unfinished, on a node, with another name.

        Raises:
            SelectorError: the term does not parse.
        """
        table = self._table
        namespaces = frozenset(term.namespaces or (pod.namespace,))
        key = (namespaces, compile_selector(term.label_selector))
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = table.in_namespaces(namespaces) & table.matches(key[1])
        slots = np.flatnonzero(found & table.counted)
        return (
            slots[[table.pods[other].name != pod.name for other in slots.tolist()]] if len(slots) else slots
        )

    def has_label(self, key: str) -> Bools:
        return np.array([key in node.labels for node in self._table.nodes], np.bool_)

    # Texts

    def texts(self, slot: int) -> list[str]:
        """For each node why the pod does not fit; "" where it fits."""
        table = self._table
        spec, own = int(table.spec[slot]), int(table.row[slot])
        affinity, tolerated = self.affinity_mask(spec), self.taints_mask(spec)
        violated, problem = self._anti_affinity(slot)
        wanted, available = self._wanted(spec), self._available(None)
        found = []
        for row, node in enumerate(table.nodes):
            if node.spec.unschedulable:
                found.append(UNSCHEDULABLE)
            elif not affinity[row]:
                found.append(self._mismatch(spec, node))
            elif not tolerated[row]:
                found.append(TAINTS)
            elif violated is not None and violated[row]:
                found.append(ANTI_AFFINITY)
            elif problem:
                found.append(problem)
            elif row == own:
                found.append("")
            else:
                found.append(self._shortage(wanted, available[row]))
        return found

    def _mismatch(self, spec: int, node: Node) -> str:
        """Why a node does not match: terms that do not parse are named, unless nodeSelector excludes it."""
        affinity = required_node_affinity(self._table.columns.spec_pods[spec])
        if affinity.selector is not None and not affinity.selector.matches(node.labels):
            return SELECTOR
        return aggregate(term.error for term in affinity.terms or () if term.error) or SELECTOR

    def _shortage(self, wanted: Ints, available: Ints) -> str:
        """The resource that is not enough, or "". Of pods none is requested, so they are checked twice."""
        lacking = wanted > available
        if available[2] < 0 or (available[2] == 0 and not lacking.any()):
            return INSUFFICIENT.format(resource=PODS)
        if not lacking.any():
            return ""
        return INSUFFICIENT.format(resource=self._table.columns.resources[int(np.argmax(lacking))])


def required_anti_affinity(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return affinity.pod_anti_affinity.required
