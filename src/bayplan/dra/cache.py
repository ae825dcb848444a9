"""What a search leaves for the next one, for claims that ask for the same.

Pods come and go, and with them the same devices of a node are taken and free again. Where the result depends
on nothing but which devices are taken, it is found by that. Claims from one template are prepared once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bayplan.api.release import DeviceFeatures
from bayplan.api.resource_claims import AllocationResult, ResourceClaim
from bayplan.dra.pools import NodePools
from bayplan.dra.requests import ClassLister, PreparedClaim
from bayplan.dra.results import NoFit

MAX_RESULTS: Final = 16384
"""Results that are kept, at about a kilobyte each."""

Allocations = tuple[AllocationResult, ...] | NoFit


class AllocationCache:
    """For claims of the same specs, as long as no DeviceClass changes."""

    __slots__ = ("_prepared", "_results")

    def __init__(self) -> None:
        self._prepared: list[PreparedClaim] = []
        self._results: dict[tuple[NodePools, bytes], Allocations] = {}

    def prepared(
        self, claims: Sequence[ResourceClaim], classes: ClassLister, features: DeviceFeatures
    ) -> list[PreparedClaim]:
        """The claims, prepared; what was prepared for others of the same specs is used again."""
        known = self._prepared
        if len(known) != len(claims) or not all(map(PreparedClaim.use_for, known, claims)):
            known = self._prepared = [PreparedClaim(claim, classes, features) for claim in claims]
        return known

    def get(self, pools: NodePools, taken: bytes) -> Allocations | None:
        """The result on a node with these pools and these devices taken, if it is known."""
        return self._results.get((pools, taken))

    def put(self, pools: NodePools, taken: bytes, found: Allocations) -> None:
        if len(self._results) >= MAX_RESULTS:
            self._results.clear()
        self._results[pools, taken] = found
