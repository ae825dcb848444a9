"""RemoveDuplicates: several pods of one owner on one node, while other nodes have fewer.

Each node may keep as many pods of an owner as an even distribution over the nodes gives it, rounded up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import ClassVar, NamedTuple

import numpy as np

from bayplan.api.node_selectors import required_node_affinity
from bayplan.deschedule.args import RemoveDuplicatesArgs
from bayplan.deschedule.eviction import Result
from bayplan.deschedule.plugin import Cycle, Goal, Slots, Strategy, Verdict
from bayplan.deschedule.table import ClusterTable, Flag


class _OwnerKey(NamedTuple):
    namespace: str
    kind: str
    name: str
    images: str


class RemoveDuplicates(Strategy):
    """Evicts the pods of an owner that a node has above the average."""

    args_type: ClassVar = RemoveDuplicatesArgs
    goal: ClassVar = Goal.BALANCE
    reason: ClassVar = "its node has more pods of its owner than an even distribution"
    args: RemoveDuplicatesArgs

    def balance(self, cycle: Cycle) -> None:
        table = cycle.table
        candidates = self._candidates(cycle)
        kinds, keys_of = _kinds(table, candidates)
        occurrences: Counter[_OwnerKey] = Counter()
        for kind, count in enumerate(np.bincount(kinds, minlength=len(keys_of)).tolist()):
            for key in keys_of[kind]:
                occurrences[key] += count
        by_key: dict[_OwnerKey, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for slot, kind in zip(*_duplicates(table, candidates, kinds), strict=True):
            for key in keys_of[kind]:
                by_key[key][int(table.row[slot])].append(slot)
        for key, nodes in by_key.items():
            targets = self._targets(cycle, [slot for slots in nodes.values() for slot in slots])
            if targets < 2:
                continue
            average = -(-occurrences[key] // targets)
            for row in sorted(nodes):
                for slot in nodes[row][average - 1 :] if len(nodes[row]) + 1 > average else ():
                    result = cycle.evict(slot)
                    if result is Result.TOTAL_LIMIT:
                        return
                    if result is Result.NODE_LIMIT:
                        break

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        here, there, _ = self._counts(cycle, slot, row)
        name, own = cycle.table.nodes[row].name, cycle.table.nodes[int(cycle.table.row[slot])].name
        if there + 1 < here:
            text = f"{name} has {there} pods of its owner, {own} has {here}"
            return Verdict(True, text, float(here - there - 1))
        return Verdict(False, f"{name} has {there} pods of its owner already")

    def objects(self, cycle: Cycle, slot: int, row: int) -> str:
        """The node would exceed the average."""
        here, there, count = self._counts(cycle, slot, row)
        if not there or there < here:
            return ""
        average = -(-count // max(self._targets(cycle, [slot]), 1))
        name = cycle.table.nodes[row].name
        return f"{name} would have {there + 1} pods of its owner" if there + 1 > average else ""

    def _counts(self, cycle: Cycle, slot: int, row: int) -> tuple[int, int, int]:
        """How many pods of its owner there are on its own node, on this one, and on all."""
        table = cycle.table
        same = table.counted & (table.owners == table.owners[slot]) & (table.spec == table.spec[slot])
        same &= table.namespace == table.namespace[slot]
        rows = table.row[same]
        here, there = np.count_nonzero(rows == table.row[slot]), np.count_nonzero(rows == row)
        return int(here), int(there), len(rows)

    def _candidates(self, cycle: Cycle) -> Slots:
        table = cycle.table
        mask = cycle.pods(self.args) & table.has(Flag.OWNED)
        if self.args.exclude_owner_kinds:
            mask &= table.without_owners(self.args.exclude_owner_kinds)
        return cycle.evictable(mask)

    def _targets(self, cycle: Cycle, slots: list[int]) -> int:
        """How many nodes the pods could be on, by taints and node affinity."""
        table, fit = cycle.table, cycle.node_fit
        distinct = {}
        for slot in slots:
            spec = int(table.spec[slot])
            pod = table.columns.spec_pods[spec]
            distinct[pod.spec.tolerations, required_node_affinity(pod)] = spec
        union = np.zeros(len(table.nodes), np.bool_)
        for spec in distinct.values():
            allowed = cycle.rows & fit.taints_mask(spec) & fit.affinity_mask(spec)
            if np.count_nonzero(allowed) >= 2:
                union |= allowed
        return int(np.count_nonzero(union))


def _kinds(table: ClusterTable, slots: Slots) -> tuple[Slots, list[tuple[_OwnerKey, ...]]]:
    """Numbers that are equal for pods that are duplicates of each other, and the owners of each number."""
    owners, specs = len(table.columns.owners), len(table.columns.spec_pods)
    combined = (table.namespace[slots] * owners + table.owners[slots]) * specs + table.spec[slots]
    found, first, where = np.unique(combined, return_index=True, return_inverse=True)
    numbers: dict[tuple[tuple[str, ...], ...], int] = {}
    keys: list[tuple[_OwnerKey, ...]] = []
    of_combination = np.zeros(len(found), np.intp)
    for i, position in enumerate(first.tolist()):
        pod = table.pods[slots[position]]
        images = sorted(container.image for container in pod.spec.containers)
        references = pod.metadata.owner_references
        identity = tuple(
            sorted((pod.namespace, one.kind, one.name, image) for one in references for image in images)
        )
        number = numbers.setdefault(identity, len(keys))
        if number == len(keys):
            joined = "#".join(images)
            keys.append(tuple(_OwnerKey(pod.namespace, one.kind, one.name, joined) for one in references))
        of_combination[i] = number
    return of_combination[where], keys


def _duplicates(table: ClusterTable, slots: Slots, kinds: Slots) -> tuple[list[int], list[int]]:
    """The pods that are not the first of their kind on their node, node by node, with their kinds."""
    rows = table.row[slots]
    order = np.lexsort((np.arange(len(slots)), kinds, rows))
    same = (np.diff(rows[order], prepend=-1) == 0) & (np.diff(kinds[order], prepend=-1) == 0)
    is_duplicate = np.zeros(len(slots), np.bool_)
    is_duplicate[order[same]] = True
    chosen = np.flatnonzero(is_duplicate)
    chosen = chosen[np.argsort(rows[chosen], kind="stable")]
    return slots[chosen].tolist(), kinds[chosen].tolist()
