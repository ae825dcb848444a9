"""The devices that claims would get on each node, for all pods whose claims ask for the same.

Pods of a Deployment have claims of their own, but these are created from one template. Results are shared by
what claims ask for, whatever the pods are otherwise, and a node is searched again only when its devices, the
Node object or a DeviceClass changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import (
    BoolColumn,
    Cluster,
    IntColumn,
    Node,
    NodeColumns,
    Reject,
    derived,
    failure,
    unresolvable,
)
from bayplan.plugin.devices import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    AllocationCache,
    AllocationError,
    AllocationLimitError,
    AllocationResult,
    Allocator,
    ClusterDevices,
    DeviceClass,
    NoFit,
    ResourceClaim,
    SearchBudget,
    content_key,
    spec_key,
)
from bayplan.plugins.dynamic_resources.extended import Variant
from bayplan.plugins.dynamic_resources.preferences import has_alternatives, total_preference

TIMED_OUT: Final = "node {node}: timed out trying to allocate devices"
NOT_EVALUATED: Final = (
    "resource claim {claim}: not evaluated on all nodes, "
    "because this attempt has used up its time for allocating devices"
)

MAX_ROWS: Final = 200_000
"""Nodes times specs of claims whose results are cached: 40 specs for 5,000 nodes."""

MIN_SPECS: Final = 16
"""Specs whose results are cached however many nodes there are."""


class Code(IntEnum):
    """What was found on a node."""

    DEVICES = 0
    NO_NODE = 1
    NO_DEVICES = 2
    INVALID_POOLS = 3
    ERROR = 4


# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_NO_NODE: Final = Code.NO_NODE
_DEVICES: Final = Code.DEVICES
_ERROR: Final = Code.ERROR

_REASONS: Final = {
    Code.NO_DEVICES: CANNOT_ALLOCATE.reason,
    Code.INVALID_POOLS: INVALID_POOLS.reason,
}


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What the claims get on a node, in their order."""

    allocations: tuple[AllocationResult, ...]
    variant: Variant | None = None
    """What the claim for extended resources asks for there, if the pod has one."""


