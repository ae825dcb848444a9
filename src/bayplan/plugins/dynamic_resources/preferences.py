"""Requests with alternatives: how well an allocation follows the order in which the claim names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bayplan.plugin.devices import AllocationResult, ResourceClaim

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
