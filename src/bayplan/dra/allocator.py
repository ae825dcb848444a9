"""The allocator: claims and a node in, allocations out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bayplan.api.node import Node
from bayplan.api.resource_claims import ResourceClaim
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.cache import AllocationCache, Allocations
from bayplan.dra.errors import AllocationError, AllocationTimeoutError
from bayplan.dra.inventory import Inventory
from bayplan.dra.pools import CounterKey, NodePools, PoolKey
from bayplan.dra.requests import ClassLister
from bayplan.dra.results import NoFit, allocation_result
from bayplan.dra.search import Search

CANNOT_ALLOCATE: Final = NoFit("cannot allocate all claims")
INVALID_POOLS: Final = NoFit("invalid resource pools were encountered")


class Allocator:
    """Finds devices for claims, on one node after the other, for one scheduling attempt.

    Its arguments must not change while it is used.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedState,
        classes: ClassLister,
        *,
        clock: Callable[[], float] | None = None,
        timeout_seconds: float = 0.0,
        make_share_id: Callable[[], str] | None = None,
    ) -> None:
        self._inventory = inventory
        self._allocated = allocated
        self._classes = classes
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._make_share_id = make_share_id or new_share_id
        self._cache = AllocationCache()
        self._available: dict[PoolKey, Mapping[CounterKey, int]] = {}

    def allocate(
        self, node: Node, claims: Sequence[ResourceClaim], cache: AllocationCache | None = None
    ) -> Allocations:
        """Allocations of the claims on the node, in their order.

        Args:
            cache: of earlier searches for claims of the same specs.

        Raises:
            AllocationTimeoutError: it takes too long.
            AllocationError: a claim cannot be allocated as it is; ends the scheduling attempt.
        """
        pools = self._inventory.pools(node)
        taken = None if cache is None else pools.taken(self._allocated)
        if cache is None or taken is None:
            return self._search(node, pools, claims, cache or self._cache)
        found = cache.get(pools, taken)
        if found is None:
            found = self._search(node, pools, claims, cache)
            cache.put(pools, taken, found)
        return found

    def _search(
        self, node: Node, pools: NodePools, claims: Sequence[ResourceClaim], cache: AllocationCache
    ) -> Allocations:
        features = self._inventory.features
        prepared = cache.prepared(claims, self._classes, features)
        search = Search(
            pools,
            prepared,
            self._allocated,
            self._available,
            features,
            self._deadline(),
        )
        if not search.run():
            return INVALID_POOLS if pools.has_invalid else CANNOT_ALLOCATE
        return tuple(
            allocation_result(claim, chosen, selected, node.name, features, self._make_share_id)
            for claim, chosen, selected in zip(prepared, search.chosen, search.selected, strict=True)
        )

    def _deadline(self) -> Callable[[], None] | None:
        clock = self._clock
        if clock is None or self._timeout_seconds <= 0:
            return None
        due = clock() + self._timeout_seconds

        def check() -> None:
            if clock() > due:
                raise AllocationTimeoutError("filter operation aborted: context deadline exceeded")

        return check


def new_share_id() -> str:
    """Unique among all schedulers and restarts, so it is not drawn from a seeded generator."""
    return str(uuid.uuid4())


__all__ = ["CANNOT_ALLOCATE", "INVALID_POOLS", "AllocationError", "Allocator", "NoFit", "new_share_id"]
