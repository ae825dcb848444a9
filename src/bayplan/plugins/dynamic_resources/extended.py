"""Extended resources that devices serve: the claim for the requests of a pod's containers.

A pod may request `example.com/gpu: 2` as if a device plugin offered it. On a node where none does, and where
a DeviceClass serves the resource, the request becomes a claim, which the scheduler creates when it binds the
pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from msgspec.structs import replace

from bayplan.plugin import BoolColumn, Cluster, Lookup, Node, NodeColumns, Pod, derived
from bayplan.plugin.devices import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    ContainerExtendedResourceRequest,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ExtendedResourceClaims,
    ExtendedResources,
    ResourceClaim,
    ResourceClaimSpec,
)
from bayplan.plugin.objects import NANO, ObjectMeta, OwnerReference, parse_quantity

IN_MEMORY_NAME: Final = "<extended-resources>"
"""The name of a claim that does not exist in the API server yet. No claim there can have it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The claim for a pod's extended resources on some nodes."""

    resources: tuple[str, ...]
    """Those that devices serve there."""
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


@dataclass(frozen=True, slots=True)
class ExtendedDemand:
    """What a pod requests of resources that DeviceClasses may serve."""

    claim: ResourceClaim
    """Left over from an earlier attempt, or in memory only."""
    amounts: Mapping[str, int]
    """By resource, never 0."""

    @property
    def is_left_over(self) -> bool:
        """Whether an earlier attempt created the claim. It has to be deleted first."""
        return bool(self.claim.spec.devices.requests)

    @property
    def is_in_memory(self) -> bool:
        return self.claim.name == IN_MEMORY_NAME


def extended_demand(cluster: Cluster, pod: Pod, amounts: Mapping[str, int]) -> ExtendedDemand | None:
    """None where no DeviceClass serves a resource that the pod requests."""
    classes = derived(cluster, ExtendedResources)
    if all(classes.class_for(name) is None for name in amounts):
        return None
    return ExtendedDemand(derived(cluster, ExtendedResourceClaims).of(pod) or _in_memory(pod), amounts)


def needed_resources(
    nodes: NodeColumns, amounts: Mapping[str, int]
) -> list[tuple[tuple[str, ...] | None, BoolColumn]]:
    """The resources that devices have to serve, in order, each list of them with the rows where it is so.

    Instead of a list there is None for the rows that can never serve one of the resources.
    """
    classes = derived(nodes.cluster, ExtendedResources)
    never: BoolColumn = np.zeros(len(nodes), dtype=np.bool_)
    needed: list[tuple[tuple[str, ...], BoolColumn]] = [((), ~never)]
    for name in sorted(amounts):
        missing = nodes.allocatable(name) == 0
        if classes.class_for(name) is None:
            never |= missing & ~_rows_listing(nodes, name)
        else:
            needed = [
                part
                for names, rows in needed
                for part in ((names, rows & ~missing), ((*names, name), rows & missing))
                if part[1].any()
            ]
    if not never.any():
        return [*needed]
    return [(None, never), *((names, rows & ~never) for names, rows in needed)]


def _rows_listing(nodes: NodeColumns, resource: str) -> BoolColumn:
    """The rows whose nodes list a resource in their allocatable resources, even with the amount 0."""
    table = nodes.cluster.nodes
    lists_it = Lookup(table.listed_resources, lambda names: resource in names)
    rows: BoolColumn = lists_it(nodes.of(table.listed_set)) != 0
    return rows