class NodeResults:
    """Codes and results by row, for claims with one content."""

    def __init__(self, cluster: Cluster, budget: SearchBudget) -> None:
        self._cluster = cluster
        self._budget = budget
        self._claims: tuple[ResourceClaim, ...] = ()
        changes, devices = cluster.changes, derived(cluster, ClusterDevices)
        self._devices = devices
        self._freshness = changes.freshness(
            (changes.size, changes.kind(DeviceClass), devices.everywhere), (changes.nodes, devices.rows)
        )
        self._stale: BoolColumn = np.zeros(0, dtype=np.bool_)
        self._codes: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self._results: list[NodeResult | None] = []
        self._errors: dict[int, str] = {}
        self._scores: IntColumn = np.zeros(0, dtype=np.int64)
        self._rows_by_score: Counter[int] = Counter()
        """The number of rows with devices that have each score."""
        self._cache = AllocationCache()
        self._has_alternatives = False
        self._masks: list[tuple[Code, BoolColumn]] | None = None

    def use_for(self, claims: tuple[ResourceClaim, ...]) -> None:
        """From now on it is about these claims, which ask for the same."""
        if self._errors and _named(self._claims) != _named(claims):
            self._stale[list(self._errors)] = True
        self._claims = claims
        self._has_alternatives = any(map(has_alternatives, claims))

    # For Filter, Score and Reserve

    def rejects(self, nodes: NodeColumns) -> Iterator[tuple[BoolColumn, Reject]]:
        """The rows without devices, and why."""
        self._update(nodes)
        for code, by_row in self._masks or ():
            if code is Code.ERROR:
                yield from self._error_rejects(nodes)
            else:
                mask: BoolColumn = nodes.gather(by_row)
                yield mask, Reject(mask, unresolvable(_REASONS[code]))

    def _error_rejects(self, nodes: NodeColumns) -> Iterator[tuple[BoolColumn, Reject]]:
        for text in dict.fromkeys(self._errors.values()):
            by_row = np.zeros(len(self._codes), dtype=np.bool_)
            by_row[[row for row, error in self._errors.items() if error == text]] = True
            mask: BoolColumn = nodes.gather(by_row)
            yield mask, Reject(mask, failure(text))

    def scores(self, nodes: NodeColumns, added: int) -> IntColumn:
        """How well alternatives are followed, with what allocated claims add; 0 where there is no result."""
        self._update(nodes)
        scores: IntColumn = nodes.gather(self._scores)
        return np.where(nodes.gather(self._codes) == Code.DEVICES, scores + added, 0)

    @property
    def has_equal_scores(self) -> bool:
        """Whether alternatives are followed equally well on all rows with devices, as of the last filter."""
        return len(self._rows_by_score) <= 1

    def at(self, row: int) -> NodeResult | None:
        """The devices for the claims on one row; None where there are none."""
        self._mark_stale()
        if self._stale[row]:
            self._search([row])
        return self._results[row]

    # Updates

    def _update(self, nodes: NodeColumns) -> None:
        """Searches the stale rows among these again."""
        self._mark_stale()
        if self._stale.any():
            self._search(nodes.rows[nodes.gather(self._stale)].tolist())
        if self._masks is None:
            self._masks = [
                (code, mask) for code in (*_REASONS, Code.ERROR) if (mask := self._codes == code).any()
            ]

    def _mark_stale(self) -> None:
        if self._freshness.is_now:
            return
        derived(self._cluster, ClusterDevices)
        with self._freshness as stale:
            if stale is None:
                self._reset(self._cluster.nodes.high)
            elif stale:
                self._stale[stale] = True

    def _reset(self, rows: int) -> None:
        self._codes = np.zeros(rows, dtype=np.int8)
        self._scores = np.zeros(rows, dtype=np.int64)
        self._results = [None] * rows
        self._rows_by_score.clear()
        self._errors.clear()
        self._cache = AllocationCache()
        self._masks = None
        self._stale = np.ones(rows, dtype=np.bool_)

    def _search(self, rows: Sequence[int]) -> None:
        nodes, budget = self._cluster.nodes.node, self._budget
        allocator = Allocator(
            self._devices.inventory,
            self._devices.allocated,
            self._cluster.objects.of(DeviceClass).get,
            budget=budget,
        )
        for row in rows:
            node = nodes[row]
            code, result, is_stale = _NO_NODE, None, False
            self._errors.pop(row, None)
            if node is not None and budget.is_used_up:
                # The next attempt evaluates it.
                code, is_stale = _ERROR, True
                self._errors[row] = NOT_EVALUATED.format(claim=self._claims[0].key)
            elif node is not None:
                try:
                    code, result = self._on(allocator, node)
                except AllocationError as error:
                    code, self._errors[row] = _ERROR, str(error)
            if self._codes.item(row) != code:
                self._codes[row] = code
                self._masks = None
            elif code is _ERROR:
                self._masks = None
            if self._has_alternatives:
                self._score(row, result)
            self._results[row] = result
            self._stale[row] = is_stale

    def _score(self, row: int, result: NodeResult | None) -> None:
        counts = self._rows_by_score
        if self._results[row] is not None:
            before = self._scores.item(row)
            counts[before] -= 1
            if not counts[before]:
                del counts[before]
        if result is not None:
            score = self._scores[row] = total_preference(self._claims, result.allocations)
            counts[score] += 1

    def _on(self, allocator: Allocator, node: Node) -> tuple[Code, NodeResult | None]:
        try:
            allocations = allocator.allocate(node, self._claims, self._cache)
        except AllocationLimitError:
            raise AllocationError(TIMED_OUT.format(node=node.name)) from None
        if isinstance(allocations, NoFit):
            return (Code.INVALID_POOLS if allocations is INVALID_POOLS else Code.NO_DEVICES), None
        return _DEVICES, NodeResult(allocations)


def _named(claims: Sequence[ResourceClaim]) -> list[object]:
    """What errors name: the claims, and their classes."""
    return [(claim.key, claim.spec) for claim in claims]


class ResultsByContent:
    """The results for the claims of all pods of a profile."""

    def __init__(self, cluster: Cluster, budget: SearchBudget) -> None:
        self._cluster = cluster
        self._budget = budget
        self._freshness = cluster.changes.freshness((cluster.changes.kind(DeviceClass),))
        self._by_spec: dict[bytes, NodeResults] = {}
        self._by_content: WeakValueDictionary[bytes, NodeResults] = WeakValueDictionary()
        """Specs with classes of other names may have the same content."""

    def of(self, claims: tuple[ResourceClaim, ...]) -> NodeResults:
        """The results for claims without devices."""
        if not self._freshness.is_current:
            self._by_spec.clear()
            self._freshness.mark_current()
        key = spec_key(claims)
        results = self._by_spec.get(key)
        if results is None:
            results = self._by_spec[key] = self._of_content(claims)
        results.use_for(claims)
        return results

    def _of_content(self, claims: tuple[ResourceClaim, ...]) -> NodeResults:
        limit = max(MIN_SPECS, MAX_ROWS // max(self._cluster.nodes.high, 1))
        if len(self._by_spec) >= limit:
            for old in list(self._by_spec)[: limit // 2]:
                del self._by_spec[old]
        content = content_key(claims, self._cluster.objects.of(DeviceClass).get)
        found = self._by_content.get(content)
        if found is None:
            found = self._by_content[content] = NodeResults(self._cluster, self._budget)
        return found
