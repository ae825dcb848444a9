"""Devices that drivers offer, and claims for them: the API group resource.k8s.io (dynamic resource
allocation).

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import field

from bayplan.api.meta import (
    Condition,
    Int64,
    NodeSelector,
    Object,
    ObjectMeta,
    Quantity,
    Record,
    ResourceList,
    Time,
)
from bayplan.api.pod import Pod

POD_GROUP_CONSUMER: Final = ("scheduling.k8s.io", "podgroups")
"""The API group and resource of PodGroups for which claims are reserved."""


class DeviceAttribute(Record, frozen=True):
    """A value of an attribute: exactly one of the fields is set."""

    int_value: Int64 | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")


class CapacityRequestPolicyRange(Record, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Record, frozen=True):
    """Which amounts of a capacity may be consumed, and the default of a request without an amount."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Record, frozen=True):
    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Record, frozen=True):
    value: Quantity = 0


class CounterSet(Record, frozen=True):
    """Counters that devices of a pool share, for example the memory slices of one GPU."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Record, frozen=True):
    """What an allocated device consumes of one counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()
    """Of an alpha feature: never stored by an API server with default feature gates."""


class DeviceTaint(Record, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class Device(Record, frozen=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Record, frozen=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Record, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object, frozen=True):
    """A part of a pool of devices, published by a driver."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Record, frozen=True):
    """Devices of a driver, a pool, or one device; what is not given does not matter."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Object, frozen=True):
    """Adds a taint to all devices that its selector chooses."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class CELDeviceSelector(Record, frozen=True):
    expression: str = ""


class DeviceSelector(Record, frozen=True):
    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(Record, frozen=True):
    """Opaque parameters for a driver."""

    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(Record, frozen=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Record, frozen=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True):
    """A kind of device that claims name, with selectors and configuration for all of them."""

    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(Record, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Record, frozen=True):
    requests: ResourceList = {}


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

    def is_reserved_for_pod(self, pod: Pod) -> bool:
        """Whether it is reserved for the pod or for its group, of which pods do not know the uid."""
        if self.is_reserved_for(pod.metadata.uid):
            return True
        named = pod.spec.scheduling_group
        return named is not None and any(
            (consumer.api_group, consumer.resource) == POD_GROUP_CONSUMER
            and consumer.name == named.pod_group_name
            for consumer in self.status.reserved_for
        )

    def is_owned_by_group_of(self, pod: Pod) -> bool:
        """Whether it was created for the PodGroup that the pod names."""
        owner, named = self.metadata.controller(), pod.spec.scheduling_group
        return (
            owner is not None
            and named is not None
            and (owner.kind, owner.name) == ("PodGroup", named.pod_group_name)
            and owner.api_version.startswith(f"{POD_GROUP_CONSUMER[0]}/")
        )


class ResourceClaimTemplateSpec(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True):
    """The template from which a controller creates a claim for every pod that names it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
