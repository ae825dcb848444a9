"""The defaults that an API server sets before the scheduler sees an object, for objects from files.

There are two kinds of additions. *Defaults* set missing fields; the server sets them whenever it reads an
object, so all objects get them here, and an object that has them is not changed. *Admission* (priorities,
tolerations, names) happens once, when an object is created, and may depend on other objects: it is only for
objects that have never been in a server.

An object with a uid or a resourceVersion has been admitted before (it was read from a server) and is not
changed: a pod's priority, for example, is set at its creation, and later changes of the class do not affect
it. Admission does:

| plugin or step | what it does here |
|---|---|
| names and uids | `generateName` becomes a name; uids are derived from kind and key, so runs repeat |
| Priority | priority and preemption policy from the pod's class, or from the default class |
| DefaultTolerationSeconds | pods stay 300 s on a node that is not ready or unreachable |
| DefaultStorageClass | claims without a class get the default one |
| pod creation | phase Pending; (mis)matchLabelKeys become part of their selectors |

Fields are set only where the server sets them: a missing `tolerations[].operator` or `nodeTaintsPolicy` stays
missing there too, and the scheduler handles it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from bayplan.api.check import object_key
from bayplan.api.devices import (
    EXACT_COUNT,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from bayplan.api.kinds import KINDS
from bayplan.api.meta import (
    DEFAULT_NAMESPACE,
    LabelSelector,
    LabelSelectorRequirement,
    Object,
    Quantity,
    Record,
    ResourceList,
)
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import (
    EXISTS,
    NO_EXECUTE,
    Affinity,
    Container,
    ContainerPort,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    Toleration,
    Volume,
)
from bayplan.api.quantity import CPU, HUGEPAGES_PREFIX, MEMORY, MILLI, milli_units, parse_quantity
from bayplan.api.requests import container_limits, container_requests
from bayplan.api.storage import (
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from bayplan.api.workloads import PriorityClass
from bayplan.errors import InputError

CLUSTER_SCOPED: Final = frozenset(kind.record for kind in KINDS if not kind.namespaced)
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has."""
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"

TOLERATED_SECONDS: Final = 300
_ABSENCES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_BETA_DEFAULT_CLASS: Final = "storageclass.beta.kubernetes.io/is-default-class"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"

_UIDS: Final = uuid.UUID("6a1f7c1e-3d55-5f0e-9c43-b1a9e0d0c0de")
_NO_PRIORITY_CLASS: Final = "no PriorityClass with name {name} was found"


