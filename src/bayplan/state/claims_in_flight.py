"""Allocations that are decided and not written yet.

When a pod gets a node, devices are allocated to its claims, and writing that to the API server takes a while.
Until then no other claim may get the same devices. Like assumed volumes (`assumed.py`), these decisions are
objects of their own kind, so that everything derived from allocated devices is updated when one is added or
removed.
"""

from __future__ import annotations

from typing import ClassVar

from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.resource_claims import ResourceClaim
from bayplan.state.objects import Objects


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
    """The claim was written, or will not be. Returns it with its allocation; None if it was not in flight."""
    found = objects.of(ClaimInFlight).get(uid)
    if found is None:
        return None
    objects.remove(found)
    return found.claim
