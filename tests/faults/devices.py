"""Devices in a fault run: drivers that publish them, users that claim them, and the controller of claims.

Some seeds have devices (`has_devices`). The random numbers for them come from a generator of their own, so
seeds without devices are the same as before there were any.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from bayplan.api.devices import (
    EXACT_COUNT,
    Device,
    DeviceAttribute,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Container, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from bayplan.errors import APIError
from bayplan.simulate.memory.store import MemoryStore

DRIVER: Final = "gpu.example.com"
CLASS: Final = "gpu"
NAMESPACE: Final = "default"
SCHEDULER: Final = "default-scheduler"
EVERY: Final = 3
"""One of so many seeds has devices."""
MAX_CLAIMS: Final = 20


def has_devices(seed: int) -> bool:
    return seed % EVERY == 0


class DeviceWorld:
    """Drivers, users and the claim controller; each method is one action."""

    def __init__(self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None]) -> None:
        self._store = store
        self._rng = rng
        self._trace = trace
        self._claims = 0
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (40, self.claim_devices),
            (12, self.share_claim),
            (12, self.publish),
            (15, self.tidy_claims),
        ]

    def begin(self) -> None:
        self._store.create(DeviceClass(metadata=ObjectMeta(name=CLASS)))
        for _ in range(4):
            self.publish()

    def publish(self) -> None:
        """A driver publishes the devices of a node, for the first time or once more."""
        nodes = self._store.list(Node)
        if not nodes:
            return
        node = self._rng.choice(nodes)
        known = {item.name: item for item in self._store.list(ResourceSlice)}.get(node.name)
        count = max(self._rng.randint(1, 4), 0 if known is None else len(known.spec.devices))
        generation = 1 if known is None else known.spec.pool.generation + 1
        devices = tuple(
            Device(name=f"gpu-{i}", attributes={"index": DeviceAttribute(int_value=i)}) for i in range(count)
        )
        pool = ResourcePool(name=node.name, generation=generation, resource_slice_count=1)
        spec = ResourceSliceSpec(driver=DRIVER, pool=pool, node_name=node.name, devices=devices)
        self._trace(f"node {node.name} has {count} devices")
        if known is None:
            self._store.create(ResourceSlice(metadata=ObjectMeta(name=node.name), spec=spec))
        else:
            self._store.update(replace(known, spec=spec))

    def claim_devices(self) -> None:
        """A user creates a claim and a pod for it."""
        if len(self._store.list(ResourceClaim)) >= MAX_CLAIMS:
            return
        self._claims += 1
        name, count = f"c{self._claims}", self._rng.choice((1, 1, 2))
        exactly = ExactDeviceRequest(device_class_name=CLASS, allocation_mode=EXACT_COUNT, count=count)
        request = DeviceRequest(name="gpu", exactly=exactly)
        self._trace(f"claim {name} comes: {count} devices")
        self._store.create(
            ResourceClaim(
                metadata=ObjectMeta(name=name, namespace=NAMESPACE),
                spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
            )
        )
        self._create_pod(name)

    def share_claim(self) -> None:
        """One more pod for a claim."""
        claims = self._store.list(ResourceClaim)
        if claims:
            self._create_pod(self._rng.choice(claims).name)

    def _create_pod(self, claim: str) -> None:
        self._claims += 1
        name = f"d{self._claims}"
        resources = ResourceRequirements(requests={"cpu": "100m"})
        spec = PodSpec(
            scheduler_name=SCHEDULER,
            containers=(Container(name="main", resources=resources),),
            resource_claims=(PodResourceClaim(name="gpu", resource_claim_name=claim),),
            priority=self._rng.choice((0, 0, 10)),
            termination_grace_period_seconds=3,
        )
        self._trace(f"pod {name} comes: with claim {claim}")
        self._store.create(Pod(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec))

    def tidy_claims(self) -> None:
        """The claim controller: ends reservations of pods that are gone, frees and deletes claims."""
        for claim in self._store.list(ResourceClaim):
            with suppress(APIError):
                self._tidy(claim)

    def _tidy(self, claim: ResourceClaim) -> None:
        users = {pod.uid: pod for pod in users_of(self._store, claim)}
        status = claim.status
        kept = tuple(consumer for consumer in status.reserved_for if consumer.uid in users)
        if kept != status.reserved_for:
            allocation = status.allocation if kept else None
            status = replace(status, reserved_for=kept, allocation=allocation, devices=())
        if status.allocation is not None:
            # Pods that got a node although the scheduler did not reserve the claim, or no longer.
            missed = tuple(
                ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
                for pod in users.values()
                if pod.spec.node_name and not pod.is_terminating and not claim.is_reserved_for(pod.uid)
            )
            status = replace(status, reserved_for=(*status.reserved_for, *missed))
        if status != claim.status:
            claim = self._store.update_claim_status(replace(claim, status=status))
        if users or kept:
            return
        self._trace(f"claim {claim.name} goes")
        if claim.metadata.finalizers:
            claim = self._store.update(replace(claim, metadata=replace(claim.metadata, finalizers=())))
        self._store.delete(ResourceClaim, claim.name, claim.namespace)


def users_of(store: MemoryStore, claim: ResourceClaim) -> list[Pod]:
    """The pods that name a claim and are not finished."""
    return [
        pod
        for pod in store.list(Pod)
        if not pod.is_finished
        and any(one.resource_claim_name == claim.name for one in pod.spec.resource_claims)
    ]


def devices_given_twice(store: MemoryStore, excused: set[str]) -> Iterator[str]:
    """Devices that two claims hold; claims whose allocation a dead scheduler wrote late are excused."""
    holders: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for claim in store.list(ResourceClaim):
        if claim.status.allocation is not None and claim.uid not in excused:
            for result in claim.status.allocation.devices.results:
                holders[result.pool, result.device].append(claim.name)
    for (pool, device), names in holders.items():
        if len(names) > 1:
            yield f"device {pool}/{device} is given to {' and '.join(names)}"


def claim_problems(store: MemoryStore, bound: Collection[str]) -> Iterator[str]:
    """Claims that are allocated or reserved although no pod uses them, or that a pod lacks which we bound.

    A binding that takes effect after it was reported as failed is not ours: its claim had been given back.
    """
    for claim in store.list(ResourceClaim):
        users = {pod.uid: pod for pod in users_of(store, claim)}
        if claim.status.allocation is not None and not users:
            yield f"claim {claim.name} is allocated, but no pod uses it"
        for consumer in claim.status.reserved_for:
            if consumer.uid not in users:
                yield f"claim {claim.name} is reserved for {consumer.name}, which is gone"
        for pod in users.values():
            if pod.uid in bound and not pod.is_terminating and not claim.is_reserved_for(pod.uid):
                yield f"pod {pod.name} was bound without its claim {claim.name}"