class Admission:
    """Admits objects one after the other, with the classes that are among them."""

    def __init__(self, objects: Iterable[Object]) -> None:
        objects = tuple(objects)
        self._priority_classes = {pc.name: pc for pc in objects if isinstance(pc, PriorityClass)}
        defaults = [pc for pc in self._priority_classes.values() if pc.global_default]
        self._default_priority_class = min(defaults, key=lambda pc: pc.value, default=None)
        self._default_storage_class = _default_storage_class(objects)
        self._taken = {(type(obj), _namespace_of(obj), obj.name) for obj in objects}

    def admit(self, obj: Object) -> Object:
        """The object after its creation.

        Raises:
            InputError: a pod refers to a priority class that does not exist.
        """
        is_new = not obj.uid and not obj.metadata.resource_version
        obj = self._identified(obj)
        if is_new and isinstance(obj, Pod):
            return self._admit_pod(obj)
        if is_new and isinstance(obj, PersistentVolumeClaim):
            return self._admit_claim(obj)
        return obj

    def _identified(self, obj: Object) -> Object:
        meta = obj.metadata
        namespace, name, uid = _namespace_of(obj), meta.name, meta.uid
        if not name and meta.generate_name:
            name = self._generated(type(obj), namespace, meta.generate_name)
        if not uid:
            uid = str(uuid.uuid5(_UIDS, f"{type(obj).__name__}/{namespace}/{name}"))
        if (namespace, name, uid) == (meta.namespace, meta.name, meta.uid):
            return obj
        return replace(obj, metadata=replace(meta, namespace=namespace, name=name, uid=uid))

    def _generated(self, kind: type[Object], namespace: str, prefix: str) -> str:
        number = 1
        while (kind, namespace, f"{prefix}{number:05}") in self._taken:
            number += 1
        name = f"{prefix}{number:05}"
        self._taken.add((kind, namespace, name))
        return name

    def _admit_pod(self, pod: Pod) -> Pod:
        spec = self._prioritized(pod)
        spec = replace(
            spec,
            tolerations=_with_absences(spec.tolerations),
            affinity=None if spec.affinity is None else _merged_affinity(spec.affinity, pod.labels),
            topology_spread_constraints=tuple(
                replace(
                    constraint,
                    label_selector=_merged(
                        constraint.label_selector, pod.labels, match=constraint.match_label_keys
                    ),
                )
                for constraint in spec.topology_spread_constraints
            ),
        )
        status = pod.status if pod.status.phase else replace(pod.status, phase="Pending")
        return replace(pod, spec=spec, status=status)

    def _prioritized(self, pod: Pod) -> PodSpec:
        """A priority in the file is used as it is; a server would require a class."""
        spec = pod.spec
        found: PriorityClass | None = None
        name, priority = spec.priority_class_name, 0
        if spec.priority is not None:
            priority = spec.priority
            found = self._priority_classes.get(name)
        elif not name:
            found = self._default_priority_class
            if found is not None:
                name, priority = found.name, found.value
        elif name in SYSTEM_PRIORITIES:
            priority = SYSTEM_PRIORITIES[name]
        else:
            found = self._priority_classes.get(name)
            if found is None:
                raise InputError(
                    _NO_PRIORITY_CLASS.format(name=name),
                    object_key=object_key(pod),
                    field="spec.priorityClassName",
                )
            priority = found.value
        policy = spec.preemption_policy
        if policy is None:
            policy = found.preemption_policy if found is not None else None
        return replace(
            spec,
            priority=priority,
            priority_class_name=name,
            preemption_policy=policy or PREEMPT_LOWER_PRIORITY,
        )

    def _admit_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        has_class = claim.spec.storage_class_name is not None or _BETA_CLASS in claim.annotations
        if has_class or self._default_storage_class is None:
            return claim
        return replace(claim, spec=replace(claim.spec, storage_class_name=self._default_storage_class))


def _namespace_of(obj: Object) -> str:
    return "" if type(obj) in CLUSTER_SCOPED else obj.namespace or DEFAULT_NAMESPACE


def _default_storage_class(objects: Iterable[Object]) -> str | None:
    """The class marked as default; among several the newest, then the first by name."""
    marked = [
        obj
        for obj in objects
        if isinstance(obj, StorageClass)
        and "true" in (obj.annotations.get(_DEFAULT_CLASS), obj.annotations.get(_BETA_DEFAULT_CLASS))
    ]
    marked.sort(key=lambda obj: obj.name)
    marked.sort(key=_age, reverse=True)
    return marked[0].name if marked else None


def _age(obj: Object) -> float:
    created = obj.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def _with_absences(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    added = tuple(
        Toleration(key=key, operator=EXISTS, effect=NO_EXECUTE, toleration_seconds=TOLERATED_SECONDS)
        for key in _ABSENCES
        if not any(t.key in ("", key) and t.effect in ("", NO_EXECUTE) for t in tolerations)
    )
    return (*tolerations, *added)


def _merged_affinity(affinity: Affinity, labels: dict[str, str]) -> Affinity:
    return replace(
        affinity,
        pod_affinity=_merged_pod_affinity(affinity.pod_affinity, labels),
        pod_anti_affinity=_merged_pod_affinity(affinity.pod_anti_affinity, labels),
    )


def _merged_pod_affinity(affinity: PodAffinity | None, labels: dict[str, str]) -> PodAffinity | None:
    if affinity is None:
        return None
    return replace(
        affinity,
        required=tuple(_merged_term(term, labels) for term in affinity.required),
        preferred=tuple(
            replace(weighted, pod_affinity_term=_merged_term(weighted.pod_affinity_term, labels))
            for weighted in affinity.preferred
        ),
    )


def _merged_term(term: PodAffinityTerm, labels: dict[str, str]) -> PodAffinityTerm:
    selector = _merged(
        term.label_selector, labels, match=term.match_label_keys, mismatch=term.mismatch_label_keys
    )
    return replace(term, label_selector=selector)


def _merged(
    selector: LabelSelector | None,
    labels: dict[str, str],
    *,
    match: tuple[str, ...],
    mismatch: tuple[str, ...] = (),
) -> LabelSelector | None:
    """The selector, restricted to pods with equal (or different) values of the labels with these keys.

    A key that the pod does not have is ignored; a missing selector stays missing.
    """
    if selector is None:
        return None
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for operator, keys in (("In", match), ("NotIn", mismatch))
        for key in keys
        if key in labels
    ]
    if not added:
        return selector
    return replace(selector, match_expressions=(*selector.match_expressions, *added))


