"""How VolumeBinding and DynamicResources write to the API server before a pod is bound.

The plugins make plans; a binder (`client/`) executes them. It also waits for the binding conditions of
devices: a device may name conditions that its driver sets in the claim's status (`status.devices`) when the
device is ready, and others that it sets when that failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from bayplan.api.devices import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from bayplan.api.meta import Condition
from bayplan.api.pod import ContainerExtendedResourceRequest, Pod
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.errors import BayplanError
from bayplan.framework.status import Status


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What has to be written before a pod can be bound: volumes first, then claims."""

    volumes: tuple[PersistentVolume, ...] = ()
    """Each with a reference to its claim."""
    claims: tuple[PersistentVolumeClaim, ...] = ()
    """Each with the node where a volume is to be provisioned for it."""

    @property
    def items(self) -> tuple[PersistentVolume | PersistentVolumeClaim, ...]:
        """All objects to write, in order."""
        return *self.volumes, *self.claims


class VolumeBinder(Protocol):
    """Executes binding plans."""

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, timeout_seconds: float) -> Status | None:
        """Writes the plan and waits until all claims of the pod are bound.

        Returns None when they are, else `failure(...)`. There is no rollback. The records hold only what
        scheduling reads, so they are written as changes (claimRef and annotations), not as whole objects.
        """


@runtime_checkable
class BindsVolumes(Protocol):
    """A handle of a scheduler that can bind volumes."""

    @property
    def volumes(self) -> VolumeBinder: ...


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
    consumer: ResourceClaimConsumerReference | None = None
    """For whom it is reserved; None: for the pod."""
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

    def unreserve(self, pod: Pod, claim: ResourceClaim, uid: str) -> None:
        """Removes the reservation of a consumer with this uid, for this pod."""

    def deallocate(self, pod: Pod, claim: ResourceClaim) -> None:
        """Clears the claim's allocation, which prevents this pod from being scheduled."""

    def delete(self, pod: Pod, claim: ResourceClaim) -> None:
        """Deletes a claim that an earlier attempt for the pod created."""


@runtime_checkable
class BindsClaims(Protocol):
    """A handle of a scheduler that can bind claims."""

    @property
    def claims(self) -> ClaimBinder: ...


class DeviceBindingError(BayplanError):
    """The driver could not make a device ready. `reason` and `text` are those of the condition."""

    def __init__(self, claim: str, reason: str, text: str) -> None:
        super().__init__(f'device binding failed: claim={claim}, reason={reason}, message="{_quoted(text)}"')


class Readiness(Enum):
    READY = auto()
    PENDING = auto()
    FAILED = auto()


def results_with_conditions(claim: ResourceClaim) -> Iterable[DeviceRequestAllocationResult]:
    """The allocated devices that have to become ready."""
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    return [result for result in allocation.devices.results if result.binding_conditions]


def check_ready(claim: ResourceClaim) -> bool:
    """Whether all devices of the claim are ready.

    Raises:
        DeviceBindingError: one of them will not be.
    """
    if claim.status.allocation is None:
        return False
    for result in results_with_conditions(claim):
        status = _status_of(claim, result)
        if status is None:
            return False
        for name in result.binding_failure_conditions:
            failed = _condition(status, name)
            if failed is not None and failed.status == "True":
                raise DeviceBindingError(claim.name, failed.reason, failed.message)
        for name in result.binding_conditions:
            met = _condition(status, name)
            if met is None or met.status != "True":
                return False
    return True


def readiness(claim: ResourceClaim) -> Readiness:
    """Whether the devices of the claim are ready, pending or failed."""
    try:
        return Readiness.READY if check_ready(claim) else Readiness.PENDING
    except DeviceBindingError:
        return Readiness.FAILED


def is_overdue(claim: ResourceClaim, now: float, timeout_seconds: float | None) -> bool:
    """Whether the devices of the claim should have become ready by now. `now` is seconds since the epoch."""
    allocation = claim.status.allocation
    if timeout_seconds is None or allocation is None or allocation.allocation_timestamp is None:
        return False
    if not any(result.binding_conditions for result in allocation.devices.results):
        return False
    due = allocation.allocation_timestamp + timedelta(seconds=timeout_seconds)
    return due.timestamp() < now


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    """The status that the driver reports for a device. As upstream, shares of one device have the same."""
    wanted = (result.driver, result.pool, result.device)
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == wanted:
            return status
    return None


def _condition(status: AllocatedDeviceStatus, name: str) -> Condition | None:
    return next((condition for condition in status.conditions if condition.type == name), None)


def _quoted(text: str) -> str:
    """Quoted like Go's %q, for the characters that occur in messages."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