def variant(classes: ExtendedResources, pod: Pod, needed: tuple[str, ...]) -> Variant:
    """The requests for these resources.

    Containers that run together each have a request of their own. Plain init containers run before the
    others, so they use the devices of those, and share one more request for what is missing.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for name in needed:
        found = classes.class_for(name)
        if found is not None:
            made, mapped = _for_resource(pod, name, found.name)
            requests += made
            mappings += mapped
    requests.sort(key=lambda request: request.name)
    return Variant(needed, tuple(requests), tuple(mappings))


def claim_on(cluster: Cluster, pod: Pod, demand: ExtendedDemand, node: Node) -> ResourceClaim | None:
    """The claim that the scheduler would create on a node; None where it needs none, or none helps."""
    if demand.is_left_over:
        return None
    nodes = NodeColumns(cluster, np.array([cluster.nodes.row_of[node.name]], dtype=np.intp))
    ((needed, _),) = needed_resources(nodes, demand.amounts)
    if not needed:
        return None
    return claim_with(demand.claim, variant(derived(cluster, ExtendedResources), pod, needed).requests)


def claim_with(claim: ResourceClaim, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
    """The pod's claim for extended resources with these requests."""
    return replace(claim, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))


_in_memory_ids: Final = count()
"""Uids for claims that do not exist yet, never the same twice."""

_RequestsAndMappings = tuple[list[DeviceRequest], list[ContainerExtendedResourceRequest]]


def _for_resource(pod: Pod, resource: str, class_name: str) -> _RequestsAndMappings:
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    first_main = len(spec.init_containers)
    long_lived: dict[int, DeviceRequest] = {}
    long_mappings: list[ContainerExtendedResourceRequest] = []
    short_mappings: list[ContainerExtendedResourceRequest] = []
    short: list[DeviceRequest] = []

    def mapping(index: int, request: str) -> ContainerExtendedResourceRequest:
        return ContainerExtendedResourceRequest(
            container_name=containers[index].name, resource_name=resource, request_name=request
        )

    def request(index: int, count: int) -> DeviceRequest:
        place = sorted(containers[index].resources.requests).index(resource)
        exactly = ExactDeviceRequest(device_class_name=class_name, allocation_mode=EXACT_COUNT, count=count)
        return DeviceRequest(name=f"container-{index}-request-{place}", exactly=exactly)

    amounts = [_whole_amount(container.resources.requests, resource) for container in containers]
    is_short = [
        index < first_main and container.restart_policy != "Always"
        for index, container in enumerate(containers)
    ]
    for index, amount in enumerate(amounts):
        if amount and not is_short[index]:
            made = long_lived[index] = request(index, amount)
            long_mappings.append(mapping(index, made.name))
    for index, amount in enumerate(amounts):
        if not amount or not is_short[index]:
            continue
        missing = amount
        for usable in _from(long_lived, index):
            short_mappings.append(mapping(index, usable.name))
            missing -= _count(usable)
            if missing <= 0:
                break
        else:
            made = request(index, missing)
            short.append(made)
            short_mappings.append(mapping(index, made.name))
    requests = list(long_lived.values())
    if short:
        largest = max(short, key=_count)
        names = {one.name for one in short}
        short_mappings = [
            replace(one, request_name=largest.name) if one.request_name in names else one
            for one in short_mappings
        ]
        requests.insert(0, largest)
    return requests, long_mappings + short_mappings


def _from(requests: Mapping[int, DeviceRequest], index: int) -> Iterable[DeviceRequest]:
    """The requests of the containers from this one on."""
    return [request for at, request in requests.items() if at >= index]


def _count(request: DeviceRequest) -> int:
    assert request.exactly is not None
    return request.exactly.count


def _whole_amount(requests: Mapping[str, str | int | float], resource: str) -> int:
    """How many devices a container requests; 0 for an amount that is not whole, as upstream has it."""
    quantity = requests.get(resource)
    if quantity is None:
        return 0
    whole, rest = divmod(parse_quantity(quantity), NANO)
    return 0 if rest else whole


def _in_memory(pod: Pod) -> ResourceClaim:
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    return ResourceClaim(
        metadata=ObjectMeta(
            name=IN_MEMORY_NAME,
            namespace=pod.namespace,
            uid=f"extended-resources-{next(_in_memory_ids)}",
            generate_name=f"{pod.name}-extended-resources-",
            owner_references=(owner,),
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        )
    )
