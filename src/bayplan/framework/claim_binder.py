"""The interface through which DynamicResources writes ResourceClaims to the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bayplan.api.pod import ContainerExtendedResourceRequest, Pod
from bayplan.api.resource_claims import AllocationResult, ResourceClaim
from bayplan.framework.status import Status


@dataclass(slots=True)
class PlannedClaim:
    """One claim of a pod that is about to be bound."""

    uid: str
    """The key of its allocation in flight: the claim's uid, or a generated one before it is created."""
    claim: ResourceClaim
    """The claim as of the scheduling cycle; later as it was last written."""
    allocation: AllocationResult | None = None
    """The allocation to write; None if the claim is already allocated."""
    is_new: bool = False
    """Whether the claim exists only in memory so far: it is created for the pod's extended resources."""
    in_doubt: bool = False
    """Whether a write was interrupted, so that its outcome is not known."""


@dataclass(slots=True)
class ClaimPlan:
    """What has to be written before a pod with claims can be bound."""

    claims: list[PlannedClaim]
    """All claims of the pod, in order."""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    """Which request of the new claim serves which extended resource of which container."""


class ClaimBinder(Protocol):
    """Executes plans, and frees claims."""

    async def bind(
        self, pod: Pod, node_name: str, plan: ClaimPlan, timeout_seconds: float | None
    ) -> Status | None:
        """Writes allocations and reservations, and waits for the binding conditions of devices.

        None when all of it is done, else `failure(...)`. What was written is no longer in flight.
        """

    def release(self, pod: Pod, plan: ClaimPlan) -> None:
        """Reverts allocations in flight and the pod's reservations, and deletes the claim created for it."""

    def deallocate(self, pod: Pod, claim: ResourceClaim) -> None:
        """Clears the claim's allocation, which prevents this pod from being scheduled."""

    def delete(self, pod: Pod, claim: ResourceClaim) -> None:
        """Deletes a claim that an earlier attempt for the pod created."""


@runtime_checkable
class BindsClaims(Protocol):
    """A handle of a scheduler that can bind claims."""

    @property
    def claims(self) -> ClaimBinder: ...
