"""Binding conditions of allocated devices: a pod is bound only once its devices are ready.

A device may name conditions that its driver sets in the claim's status (`status.devices`) when the device is
ready, and others that it sets when that failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import Enum, auto

from bayplan.api.meta import Condition
from bayplan.api.resource_claims import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from bayplan.errors import BayplanError


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
