"""Devices of the benchmarks: what a driver publishes, and the claims of pods.

Classes, requests and numbers are those of scheduler_perf's DRA workloads (v1.36): every node has the same
number of equal devices of one driver, and every claim requests one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from msgspec.structs import replace

from bayplan.api.devices import (
    CELDeviceSelector,
    Device,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from bayplan.api.meta import ObjectMeta, OwnerReference
from bayplan.api.pod import Pod, PodResourceClaimStatus
from bayplan.api.resource_claims import (
    EXACT_COUNT,
    POD_CLAIM_NAME_ANNOTATION,
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from bayplan.errors import NotFoundError
from bayplan.simulate.memory.store import MemoryStore

DRIVER: Final = "test-driver.cdi.k8s.io"
CLASS: Final = "test-class"
EMPTY_CLASS: Final = "no-devices-class"
PODS_A_CLAIM: Final = 5
"""Pods that share a claim, where they do."""


class Claims(Enum):
    """How pods request devices."""

    TEMPLATE = "a claim for each pod, from a template"
    ALTERNATIVES = "the same with a first alternative that nothing offers"
    SHARED = "claims that five pods share"
    EXTENDED = "extended resources"


@dataclass(frozen=True, slots=True)
class DeviceSetup:
    """The devices of a workload."""

    per_node: int
    claims: Claims = Claims.TEMPLATE
    classes: int = 1
    """With extended resources: number of device classes, each with its own resource; pods alternate."""
    batch: int = 0
    """Measured pods are created in batches of this size and deleted once they are bound; 0: all are created
    at once and stay."""

    def make_classes(self) -> Iterator[DeviceClass]:
        if self.claims is Claims.EXTENDED:
            for number in range(self.classes):
                yield _class(f"{CLASS}-{number}", DRIVER, f"example.com/gpu-{number}")
            return
        yield _class(CLASS, DRIVER)
        if self.claims is Claims.ALTERNATIVES:
            yield _class(EMPTY_CLASS, "no-such-driver.cdi.k8s.io")

    def make_slice(self, node: str) -> ResourceSlice:
        """What the driver publishes for a node."""
        devices = tuple(Device(name=f"instance-{number:02d}") for number in range(self.per_node))
        return ResourceSlice(
            metadata=ObjectMeta(name=f"00000-{DRIVER}-{node}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
                node_name=node,
                devices=devices,
            ),
        )

    def claim_spec(self) -> ResourceClaimSpec:
        if self.claims is Claims.ALTERNATIVES:
            request = DeviceRequest(
                name="req-0",
                first_available=tuple(
                    DeviceSubRequest(
                        name=f"sub-{number}",
                        device_class_name=name,
                        allocation_mode=EXACT_COUNT,
                        count=1,
                    )
                    for number, name in enumerate((EMPTY_CLASS, CLASS))
                ),
            )
        else:
            exactly = ExactDeviceRequest(device_class_name=CLASS, allocation_mode=EXACT_COUNT, count=1)
            request = DeviceRequest(name="req-0", exactly=exactly)
        return ResourceClaimSpec(devices=DeviceClaim(requests=(request,)))

    def owned_claims(self, pod: Pod) -> list[ResourceClaim]:
        """The claims that the claim controller creates from templates for a pod, once the pod has its uid."""
        owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
        return [
            ResourceClaim(
                metadata=ObjectMeta(
                    name=f"{pod.name}-{entry.name}",
                    namespace=pod.namespace,
                    annotations={POD_CLAIM_NAME_ANNOTATION: entry.name},
                    owner_references=(owner,),
                ),
                spec=self.claim_spec(),
            )
            for entry in pod.spec.resource_claims
            if entry.resource_claim_template_name is not None
        ]


def with_claims(pod: Pod, claims: Sequence[ResourceClaim]) -> Pod:
    """The pod with a status that names the claims that were created for it."""
    statuses = tuple(
        PodResourceClaimStatus(
            name=claim.annotations[POD_CLAIM_NAME_ANNOTATION], resource_claim_name=claim.name
        )
        for claim in claims
    )
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


class ClaimController:
    """Creates, releases and deletes claims, as the controller of a cluster does."""

    def __init__(self, store: MemoryStore, setup: DeviceSetup) -> None:
        self._store = store
        self._setup = setup

    def create_shared(self, pods: Iterable[Pod]) -> None:
        """Creates the claims that pods name which do not exist yet."""
        if self._setup.claims is Claims.SHARED:
            for pod in pods:
                for entry in pod.spec.resource_claims:
                    assert entry.resource_claim_name is not None
                    self._create_shared(entry.resource_claim_name, pod.namespace)

    def create_owned(self, pods: Iterable[Pod]) -> None:
        """Creates the claims of pods that were created, from their templates."""
        store = self._store
        for pod in pods:
            claims = self._setup.owned_claims(pod)
            for claim in claims:
                store.create(claim)
            if claims:
                store.update(with_claims(pod, claims))

    def _create_shared(self, name: str, namespace: str) -> None:
        try:
            self._store.get(ResourceClaim, name, namespace)
        except NotFoundError:
            meta = ObjectMeta(name=name, namespace=namespace)
            self._store.create(ResourceClaim(metadata=meta, spec=self._setup.claim_spec()))

    def delete(self, pod: Pod) -> None:
        """Deletes a pod and the claims that were created for it."""
        store = self._store
        stored = store.get(Pod, pod.name, pod.namespace)
        store.delete(Pod, pod.name, pod.namespace)
        names = [status.resource_claim_name for status in stored.status.resource_claim_statuses]
        if stored.status.extended_resource_claim_status is not None:
            names.append(stored.status.extended_resource_claim_status.resource_claim_name)
        for name in filter(None, names):
            claim = store.get(ResourceClaim, name, pod.namespace)
            claim = store.update_claim_status(replace(claim, status=ResourceClaimStatus()))
            store.update(replace(claim, metadata=replace(claim.metadata, finalizers=())))
            store.delete(ResourceClaim, name, pod.namespace)


def _class(name: str, driver: str, extended_resource: str | None = None) -> DeviceClass:
    selector = DeviceSelector(cel=CELDeviceSelector(expression=f'device.driver == "{driver}"'))
    return DeviceClass(
        metadata=ObjectMeta(name=name),
        spec=DeviceClassSpec(selectors=(selector,), extended_resource_name=extended_resource),
    )
