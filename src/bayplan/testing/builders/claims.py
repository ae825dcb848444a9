"""Builders of volumes and devices, their classes, and claims for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
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
from bayplan.api.meta import (
    DEFAULT_NAMESPACE,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    ObjectReference,
    OwnerReference,
    Quantity,
)
from bayplan.api.pod import ResourceRequirements
from bayplan.api.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIPersistentVolumeSource,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    TopologySelectorTerm,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeAffinity,
    VolumeNodeResources,
)
from bayplan.testing.builders.pods import make_expression, make_node_term, object_meta, to_selector


def make_pvc(
    name: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    storage: Quantity = "1Gi",
    storage_class: str | None = None,
    access_modes: Sequence[str] = ("ReadWriteOnce",),
    volume: str = "",
    selected_node: str | None = None,
    selector: LabelSelector | None = None,
    volume_mode: str | None = "Filesystem",
    phase: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    deleted: datetime | None = None,
    owner: OwnerReference | None = None,
) -> PersistentVolumeClaim:
    """A claim; with `volume` it is fully bound to that volume, as the volume controller would leave it."""
    notes = dict(annotations or {})
    if volume:
        notes.setdefault("pv.kubernetes.io/bind-completed", "yes")
    if selected_node is not None:
        notes.setdefault("volume.kubernetes.io/selected-node", selected_node)
    return PersistentVolumeClaim(
        metadata=object_meta(
            "PersistentVolumeClaim",
            name,
            namespace,
            labels=labels,
            annotations=notes,
            deleted=deleted,
            owner=owner,
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=tuple(access_modes),
            selector=selector,
            resources=ResourceRequirements(requests={"storage": storage}),
            volume_name=volume,
            storage_class_name=storage_class,
            volume_mode=volume_mode,
        ),
        status=PersistentVolumeClaimStatus(phase=phase or ("Bound" if volume else "Pending")),
    )


def make_pv(
    name: str,
    *,
    capacity: Quantity = "10Gi",
    storage_class: str = "",
    access_modes: Sequence[str] = ("ReadWriteOnce",),
    claim: PersistentVolumeClaim | None = None,
    on_nodes_with: Mapping[str, Sequence[str]] | None = None,
    driver: str | None = None,
    volume_mode: str | None = "Filesystem",
    phase: str = "",
    labels: Mapping[str, str] | None = None,
    deleted: datetime | None = None,
) -> PersistentVolume:
    """A volume; with `claim` it is bound to it.

    `on_nodes_with` limits it to nodes whose labels have one of the values; `driver` makes it a CSI volume
    whose handle is its name.
    """
    affinity = None
    if on_nodes_with is not None:
        term = make_node_term(*(make_expression(key, "In", *v) for key, v in on_nodes_with.items()))
        affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
    reference = None
    if claim is not None:
        reference = ObjectReference(
            kind="PersistentVolumeClaim", namespace=claim.namespace, name=claim.name, uid=claim.uid
        )
    return PersistentVolume(
        metadata=object_meta("PersistentVolume", name, labels=labels, deleted=deleted),
        spec=PersistentVolumeSpec(
            capacity={"storage": capacity},
            access_modes=tuple(access_modes),
            claim_ref=reference,
            storage_class_name=storage_class,
            volume_mode=volume_mode,
            node_affinity=affinity,
            csi=None if driver is None else CSIPersistentVolumeSource(driver=driver, volume_handle=name),
        ),
        status=PersistentVolumeStatus(phase=phase or ("Available" if claim is None else "Bound")),
    )


def make_storage_class(
    name: str,
    *,
    provisioner: str = "example.com/provisioner",
    wait_for_consumer: bool = True,
    allowed: Iterable[Mapping[str, Sequence[str]]] = (),
) -> StorageClass:
    """A storage class; each mapping of `allowed` is one alternative of allowedTopologies."""
    return StorageClass(
        metadata=object_meta("StorageClass", name),
        provisioner=provisioner,
        volume_binding_mode="WaitForFirstConsumer" if wait_for_consumer else "Immediate",
        allowed_topologies=tuple(
            TopologySelectorTerm(
                match_label_expressions=tuple(
                    LabelSelectorRequirement(key=key, values=tuple(values)) for key, values in term.items()
                )
            )
            for term in allowed
        ),
    )


def make_csi_node(
    name: str,
    limits: Mapping[str, int | None] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
) -> CSINode:
    """The CSI drivers on a node, each with the number of volumes it can attach (None: no limit)."""
    drivers = tuple(
        CSINodeDriver(name=driver, node_id=name, allocatable=VolumeNodeResources(count=count))
        for driver, count in (limits or {}).items()
    )
    meta = object_meta("CSINode", name, annotations=annotations)
    return CSINode(metadata=meta, spec=CSINodeSpec(drivers=drivers))


def make_csi_driver(name: str, *, storage_capacity: bool | None = None) -> CSIDriver:
    return CSIDriver(
        metadata=object_meta("CSIDriver", name), spec=CSIDriverSpec(storage_capacity=storage_capacity)
    )


def make_csi_capacity(
    name: str,
    storage_class: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    capacity: Quantity | None = None,
    maximum_volume_size: Quantity | None = None,
    on_nodes_with: Mapping[str, str] | LabelSelector | None = None,
) -> CSIStorageCapacity:
    """Room for volumes of a class on nodes with these labels; without labels it is usable nowhere."""
    return CSIStorageCapacity(
        metadata=object_meta("CSIStorageCapacity", name, namespace),
        storage_class_name=storage_class,
        capacity=capacity,
        maximum_volume_size=maximum_volume_size,
        node_topology=to_selector(on_nodes_with),
    )


def make_volume_attachment(name: str, *, driver: str, node: str, volume: str) -> VolumeAttachment:
    """A volume that is attached to a node, whether or not a pod there uses it."""
    return VolumeAttachment(
        metadata=object_meta("VolumeAttachment", name),
        spec=VolumeAttachmentSpec(
            attacher=driver, node_name=node, source=VolumeAttachmentSource(persistent_volume_name=volume)
        ),
    )


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
