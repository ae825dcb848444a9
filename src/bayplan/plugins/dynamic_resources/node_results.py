"""The devices that claims would get on each node, for all pods whose claims have the same requests.

Pods of a Deployment have claims of their own, but these are created from one template. Their results are
cached with the pods' signature, by what the claims ask for, and a node is searched again only when its
devices, the Node object or a DeviceClass changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import BoolColumn, Cluster, CycleState, IntColumn, Node, NodeColumns, Pod, Reject
from bayplan.plugin.columns import derived
from bayplan.plugin.devices import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    AllocationCache,
    AllocationError,
    AllocationResult,
    AllocationTimeoutError,
    Allocator,
    ClusterDevices,
    DeviceClass,
    ExtendedResources,
    NoFit,
    ResourceClaim,
    ResourceClaimSpec,
)
from bayplan.plugins.dynamic_resources.extended import (
    ExtendedDemand,
    Variant,
    claim_with,
    needed_resources,
    offered_amount,
    variant,
)
from bayplan.plugins.dynamic_resources.preferences import has_alternatives, total_preference

REASON_NO_RESOURCE: Final = "cannot fit resource"
TIMED_OUT: Final = "node {node}: timed out trying to allocate devices"

MAX_CONTENTS: Final = 4
"""Different contents of claims that are remembered for one signature: as a rule there is one."""

Content = tuple[bool | ResourceClaimSpec, ...]
"""Whether there are extended resources, and claims of the user; and what each claim asks for."""


class Code(IntEnum):
    """What was found on a node."""

    DEVICES = 0
    NOTHING_NEEDED = 1
    """All that the pod requests is served by a device plugin there."""
    NO_DEVICES = 2
    INVALID_POOLS = 3
    NO_RESOURCE = 4
    ERROR = 5


# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_NOTHING_NEEDED: Final = Code.NOTHING_NEEDED
_DEVICES: Final = Code.DEVICES
_ERROR: Final = Code.ERROR

_REASONS: Final = {
    Code.NO_DEVICES: CANNOT_ALLOCATE.reason,
    Code.INVALID_POOLS: INVALID_POOLS.reason,
    Code.NO_RESOURCE: REASON_NO_RESOURCE,
}


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How the allocator searches."""

    clock: Callable[[], float]
    timeout_seconds: float
    """For one node; 0 for no limit."""

    def allocator(self, cluster: Cluster, devices: ClusterDevices) -> Allocator:
        """For devices as they are now."""
        return Allocator(
            devices.inventory,
            devices.allocated,
            cluster.objects.of(DeviceClass).get,
            clock=self.clock,
            timeout_seconds=self.timeout_seconds,
        )


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What the claims get on a node, in their order."""

    allocations: tuple[AllocationResult, ...]
    variant: Variant | None
    """What the claim for extended resources asks for there, if the pod has one."""


class NodeResults:
    """Codes and results by row, for claims with one content."""

    def __init__(self, cluster: Cluster, search: SearchSettings, *, has_user_claims: bool) -> None:
        self._cluster = cluster
        self._search_settings = search
        self._has_user_claims = has_user_claims
        self._pod = Pod()
        self._claims: tuple[ResourceClaim, ...] = ()
        self._demand: ExtendedDemand | None = None
        changes, devices = cluster.changes, derived(cluster, ClusterDevices)
        self._freshness = changes.freshness(
            (changes.size, changes.kind(DeviceClass), devices.everywhere), (changes.nodes, devices.rows)
        )
        self._stale: set[int] = set()
        self._codes: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self._results: list[NodeResult | None] = []
        self._errors: dict[int, str] = {}
        self._scores: IntColumn = np.zeros(0, dtype=np.int64)
        self._variants: dict[tuple[str, ...], Variant] = {}
        self._caches: dict[tuple[str, ...], AllocationCache] = {}
        """By the extended resources that devices have to serve; without extended resources one."""
        self._has_alternatives = False
        self._masks: list[tuple[Code, BoolColumn]] | None = None

    def use_for(self, pod: Pod, claims: tuple[ResourceClaim, ...], demand: ExtendedDemand | None) -> None:
        """From now on it is about these claims, which ask for the same."""
        if self._errors and [claim.key for claim in self._claims] != [claim.key for claim in claims]:
            # Errors name the claim.
            self._stale.update(self._errors)
        self._pod, self._claims, self._demand = pod, claims, demand
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
                yield mask, Reject(mask, _REASONS[code], unresolvable=True)

    def _error_rejects(self, nodes: NodeColumns) -> Iterator[tuple[BoolColumn, Reject]]:
        for text in dict.fromkeys(self._errors.values()):
            by_row = np.zeros(len(self._codes), dtype=np.bool_)
            by_row[[row for row, error in self._errors.items() if error == text]] = True
            mask: BoolColumn = nodes.gather(by_row)
            yield mask, Reject(mask, text, error=True)

    def scores(self, nodes: NodeColumns, added: int) -> IntColumn:
        """How well alternatives are followed, with what allocated claims add; 0 where there is no result."""
        self._update(nodes)
        scores: IntColumn = nodes.gather(self._scores)
        return np.where(nodes.gather(self._codes) == Code.DEVICES, scores + added, 0)

    def at(self, row: int) -> NodeResult | None:
        """The devices for the claims on one row; None where there are none."""
        self._update(NodeColumns(self._cluster, np.array([row], dtype=np.intp)))
        return self._results[row]

    # Updates

    def _update(self, nodes: NodeColumns) -> None:
        """Searches the stale rows among these again."""
        cluster = self._cluster
        if not self._stale and self._masks is not None and self._freshness.is_now:
            return
        devices = derived(cluster, ClusterDevices)
        stale = self._freshness.stale_rows()
        if stale is None:
            self._reset(cluster.nodes.high)
        elif stale:
            self._stale.update(stale)
        self._freshness.mark_current()
        if self._stale:
            wanted = (
                self._stale
                if len(nodes) >= len(self._codes)
                else self._stale.intersection(nodes.rows.tolist())
            )
            if wanted:
                self._search(sorted(wanted), devices)
        if self._masks is None:
            self._masks = [
                (code, mask) for code in (*_REASONS, Code.ERROR) if (mask := self._codes == code).any()
            ]

    def _reset(self, rows: int) -> None:
        self._codes = np.zeros(rows, dtype=np.int8)
        self._scores = np.zeros(rows, dtype=np.int64)
        self._results = [None] * rows
        self._errors.clear()
        self._variants.clear()
        self._caches.clear()
        self._masks = None
        self._stale = set(range(rows))

    def _search(self, rows: Sequence[int], devices: ClusterDevices) -> None:
        nodes = self._cluster.nodes.node
        allocator = self._search_settings.allocator(self._cluster, devices)
        for row in rows:
            node = nodes[row]
            code, result = _NOTHING_NEEDED, None
            self._errors.pop(row, None)
            if node is not None:
                try:
                    code, result = self._on(allocator, node)
                except AllocationError as error:
                    code, self._errors[row] = _ERROR, str(error)
            if self._codes.item(row) != code:
                self._codes[row] = code
                self._masks = None
            elif code is _ERROR:
                self._masks = None
            self._results[row] = result
            if result is not None and self._has_alternatives:
                self._scores[row] = total_preference(self._claims, result.allocations)
            self._stale.discard(row)

    def _on(self, allocator: Allocator, node: Node) -> tuple[Code, NodeResult | None]:
        claims, needed, found = self._claims, None, None
        if self._demand is not None:
            classes = derived(self._cluster, ExtendedResources)
            offered = {name: offered_amount(node, name) for name in self._demand.amounts}
            needed = needed_resources(classes, self._demand.amounts, offered)
            if needed is None:
                return Code.NO_RESOURCE, None
            if not needed and not self._has_user_claims:
                return Code.NOTHING_NEEDED, None
            found = self._variants.get(needed)
            if found is None:
                found = self._variants[needed] = variant(classes, self._pod, needed)
            claims = (*claims[:-1], claim_with(claims[-1], found.requests))
        key = () if needed is None else needed
        cache = self._caches.get(key)
        if cache is None:
            cache = self._caches[key] = AllocationCache()
        try:
            allocations = allocator.allocate(node, claims, cache)
        except AllocationTimeoutError:
            raise AllocationError(TIMED_OUT.format(node=node.name)) from None
        if isinstance(allocations, NoFit):
            return (Code.INVALID_POOLS if allocations is INVALID_POOLS else Code.NO_DEVICES), None
        return _DEVICES, NodeResult(allocations, found)


class ResultsByContent:
    """The results for pods of one signature, by what their claims ask for."""

    def __init__(self) -> None:
        self._results: list[tuple[Content, NodeResults]] = []
        """The one that was used last comes first."""

    def get(self, content: Content, make: Callable[[], NodeResults]) -> NodeResults:
        for at, (known, results) in enumerate(self._results):
            if known == content:
                if at:
                    self._results.insert(0, self._results.pop(at))
                return results
        found = make()
        self._results.insert(0, (content, found))
        del self._results[MAX_CONTENTS:]
        return found


def node_results(
    state: CycleState,
    cluster: Cluster,
    pod: Pod,
    claims: tuple[ResourceClaim, ...],
    demand: ExtendedDemand | None,
    *,
    has_user_claims: bool,
    search: SearchSettings,
) -> NodeResults:
    """The results for claims without devices, those of identical pods where there are any."""
    by_content = state.signature.get(ResultsByContent) or state.signature.put(ResultsByContent())
    content: Content = (demand is not None, has_user_claims, *[claim.spec for claim in claims])
    results = by_content.get(content, lambda: NodeResults(cluster, search, has_user_claims=has_user_claims))
    results.use_for(pod, claims, demand)
    return results
