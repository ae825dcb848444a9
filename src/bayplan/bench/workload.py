"""A workload: templates of objects, how many of each are created, and their devices.

`workloads.py` has the list, `templates.py` the pods and nodes. Everything is generated from counters: two
runs of the same size create identical objects. Devices are those of scheduler_perf's DRA workloads (v1.36):
every node has the same number of equal devices of one driver, and every claim requests one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from msgspec.structs import replace

from bayplan.api import groups
from bayplan.api.devices import (
    EXACT_COUNT,
    POD_CLAIM_NAME_ANNOTATION,
    CELDeviceSelector,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from bayplan.api.meta import ObjectMeta, OwnerReference
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod, PodResourceClaimStatus, PodSchedulingGroup
from bayplan.api.workloads import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from bayplan.bench.queues import QueueSetup
from bayplan.bench.templates import HOSTNAME, NODE, ZONE
from bayplan.errors import NotFoundError
from bayplan.simulate.memory.store import MemoryStore

CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The creation time of every object: schedulers use the order of arrival, not this."""

BACKGROUND_EVERY: Final = 50
"""Measured pods for each background pod.

Upstream adds one every 200 ms. A ratio is repeatable, and the same for fast and slow schedulers; this is
upstream's ratio at 250 pods per second.
"""


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


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are created together: `templates` alternate, `namespaces` are filled one after the other."""

    templates: tuple[Pod, ...]
    namespaces: tuple[str, ...]

    def make(self, role: str, count: int, first: int = 0) -> Iterator[Pod]:
        """Yields `count` pods, numbered from `first`; role and number make name and uid unique."""
        for index in range(count):
            template = self.templates[index % len(self.templates)]
            meta = template.metadata
            number = first + index
            yield replace(
                template,
                metadata=replace(
                    meta,
                    name=f"{meta.generate_name}{role}{number:06d}",
                    namespace=self.namespaces[index * len(self.namespaces) // count],
                    uid=_uid(role, number),
                    resource_version="1",
                    creation_timestamp=CREATED,
                ),
            )


@dataclass(frozen=True, slots=True)
class Groups:
    """PodGroups of Kubernetes: consecutive pods of a role are the members of one."""

    size: int
    """The number of members of each group."""
    is_gang: bool = True
    topology_key: str = ""
    init_size: int = 0
    """The size of the gangs of initial pods, which are evicted together; 0: these are single pods."""

    @property
    def gates(self) -> frozenset[str]:
        """The feature gates that they need."""
        topology = {"TopologyAwareWorkloadScheduling"} if self.topology_key else set()
        return frozenset({"GenericWorkload"} | topology)

    def make(self, role: str, pods: Sequence[Pod]) -> Iterator[groups.PodGroup]:
        """Yields the groups of these pods."""
        size = self.init_size if role == "i" else self.size
        for number, first in enumerate(pods[::size] if size else ()):
            members = min(size, len(pods) - number * size)
            gang = groups.GangSchedulingPolicy(members) if self.is_gang or role == "i" else None
            basic = groups.BasicSchedulingPolicy() if gang is None else None
            key = groups.TopologyConstraint(self.topology_key)
            meta = _meta(_pod_group(role, number), "h" if role == "i" else "g", number, {})
            yield groups.PodGroup(
                metadata=replace(meta, namespace=first.namespace),
                spec=groups.PodGroupSpec(
                    scheduling_policy=groups.PodGroupSchedulingPolicy(basic, gang),
                    scheduling_constraints=groups.SchedulingConstraints((key,)) if key.key else None,
                    disruption_mode=groups.DisruptionMode(all=groups.Mode()) if role == "i" else None,
                    priority=first.priority,
                ),
            )

    def grouped(self, role: str, pods: Iterator[Pod]) -> Iterator[Pod]:
        """These pods, as members of the groups."""
        size = self.init_size if role == "i" else self.size
        for number, pod in enumerate(pods):
            if size:
                named = PodSchedulingGroup(pod_group_name=_pod_group(role, number // size))
                yield replace(pod, spec=replace(pod.spec, scheduling_group=named))
            else:
                yield pod


def _pod_group(role: str, number: int) -> str:
    return f"podgroup-{role}-{number:04d}"


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark: its objects, and its default sizes."""

    name: str
    summary: str
    nodes: int
    init_pods: int
    """Pods that exist when measuring starts, all sets of `init` together."""
    pods: int
    init: tuple[PodSet, ...]
    measured: PodSet
    background: PodSet | None = None
    """Pods that are created in between and not counted: `BACKGROUND_EVERY`."""
    zones: tuple[str, ...] = ()
    """Values of the zone label, assigned to the nodes in turn; empty: nodes have no zone."""
    namespace_labels: tuple[tuple[str, str], ...] = ()
    group_size: int = 0
    """Measured pods are created in gangs of this size; 0: no gangs."""
    devices: DeviceSetup | None = None
    """The devices of the nodes, and how the pods request them."""
    groups: Groups | None = None
    """The PodGroups of the pods; None: these are single pods."""
    queues: QueueSetup | None = None
    """The capacity queues of the pods; None: pods name none."""

    @property
    def needs_scheduler(self) -> bool:
        """Whether deciding alone is not enough: pods wait for each other, claims are written, or queues order
        the pods."""
        setups = (self.devices, self.groups, self.queues)
        return bool(self.group_size) or any(setup is not None for setup in setups)

    def make_nodes(self, count: int) -> Iterator[Node]:
        """Yields nodes, each with its own host name, as a kubelet would register them."""
        for number in range(count):
            name = f"scheduler-perf-{number:05d}"
            labels = {HOSTNAME: name}
            if self.zones:
                labels[ZONE] = self.zones[number % len(self.zones)]
            yield replace(NODE, metadata=_meta(name, "n", number, labels))

    def make_namespaces(self) -> Iterator[Namespace]:
        """Yields every namespace of the workload's pods, whatever the number of pods."""
        sets = (*self.init, *([self.background] if self.background else []), self.measured)
        names = dict.fromkeys(name for pods in sets for name in pods.namespaces)
        for number, name in enumerate(names):
            labels = {"kubernetes.io/metadata.name": name, **dict(self.namespace_labels)}
            yield Namespace(metadata=_meta(name, "s", number, labels))

    def make_init_pods(self, count: int) -> Iterator[Pod]:
        """Yields the initial pods, set after set, in equal parts."""
        first = 0
        for index, pods in enumerate(self.init):
            share = count * (index + 1) // len(self.init) - first
            made = self._claiming("i", pods.make("i", share, first))
            if self.queues is not None:
                made = self.queues.queued("i", made)
            yield from made if self.groups is None else self.groups.grouped("i", made)
            first += share

    def make_groups(self, count: int) -> Iterator[PodGroup]:
        """Yields the groups of this number of measured pods."""
        if not self.group_size:
            return
        for number in range(-(-count // self.group_size)):
            meta = replace(_meta(_group(number), "g", number, {}), namespace=self.measured.namespaces[0])
            members = min(self.group_size, count - number * self.group_size)
            yield PodGroup(metadata=meta, spec=PodGroupSpec(min_member=members))

    def _grouped(self, pods: Iterator[Pod]) -> Iterator[Pod]:
        if not self.group_size:
            yield from pods
            return
        for number, pod in enumerate(pods):
            labels = {**pod.labels, POD_GROUP_LABEL: _group(number // self.group_size)}
            yield replace(pod, metadata=replace(pod.metadata, labels=labels))

    def _claiming(self, role: str, pods: Iterator[Pod]) -> Iterator[Pod]:
        if self.devices is None or self.devices.claims is not Claims.SHARED:
            yield from pods
            return
        for number, pod in enumerate(pods):
            (entry,) = pod.spec.resource_claims
            name = f"{entry.resource_claim_name}-{role}{number // PODS_A_CLAIM:06d}"
            claims = (replace(entry, resource_claim_name=name),)
            yield replace(pod, spec=replace(pod.spec, resource_claims=claims))

    def make_pods(self, count: int) -> Iterator[Pod]:
        """Yields `count` measured pods in order of arrival, with the background pods between them."""
        arrivals = self._grouped(self._claiming("m", self.measured.make("m", count)))
        if self.groups is not None:
            arrivals = self.groups.grouped("m", arrivals)
        if self.queues is not None:
            arrivals = self.queues.queued("m", arrivals)
        if self.background is None:
            yield from arrivals
            return
        intruders = self.background.make("b", -(-count // BACKGROUND_EVERY))
        for number, pod in enumerate(arrivals):
            if number % BACKGROUND_EVERY == 0:
                yield next(intruders)
            yield pod


def _meta(name: str, role: str, number: int, labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        uid=_uid(role, number),
        resource_version="1",
        labels=labels,
        creation_timestamp=CREATED,
    )


def _group(number: int) -> str:
    return f"group-{number:04d}"


def _uid(role: str, number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{ord(role):012x}"


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
