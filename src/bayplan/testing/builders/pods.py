"""Pods and their containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, TypedDict, Unpack

from bayplan.api.meta import DEFAULT_NAMESPACE, Condition, OwnerReference, Quantity, ResourceList
from bayplan.api.pod import (
    Affinity,
    Container,
    ContainerPort,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodResourceClaim,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from bayplan.testing.builders.metadata import object_meta

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
    scheduler_name: str
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
