"""Builders of pods, their scheduling constraints, nodes, and what owns, selects or protects pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypedDict, Unpack

from bayplan.api.meta import (
    DEFAULT_NAMESPACE,
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    Quantity,
    ResourceList,
)
from bayplan.api.node import ContainerImage, Namespace, Node, NodeSpec, NodeStatus, Taint
from bayplan.api.pod import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
)
from bayplan.api.workloads import (
    EqualitySelectorSpec,
    LabelSelectorSpec,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PriorityClass,
    ReplicaSet,
    Service,
)


def make_owner(
    kind: str, name: str, *, uid: str | None = None, api_version: str = "apps/v1"
) -> OwnerReference:
    """The controller of a pod or claim, for `owner=`."""
    owner_uid = f"{kind}/{name}".lower() if uid is None else uid
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=owner_uid, controller=True)


def object_meta(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    created: datetime | None = None,
    deleted: datetime | None = None,
    owner: OwnerReference | None = None,
    uid: str | None = None,
) -> ObjectMeta:
    """Metadata with a readable uid: `pod/default/web`."""
    if uid is None:
        uid = "/".join(part for part in (kind.lower(), namespace, name) if part)
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        creation_timestamp=created,
        deletion_timestamp=deleted,
        owner_references=() if owner is None else (owner,),
    )


def make_toleration(key: str = "", value: str | None = None, effect: str = "") -> Toleration:
    """A toleration of taints with this key, and with a value only of this one; of all effects by default."""
    if value is None:
        return Toleration(key=key, operator="Exists", effect=effect)
    return Toleration(key=key, operator="Equal", value=value, effect=effect)


def make_expression(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    """One entry of matchExpressions or matchFields."""
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def make_selector(
    labels: Mapping[str, str] | None = None, *expressions: LabelSelectorRequirement
) -> LabelSelector:
    """A label selector; without arguments the one that matches everything."""
    return LabelSelector(match_labels=dict(labels or {}), match_expressions=expressions)


def make_node_term(
    *expressions: LabelSelectorRequirement, fields: Iterable[LabelSelectorRequirement] = ()
) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions, match_fields=tuple(fields))


def make_node_affinity(
    *required: NodeSelectorTerm, preferred: Iterable[tuple[int, NodeSelectorTerm]] = ()
) -> Affinity:
    """Node affinity for `make_pod(affinity=…)`: required alternatives, and preferences with their weight."""
    return Affinity(
        node_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=required) if required else None,
            preferred=tuple(PreferredSchedulingTerm(weight=w, preference=term) for w, term in preferred),
        )
    )


def make_pod_term(
    topology_key: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    namespaces: Sequence[str] = (),
    namespace_selector: LabelSelector | None = None,
) -> PodAffinityTerm:
    """A term of pod affinity or anti-affinity; without labels its selector is absent and matches nothing."""
    return PodAffinityTerm(
        topology_key=topology_key,
        label_selector=to_selector(labels),
        namespaces=tuple(namespaces),
        namespace_selector=namespace_selector,
    )


def make_pod_affinity(
    *,
    required: Iterable[PodAffinityTerm] = (),
    preferred: Iterable[tuple[int, PodAffinityTerm]] = (),
    anti_required: Iterable[PodAffinityTerm] = (),
    anti_preferred: Iterable[tuple[int, PodAffinityTerm]] = (),
) -> Affinity:
    """Affinity to other pods, and against them, for `make_pod(affinity=…)`."""
    return Affinity(
        pod_affinity=_pod_affinity(required, preferred),
        pod_anti_affinity=_pod_affinity(anti_required, anti_preferred),
    )


def make_spread(
    topology_key: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    max_skew: int = 1,
    hard: bool = True,
    min_domains: int | None = None,
    node_affinity_policy: str | None = None,
    node_taints_policy: str | None = None,
    match_label_keys: Sequence[str] = (),
) -> TopologySpreadConstraint:
    """A spread constraint; `hard` is DoNotSchedule, otherwise ScheduleAnyway."""
    return TopologySpreadConstraint(
        topology_key=topology_key,
        label_selector=to_selector(labels),
        max_skew=max_skew,
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        min_domains=min_domains,
        node_affinity_policy=node_affinity_policy,
        node_taints_policy=node_taints_policy,
        match_label_keys=tuple(match_label_keys),
    )


def to_selector(labels: Mapping[str, str] | LabelSelector | None) -> LabelSelector | None:
    """A selector that requires these labels; a selector, or None, is returned unchanged."""
    if labels is None or isinstance(labels, LabelSelector):
        return labels
    return LabelSelector(match_labels=dict(labels))


def _pod_affinity(
    required: Iterable[PodAffinityTerm], preferred: Iterable[tuple[int, PodAffinityTerm]]
) -> PodAffinity | None:
    weighted = tuple(WeightedPodAffinityTerm(weight=w, pod_affinity_term=term) for w, term in preferred)
    required = tuple(required)
    return PodAffinity(required=required, preferred=weighted) if required or weighted else None


DEFAULT_SCHEDULER: Final = "default-scheduler"


class PodSpecFields(TypedDict, total=False):
    """Fields of the pod's spec that `make_pod` passes on unchanged."""

    affinity: Affinity | None
    host_network: bool
    host_users: bool | None
    overhead: ResourceList
    preemption_policy: str | None
    priority_class_name: str
    resource_claims: tuple[PodResourceClaim, ...]
    resources: ResourceRequirements | None
    runtime_class_name: str
    scheduler_name: str
    scheduling_group: PodSchedulingGroup | None
    termination_grace_period_seconds: int | None


