"""Devices that drivers offer: ResourceSlice, DeviceTaintRule and DeviceClass (dynamic resource allocation).

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from bayplan.api.meta import Int64, NodeSelector, Object, Quantity, Record, ResourceList, Time


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
