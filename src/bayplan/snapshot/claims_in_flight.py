"""Allocations that were decided and are not written yet.

When a pod is given a node, its claims are given devices, and writing that to the API server takes a while.
Until then nobody else may get the same devices. Like assumed volumes (`assumed.py`) these decisions are
objects of a kind of their own, so whatever is derived from allocated devices is updated when one comes or
goes.
"""

from __future__ import annotations

from typing import ClassVar

from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.resource_claims import ResourceClaim
from bayplan.snapshot.objects import Objects


class ClaimInFlight(Object, frozen=True):
    """A claim with the allocation that it is about to get. Its name is the claim's uid."""

    is_per_pod: ClassVar[bool] = True

    claim: ResourceClaim = ResourceClaim()


def is_in_flight(objects: Objects, uid: str) -> bool:
    """Whether an allocation of the claim with this uid is about to be written."""
    return objects.of(ClaimInFlight).get(uid) is not None


def put_in_flight(objects: Objects, uid: str, claim: ResourceClaim) -> None:
    """The claim (with an allocation) is about to be written."""
    objects.put(ClaimInFlight(metadata=ObjectMeta(name=uid), claim=claim))


def remove_in_flight(objects: Objects, uid: str) -> ResourceClaim | None:
    """It was written, or will not be. Returns the claim with its allocation, None if it was not in flight."""
    found = objects.of(ClaimInFlight).get(uid)
    if found is None:
        return None
    objects.remove(found)
    return found.claim