def make_pod(
    name: str = "p",
    *,
    namespace: str = DEFAULT_NAMESPACE,
    cpu: Quantity | None = None,
    memory: Quantity | None = None,
    requests: Mapping[str, Quantity] | None = None,
    limits: Mapping[str, Quantity] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    priority: int | None = None,
    tolerations: Iterable[Toleration] = (),
    node_selector: Mapping[str, str] | None = None,
    spread: Iterable[TopologySpreadConstraint] = (),
    image: str = "",
    host_ports: Iterable[int | ContainerPort] = (),
    containers: Iterable[Container] | None = None,
    init_containers: Iterable[Container] = (),
    claims: Iterable[str] = (),
    volumes: Iterable[Volume] = (),
    gates: Iterable[str] = (),
    nominated_node: str = "",
    phase: str = "",
    conditions: Iterable[Condition] = (),
    started: datetime | None = None,
    created: datetime | None = None,
    deleted: datetime | None = None,
    owner: OwnerReference | None = None,
    uid: str | None = None,
    **spec: Unpack[PodSpecFields],
) -> Pod:
    """A pod; with `node` it runs there.

    `cpu`, `memory`, `requests`, `limits`, `image` and `host_ports` describe its one container; `containers`
    replaces that one. `claims` are names of PersistentVolumeClaims that it mounts.
    """
    if containers is None:
        one = make_container(
            image=image, cpu=cpu, memory=memory, requests=requests, limits=limits, host_ports=host_ports
        )
        containers = (one,)
    mounted = tuple(make_claim_volume(claim) for claim in claims)
    spec.setdefault("scheduler_name", DEFAULT_SCHEDULER)
    return Pod(
        metadata=object_meta(
            "Pod",
            name,
            namespace,
            labels=labels,
            annotations=annotations,
            created=created,
            deleted=deleted,
            owner=owner,
            uid=uid,
        ),
        spec=PodSpec(
            node_name=node,
            priority=priority,
            tolerations=tuple(tolerations),
            node_selector=None if node_selector is None else dict(node_selector),
            topology_spread_constraints=tuple(spread),
            containers=tuple(containers),
            init_containers=tuple(init_containers),
            volumes=(*mounted, *volumes),
            scheduling_gates=tuple(PodSchedulingGate(name=gate) for gate in gates),
            **spec,
        ),
        status=PodStatus(
            phase=phase or ("Running" if node else "Pending"),
            nominated_node_name=nominated_node,
            conditions=tuple(conditions),
            start_time=started,
        ),
    )