DEFAULT_SCHEDULER: Final = "default-scheduler"
DEFAULT_GRACE_PERIOD_SECONDS: Final = 30
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

_R = TypeVar("_R", bound=Record)
_O = TypeVar("_O", bound=Object)
_RequestT = TypeVar("_RequestT", ExactDeviceRequest, DeviceSubRequest)
_T = TypeVar("_T")


def with_defaults(objects: Iterable[Object], stored: Sequence[Object] = ()) -> list[Object]:
    """The objects as a scheduler would read them from an API server that has the `stored` ones already.

    Order and number do not change. It is idempotent.

    Raises:
        InputError: a pod names a priority class that is not there.
    """
    objects = [defaulted(obj) for obj in objects]
    if not objects:
        return []
    admit = Admission((*stored, *objects)).admit
    return [admit(obj) for obj in objects]


def defaulted(obj: _O) -> _O:
    """An object with the fields that a server sets whenever it reads it. Admission is not included."""
    default = _DEFAULTS.get(type(obj))
    if default is None:
        return obj
    made: _O = default(obj)
    return made


def _pod(pod: Pod) -> Pod:
    spec = pod.spec
    containers = _each(spec.containers, lambda c: _container(c, spec.host_network))
    init_containers = _each(spec.init_containers, lambda c: _container(c, spec.host_network))
    spec = _with(
        spec,
        containers=containers,
        init_containers=init_containers,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        overhead=_rounded(spec.overhead),
        volumes=_each(spec.volumes, _volume),
    )
    spec = _with(spec, resources=_pod_level(spec))
    if spec.termination_grace_period_seconds is None:
        spec = _with(spec, termination_grace_period_seconds=DEFAULT_GRACE_PERIOD_SECONDS)
    return _with(pod, spec=spec)


def _container(container: Container, host_network: bool) -> Container:
    resources = container.resources
    # A limit without a request is also the request.
    missing = {name: limit for name, limit in resources.limits.items() if name not in resources.requests}
    requests = {**resources.requests, **missing} if missing else resources.requests
    resources = _with(resources, requests=_rounded(requests), limits=_rounded(resources.limits))
    ports = _each(container.ports, lambda port: _port(port, host_network))
    return _with(container, resources=resources, ports=ports)


def _port(port: ContainerPort, host_network: bool) -> ContainerPort:
    # A pod with hostNetwork uses the ports of the node.
    host_port = port.container_port if host_network and not port.host_port else port.host_port
    return _with(port, protocol=port.protocol or "TCP", host_port=host_port)


def _volume(volume: Volume) -> Volume:
    if volume.rbd is None or volume.rbd.pool:
        return volume
    return _with(volume, rbd=_with(volume.rbd, pool="rbd"))


def _pod_level(spec: PodSpec) -> ResourceRequirements | None:
    """The pod-level resources, if it has any.

    Limits on huge pages are derived from the containers. A pod with limits gets the missing requests: the sum
    of its containers' requests or, if they have none, the limit.
    """
    resources = spec.resources
    if resources is None:
        return None
    limits, requests = dict(resources.limits), dict(resources.requests)
    for name, nano in container_limits(spec).items():
        if name.startswith(HUGEPAGES_PREFIX):
            limits.setdefault(name, _text(nano))
    if limits:
        for name, nano in container_requests(spec).items():
            if name in (CPU, MEMORY):
                requests.setdefault(name, _text(nano))
        for name, limit in limits.items():
            if name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX):
                requests.setdefault(name, limit)
    return _with(
        resources,
        requests=_rounded(requests if len(requests) > len(resources.requests) else resources.requests),
        limits=_rounded(limits if len(limits) > len(resources.limits) else resources.limits),
    )


def _node(node: Node) -> Node:
    status = node.status
    allocatable = status.allocatable or status.capacity
    status = _with(status, allocatable=_rounded(allocatable), capacity=_rounded(status.capacity))
    return _with(node, status=status)


