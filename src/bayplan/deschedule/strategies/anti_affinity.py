"""RemovePodsViolatingInterPodAntiAffinity: pods beside pods that their own terms exclude.

Only the pod that has the term is evicted, and as soon as one partner is gone, the other may stay. For each
distinct term the matching pods are counted by node and by domain, so a pod costs a comparison.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector, compile_selector
from bayplan.deschedule.args import RemovePodsViolatingInterPodAntiAffinityArgs
from bayplan.deschedule.eviction import Result
from bayplan.deschedule.node_fit import required_anti_affinity
from bayplan.deschedule.plugin import Cycle, Strategy, Verdict
from bayplan.deschedule.table import Bools, ClusterTable
from bayplan.errors import SelectorError

_Key = tuple[frozenset[str], Selector, str]


@dataclass(slots=True)
class _Term:
    """Pods that match one term, by domain: the value of the topology key, or the node without one."""

    matches: Bools
    counts: Counter[str | int]


class RemovePodsViolatingInterPodAntiAffinity(Strategy):
    """Evicts pods with a required anti-affinity term that another pod matches."""

    args_type: ClassVar = RemovePodsViolatingInterPodAntiAffinityArgs
    reason: ClassVar = "its anti-affinity excludes a pod in the same domain"
    args: RemovePodsViolatingInterPodAntiAffinityArgs

    def deschedule(self, cycle: Cycle) -> None:
        table = cycle.table
        mask = cycle.pods(self.args)
        has_terms = table.by_spec(lambda pod: bool(required_anti_affinity(pod)))
        others = _Others(table, mask)
        for _, slots in cycle.by_node(mask & has_terms):
            for slot in cycle.by_priority(slots).tolist():
                if not others.violates(slot, int(table.row[slot])) or not len(
                    cycle.allowed(np.array([slot]))
                ):
                    continue
                result = cycle.evict(slot)
                if result is Result.TOTAL_LIMIT:
                    return
                if result is Result.NODE_LIMIT:
                    break
                if result is Result.OK:
                    others.remove(slot)

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        table = cycle.table
        name = table.nodes[row].name
        present = table.counted
        present[slot] = False
        if _Others(table, present).violates(slot, row):
            return Verdict(False, f"its anti-affinity excludes a pod in the domain of {name}, too")
        return Verdict(True, f"no pod that its anti-affinity excludes is in the domain of {name}")


class _Others:
    """The pods that terms are compared with."""

    def __init__(self, table: ClusterTable, mask: Bools) -> None:
        self._table = table
        self._mask = mask.copy()
        self._terms: dict[_Key, _Term] = {}
        self._by_name: dict[str, list[int]] | None = None

    def violates(self, slot: int, row: int) -> bool:
        """Whether the pod, on this row, has a term that another pod matches."""
        pod = self._table.pods[slot]
        for term in required_anti_affinity(pod):
            namespaces = frozenset(term.namespaces or (pod.namespace,))
            try:
                key = (namespaces, compile_selector(term.label_selector), term.topology_key)
            except SelectorError:
                return False  # upstream ends the check here
            found = self._terms.get(key) or self._add(key)
            domain = self._domain(row, term.topology_key)
            if found.counts[domain] > self._with_name(pod, found, domain, term.topology_key):
                return True
        return False

    def remove(self, slot: int) -> None:
        for key, term in self._terms.items():
            if term.matches[slot] and self._mask[slot]:
                term.counts[self._domain(int(self._table.row[slot]), key[2])] -= 1
        self._mask[slot] = False

    def _add(self, key: _Key) -> _Term:
        table = self._table
        matches = table.in_namespaces(key[0]) & table.matches(key[1])
        counts: Counter[str | int] = Counter()
        by_row = np.bincount(table.row[matches & self._mask], minlength=len(table.nodes))
        for row in np.flatnonzero(by_row).tolist():
            counts[self._domain(row, key[2])] += int(by_row[row])
        made = self._terms[key] = _Term(matches, counts)
        return made

    def _domain(self, row: int, key: str) -> str | int:
        return self._table.nodes[row].labels.get(key, row)

    def _with_name(self, pod: Pod, term: _Term, domain: str | int, key: str) -> int:
        """How many pods that match have the pod's own name: terms are not about these."""
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for slot in np.flatnonzero(self._mask).tolist():
                self._by_name[self._table.pods[slot].name].append(slot)
        return sum(
            bool(self._mask[slot] and term.matches[slot])
            and self._domain(int(self._table.row[slot]), key) == domain
            for slot in self._by_name.get(pod.name, ())
        )