def make_container(
    name: str = "main",
    *,
    image: str = "",
    cpu: Quantity | None = None,
    memory: Quantity | None = None,
    requests: Mapping[str, Quantity] | None = None,
    limits: Mapping[str, Quantity] | None = None,
    host_ports: Iterable[int | ContainerPort] = (),
    sidecar: bool = False,
) -> Container:
    """A container; `sidecar` makes it, among the init containers, one that keeps running."""
    wanted: ResourceList = dict(requests or {})
    if cpu is not None:
        wanted["cpu"] = cpu
    if memory is not None:
        wanted["memory"] = memory
    return Container(
        name=name,
        image=image,
        resources=ResourceRequirements(requests=wanted, limits=dict(limits or {})),
        ports=tuple(_port(port) for port in host_ports),
        restart_policy="Always" if sidecar else "",
    )


def make_claim_volume(claim: str, *, read_only: bool = False) -> Volume:
    """A volume of a pod that mounts a PersistentVolumeClaim; it has the claim's name."""
    source = PersistentVolumeClaimVolumeSource(claim_name=claim, read_only=read_only)
    return Volume(name=claim, persistent_volume_claim=source)


def _port(port: int | ContainerPort) -> ContainerPort:
    if isinstance(port, ContainerPort):
        return port
    return ContainerPort(container_port=port, host_port=port, protocol="TCP")


def make_node(
    name: str,
    *,
    cpu: Quantity = "4",
    memory: Quantity = "32Gi",
    pods: Quantity = 110,
    resources: Mapping[str, Quantity] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Taint | str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | Iterable[ContainerImage] = (),
    declared_features: Iterable[str] = (),
    uid: str | None = None,
    **allocatable: Quantity,
) -> Node:
    """A node with room for pods, by default 4 cpus and 32 GiB.

    Further resources are given by name, `resources={"example.com/gpu": 2}`, or as further keywords with `_`
    for `-`, `ephemeral_storage="10Gi"`. Taints may be given as `key=value:Effect`, images as {name: bytes}.
    """
    room: ResourceList = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    room.update((resource.replace("_", "-"), amount) for resource, amount in allocatable.items())
    if isinstance(images, Mapping):
        images = [ContainerImage(names=(image,), size_bytes=size) for image, size in images.items()]
    return Node(
        metadata=object_meta("Node", name, labels=labels, annotations=annotations, uid=uid),
        spec=NodeSpec(
            unschedulable=unschedulable,
            taints=tuple(make_taint(taint) if isinstance(taint, str) else taint for taint in taints),
        ),
        status=NodeStatus(
            allocatable=room,
            capacity=dict(room),
            images=tuple(images),
            declared_features=tuple(declared_features),
        ),
    )


def make_namespace(name: str, *, labels: Mapping[str, str] | None = None) -> Namespace:
    return Namespace(metadata=object_meta("Namespace", name, labels=labels))


def make_taint(text: str) -> Taint:
    """A taint from kubectl's notation: `key=value:Effect` or `key:Effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)


def make_pdb(
    name: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    allowed: int = 0,
) -> PodDisruptionBudget:
    """A budget that lets `allowed` of the selected pods be disrupted now."""
    return PodDisruptionBudget(
        metadata=object_meta("PodDisruptionBudget", name, namespace),
        spec=PodDisruptionBudgetSpec(selector=to_selector(labels)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def make_priority_class(
    name: str, value: int, *, global_default: bool = False, preemption_policy: str | None = None
) -> PriorityClass:
    return PriorityClass(
        metadata=object_meta("PriorityClass", name),
        value=value,
        global_default=global_default,
        preemption_policy=preemption_policy,
    )


def make_service(
    name: str, selector: Mapping[str, str] | None = None, *, namespace: str = DEFAULT_NAMESPACE
) -> Service:
    """A service that selects pods by these labels; None is a service without selector."""
    spec = EqualitySelectorSpec(selector=None if selector is None else dict(selector))
    return Service(metadata=object_meta("Service", name, namespace), spec=spec)


def make_replica_set(
    name: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> ReplicaSet:
    """A ReplicaSet; `make_owner("ReplicaSet", name)` makes a pod belong to it."""
    spec = LabelSelectorSpec(selector=to_selector(labels))
    return ReplicaSet(metadata=object_meta("ReplicaSet", name, namespace), spec=spec)
