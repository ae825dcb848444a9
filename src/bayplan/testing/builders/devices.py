"""Devices, their classes, and claims for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.api.devices import (
    EXACT_COUNT,
    AllocationResult,
    CapacityRequirements,
    CELDeviceSelector,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from bayplan.api.meta import DEFAULT_NAMESPACE, NodeSelector, OwnerReference, Quantity
from bayplan.testing.builders.metadata import object_meta


def make_device(
    name: str,
    attributes: Mapping[str, int | bool | str] | None = None,
    capacity: Mapping[str, Quantity | DeviceCapacity] | None = None,
    **fields: Any,
) -> Device:
    """A device; `fields` are any others of `Device`."""
    return Device(
        name=name,
        attributes={key: make_device_attribute(value) for key, value in (attributes or {}).items()},
        capacity={
            key: amount if isinstance(amount, DeviceCapacity) else DeviceCapacity(value=amount)
            for key, amount in (capacity or {}).items()
        },
        **fields,
    )


def make_device_attribute(value: int | bool | str) -> DeviceAttribute:
    """The attribute that holds the value; text is a string, never a version."""
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    return DeviceAttribute(string_value=value)


def make_resource_slice(
    name: str,
    *devices: Device,
    driver: str = "gpu.example.com",
    pool: str = "",
    node: str = "",
    node_selector: NodeSelector | None = None,
    all_nodes: bool = False,
    per_device: bool = False,
    generation: int = 1,
    slices: int = 1,
    counters: Iterable[CounterSet] = (),
) -> ResourceSlice:
    """A slice of the pool that is named after its node, or `pool`."""
    return ResourceSlice(
        metadata=object_meta("ResourceSlice", name),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool or node, generation=generation, resource_slice_count=slices),
            node_name=node,
            node_selector=node_selector,
            all_nodes=all_nodes,
            per_device_node_selection=per_device,
            devices=devices,
            shared_counters=tuple(counters),
        ),
    )


def make_device_class(name: str, *selectors: str, extended_resource: str | None = None) -> DeviceClass:
    """A class with these CEL selectors."""
    return DeviceClass(
        metadata=object_meta("DeviceClass", name),
        spec=DeviceClassSpec(selectors=_selectors(selectors), extended_resource_name=extended_resource),
    )


def make_device_request(
    name: str = "gpu",
    device_class: str = "gpu",
    *selectors: str,
    count: int = 1,
    mode: str = EXACT_COUNT,
    admin_access: bool | None = None,
    tolerations: Iterable[DeviceToleration] = (),
    capacity: Mapping[str, Quantity] | None = None,
) -> DeviceRequest:
    """A request for exactly these devices."""
    return DeviceRequest(
        name=name,
        exactly=ExactDeviceRequest(
            device_class_name=device_class,
            selectors=_selectors(selectors),
            allocation_mode=mode,
            count=count if mode == EXACT_COUNT else 0,
            admin_access=admin_access,
            tolerations=tuple(tolerations),
            capacity=None if capacity is None else CapacityRequirements(requests=dict(capacity)),
        ),
    )


def make_first_available(name: str, *requests: DeviceRequest) -> DeviceRequest:
    """A request for the first of these that can be met; each has `exactly`."""
    return DeviceRequest(name=name, first_available=tuple(map(_sub_request, requests)))


def make_resource_claim(
    name: str,
    *requests: DeviceRequest,
    namespace: str = DEFAULT_NAMESPACE,
    constraints: Iterable[DeviceConstraint] = (),
    allocated: Iterable[DeviceRequestAllocationResult] = (),
    node_selector: NodeSelector | None = None,
    reserved_for: Iterable[str] = (),
    owner: OwnerReference | None = None,
) -> ResourceClaim:
    """A claim; allocated where devices are given, and reserved for the pods with these uids."""
    results = tuple(allocated)
    allocation = None
    if results:
        devices = DeviceAllocationResult(results=results)
        allocation = AllocationResult(devices=devices, node_selector=node_selector)
    reserved = tuple(
        ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in reserved_for
    )
    return ResourceClaim(
        metadata=object_meta("ResourceClaim", name, namespace, owner=owner),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=tuple(constraints))),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=reserved),
    )


def make_allocated_device(
    device: str, pool: str, *, driver: str = "gpu.example.com", request: str = "gpu", **fields: Any
) -> DeviceRequestAllocationResult:
    """One entry of an allocation."""
    return DeviceRequestAllocationResult(request=request, driver=driver, pool=pool, device=device, **fields)


def _selectors(expressions: Iterable[str]) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=one)) for one in expressions)


def _sub_request(request: DeviceRequest) -> DeviceSubRequest:
    exactly = request.exactly
    if exactly is None:
        raise ValueError(f"request {request.name}: an alternative cannot have alternatives")
    return DeviceSubRequest(
        name=request.name,
        device_class_name=exactly.device_class_name,
        selectors=exactly.selectors,
        allocation_mode=exactly.allocation_mode,
        count=exactly.count,
        tolerations=exactly.tolerations,
        capacity=exactly.capacity,
    )
