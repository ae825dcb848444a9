"""Requests for devices: ResourceClaim with its allocation, and ResourceClaimTemplate.

The record of a claim has all fields of the API, because the scheduler writes claims whole, with PUT.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import field

from bayplan.api.devices import (
    CapacityRequirements,
    DeviceSelector,
    DeviceToleration,
    OpaqueDeviceConfiguration,
)
from bayplan.api.meta import Condition, Int64, NodeSelector, Object, ObjectMeta, Record, ResourceList, Time

CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""On a claim that is allocated, or about to be."""
EXTENDED_RESOURCE_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""On a claim that the scheduler created for a pod's extended resources."""
POD_CLAIM_NAME_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""On a claim that was created from a template: the name in the pod's spec.resourceClaims."""

EXACT_COUNT: Final = "ExactCount"
ALL_DEVICES: Final = "All"

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"

MAX_RESERVED_FOR: Final = 256
"""How many consumers a claim may have."""


class DeviceSubRequest(Record, frozen=True):
    """One alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[dict[str, Any], ...] = ()
    """Of an alpha feature: never stored by an API server with default feature gates."""


class ExactDeviceRequest(Record, frozen=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[dict[str, Any], ...] = ()


class DeviceRequest(Record, frozen=True):
    """A request: `exactly` one kind of device, or the `first_available` of several."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Record, frozen=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Record, frozen=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Record, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Record, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Record, frozen=True):
    """One allocated device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: ResourceList | None = None


class DeviceAllocationConfiguration(Record, frozen=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Record, frozen=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Record, frozen=True):
    """The devices allocated to a claim, and the nodes that can use them (all, if no selector is set)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None


class ResourceClaimConsumerReference(Record, frozen=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Record, frozen=True):
    """A driver's report about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: Any = None


class ResourceClaimStatus(Record, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object, frozen=True):
    is_per_pod: ClassVar[bool] = True

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    def is_reserved_for(self, uid: str) -> bool:
        """Whether the consumer with this uid may use the claim."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for)


class ResourceClaimTemplateSpec(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True):
    """The template from which a controller creates a claim for every pod that names it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
