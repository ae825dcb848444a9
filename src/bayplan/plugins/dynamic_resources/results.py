"""The devices that a pod would get on each node, found once for all pods whose claims ask for the same.

Results belong to what claims ask for, whatever the pods are otherwise, and a node is searched again only when
its devices, the Node object or a DeviceClass changed. With extended resources, what the pod's claim asks for
depends on the node: on those with a device plugin for a resource, devices do not serve it. Nodes where it
asks for the same share results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bayplan.plugin import (
    BoolColumn,
    Cluster,
    IntColumn,
    Node,
    NodeColumns,
    Pod,
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
    ExtendedResources,
    NoFit,
    ResourceClaim,
    SearchBudget,
    content_key,
    spec_key,
)
from bayplan.plugins.dynamic_resources.extended import (
    ExtendedDemand,
    Variant,
    claim_with,
    needed_resources,
    variant,
)

MAX_ALTERNATIVES: Final = 8
"""A request has at most so many alternatives; the first one counts most."""


def has_alternatives(claim: ResourceClaim) -> bool:
    """Whether a request of the claim may be met in several ways, which scoring prefers in order."""
    return any(request.first_available for request in claim.spec.devices.requests)


def preference(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """How well the allocation follows the order of alternatives in the claim's requests."""
    used = {result.request for result in allocation.devices.results}
    return sum(
        MAX_ALTERNATIVES - place
        for request in claim.spec.devices.requests
        for place, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in used
    )


def total_preference(claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult]) -> int:
    """The same for several claims."""
    return sum(map(preference, claims, allocations))


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
        self._timed_out: set[int] = set()
        """The rows with errors because a search exceeded its budget. They are searched after all others."""
        self._scores: IntColumn = np.zeros(0, dtype=np.int64)
        self._rows_by_score: Counter[int] = Counter()
        """The number of rows with devices that have each score."""
        self._cache = AllocationCache()
        self._has_alternatives = False
        self._masks: list[tuple[Code, BoolColumn]] | None = None

    def use_for(self, claims: tuple[ResourceClaim, ...]) -> None:
        """From now on it is about these claims, which ask for the same."""
        if self._errors and _named(self._claims) != _named(claims):
            self._stale[list(self._errors.keys() - self._timed_out)] = True
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
        self._timed_out.clear()
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
        if self._timed_out:
            rows = sorted(rows, key=self._timed_out.__contains__)
        for row in rows:
            node = nodes[row]
            code, result, is_stale = _NO_NODE, None, False
            self._errors.pop(row, None)
            if node is not None and budget.is_used_up:
                # The next attempt evaluates it.
                code, is_stale = _ERROR, True
                text = TIMED_OUT if row in self._timed_out else NOT_EVALUATED
                self._errors[row] = text.format(node=node.name, claim=self._claims[0].key)
            elif node is not None:
                self._timed_out.discard(row)
                try:
                    code, result = self._on(allocator, node)
                except AllocationLimitError:
                    code, self._errors[row] = _ERROR, TIMED_OUT.format(node=node.name)
                    self._timed_out.add(row)
                    is_stale = not budget.is_repeatable
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
        allocations = allocator.allocate(node, self._claims, self._cache)
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


REASON_NO_RESOURCE: Final = "cannot fit resource"


class VariantRows:
    """The variants of the claim for extended resources, for pods of one signature."""

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._cluster = cluster
        self._freshness = changes.freshness((changes.size, changes.nodes, changes.kind(DeviceClass)))
        self.variants: list[tuple[Variant, BoolColumn]] = []
        """Each with its rows."""
        self.never: BoolColumn | None = None
        """The rows that cannot serve a resource in any way."""

    def update(self, pod: Pod, demand: ExtendedDemand) -> None:
        if self._freshness.is_current:
            return
        classes, self.variants, self.never = derived(self._cluster, ExtendedResources), [], None
        for needed, rows in needed_resources(NodeColumns(self._cluster), demand.amounts):
            if needed is None:
                self.never = rows
            else:
                self.variants.append((variant(classes, pod, needed), rows))
        self._freshness.mark_current()


class _Part(NamedTuple):
    """Rows with one variant."""

    variant: Variant
    rows: BoolColumn
    results: NodeResults


class ExtendedNodeResults:
    """`NodeResults` for a pod with extended resources."""

    def __init__(
        self,
        cluster: Cluster,
        claims: tuple[ResourceClaim, ...],
        rows: VariantRows,
        by_content: ResultsByContent,
        *,
        has_user_claims: bool,
    ) -> None:
        self._cluster = cluster
        self._never = rows.never
        self._parts = [
            _Part(one, by_row, by_content.of((*claims[:-1], claim_with(claims[-1], one.requests))))
            for one, by_row in rows.variants
            # Where a device plugin serves all that the pod requests, nothing is needed.
            if one.resources or has_user_claims
        ]

    def rejects(self, nodes: NodeColumns) -> Iterator[tuple[BoolColumn, Reject]]:
        if self._never is not None:
            mask: BoolColumn = nodes.gather(self._never)
            yield mask, Reject(mask, unresolvable(REASON_NO_RESOURCE))
        for part in self._parts:
            at, some = self._of(nodes, part)
            for found, reject in part.results.rejects(some):
                mask = found
                if some is not nodes:
                    mask = np.zeros(len(nodes), dtype=np.bool_)
                    mask[at] = found
                yield mask, replace(reject, mask=mask)

    def scores(self, nodes: NodeColumns, added: int) -> IntColumn:
        scores = np.zeros(len(nodes), dtype=np.int64)
        for part in self._parts:
            at, some = self._of(nodes, part)
            scores[at] = part.results.scores(some, added)
        return scores

    @property
    def has_equal_scores(self) -> bool:
        if len(self._parts) != 1 or not self._parts[0].rows.all():
            return False
        return self._parts[0].results.has_equal_scores

    def at(self, row: int) -> NodeResult | None:
        for part in self._parts:
            if part.rows[row]:
                found = part.results.at(row)
                return None if found is None else NodeResult(found.allocations, part.variant)
        return None

    def _of(self, nodes: NodeColumns, part: _Part) -> tuple[BoolColumn, NodeColumns]:
        """Which of these nodes belong to the part, and a view of them."""
        at: BoolColumn = nodes.gather(part.rows)
        return at, nodes if at.all() else NodeColumns(self._cluster, nodes.rows[at])