def _namespace(namespace: Namespace) -> Namespace:
    name = namespace.name
    if not name or namespace.labels.get(NAMESPACE_NAME_LABEL) == name:
        return namespace
    labels = {**namespace.labels, NAMESPACE_NAME_LABEL: name}
    return _with(namespace, metadata=_with(namespace.metadata, labels=labels))


def _claim(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    spec, status = claim.spec, claim.status
    resources = _with(
        spec.resources, requests=_rounded(spec.resources.requests), limits=_rounded(spec.resources.limits)
    )
    return _with(
        claim,
        spec=_with(spec, resources=resources, volume_mode=spec.volume_mode or "Filesystem"),
        status=_with(status, phase=status.phase or "Pending"),
    )


def _persistent_volume(volume: PersistentVolume) -> PersistentVolume:
    spec, status = volume.spec, volume.status
    return _with(
        volume,
        spec=_with(spec, capacity=_rounded(spec.capacity), volume_mode=spec.volume_mode or "Filesystem"),
        status=_with(status, phase=status.phase or "Pending"),
    )


def _storage_class(storage_class: StorageClass) -> StorageClass:
    return _with(storage_class, volume_binding_mode=storage_class.volume_binding_mode or "Immediate")


def _csi_driver(driver: CSIDriver) -> CSIDriver:
    if driver.spec.storage_capacity is not None:
        return driver
    return _with(driver, spec=_with(driver.spec, storage_capacity=False))


def _priority_class(priority_class: PriorityClass) -> PriorityClass:
    policy = priority_class.preemption_policy or PREEMPT_LOWER_PRIORITY
    return _with(priority_class, preemption_policy=policy)


def _resource_claim(claim: ResourceClaim) -> ResourceClaim:
    return _with(claim, spec=_claim_spec(claim.spec))


def _resource_claim_template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return _with(template, spec=_with(template.spec, spec=_claim_spec(template.spec.spec)))


def _claim_spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    return _with(spec, devices=_with(spec.devices, requests=_each(spec.devices.requests, _device_request)))


def _device_request(request: DeviceRequest) -> DeviceRequest:
    exactly = None if request.exactly is None else _exact_request(request.exactly)
    return _with(request, exactly=exactly, first_available=_each(request.first_available, _exact_request))


def _exact_request(request: _RequestT) -> _RequestT:
    mode = request.allocation_mode or EXACT_COUNT
    count = 1 if mode == EXACT_COUNT and not request.count else request.count
    tolerations = _each(request.tolerations, lambda one: _with(one, operator=one.operator or "Equal"))
    return _with(request, allocation_mode=mode, count=count, tolerations=tolerations)


_DEFAULTS: Final[Mapping[type[Object], Callable[[Any], Any]]] = {
    CSIDriver: _csi_driver,
    Namespace: _namespace,
    Node: _node,
    PersistentVolume: _persistent_volume,
    PersistentVolumeClaim: _claim,
    Pod: _pod,
    PriorityClass: _priority_class,
    ResourceClaim: _resource_claim,
    ResourceClaimTemplate: _resource_claim_template,
    StorageClass: _storage_class,
}


def _rounded(resources: ResourceList) -> ResourceList:
    """Amounts smaller than a thousandth are rounded up, as the API has done since its first version."""
    fine = {name: nano for name, q in resources.items() if (nano := parse_quantity(q)) % MILLI}
    if not fine:
        return resources
    return {**resources, **{name: f"{milli_units(nano)}m" for name, nano in fine.items()}}


def _text(nano: int) -> Quantity:
    """A quantity that parses to this number of nano units, in the largest unit without a fraction."""
    for suffix, unit in (("", 10**9), ("m", 10**6), ("u", 10**3)):
        if nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return f"{nano}n"


def _each(items: tuple[_T, ...], change: Callable[[_T], _T]) -> tuple[_T, ...]:
    """The changed items, or the same tuple if none changed."""
    changed = tuple(map(change, items))
    return items if all(new is old for new, old in zip(changed, items, strict=True)) else changed


def _with(record: _R, **fields: object) -> _R:
    """The record with these fields, or the same record if nothing differs."""
    changes = {name: new for name, new in fields.items() if new is not getattr(record, name)}
    return msgspec.structs.replace(record, **changes) if changes else record
