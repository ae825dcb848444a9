"""Pods of a fault run, and the text of its trace for new objects."""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.meta import LabelSelector, Object, ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import (
    Affinity,
    Container,
    ContainerPort,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSchedulingGate,
    PodSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from bayplan.api.workloads import POD_GROUP_LABEL, PodGroup

OURS: Final = "default-scheduler"
THEIRS: Final = "their-scheduler"
ZONE: Final = "topology.kubernetes.io/zone"


def make_pod(
    app: str = "gang",
    cpu: int = 100,
    priority: int = 0,
    *,
    ports: tuple[int, ...] = (),
    gates: tuple[str, ...] = (),
    spread: tuple[TopologySpreadConstraint, ...] = (),
    **spec: Any,
) -> Pod:
    container = Container(
        name="main",
        resources=ResourceRequirements(requests={"cpu": f"{cpu}m", "memory": "64Mi"}),
        ports=tuple(ContainerPort(container_port=port, host_port=port, protocol="TCP") for port in ports),
    )
    spec.setdefault("scheduler_name", OURS)
    return Pod(
        metadata=ObjectMeta(labels={"app": app}),
        spec=PodSpec(
            containers=(container,),
            priority=priority,
            scheduling_gates=tuple(PodSchedulingGate(name=gate) for gate in gates),
            topology_spread_constraints=spread,
            termination_grace_period_seconds=3,
            **spec,
        ),
    )


def _term(app: str, key: str) -> PodAffinityTerm:
    return PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=key)


def anti_affinity(app: str, key: str) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=(_term(app, key),)))


def affinity(app: str, key: str) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required=(_term(app, key),)))


def spread_constraint(app: str, key: str) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=1,
        topology_key=key,
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels={"app": app}),
    )


def half(amount: object) -> str:
    text = str(amount)
    digits = text.rstrip("mMi")
    return f"{max(1, int(digits) // 2)}{text[len(digits) :]}"


def summary(item: Object) -> str:
    """The text of the trace for a new object."""
    match item:
        case Pod():
            spec = item.spec
            parts = [
                f"cpu {spec.containers[0].resources.requests.get('cpu')}",
                f"priority {item.priority}",
                *(f"app {item.labels['app']}" for _ in range("app" in item.labels)),
                *(f"group {item.labels[POD_GROUP_LABEL]}" for _ in range(POD_GROUP_LABEL in item.labels)),
                *(f"gate {gate.name}" for gate in spec.scheduling_gates),
                *(f"port {port.host_port}" for port in spec.containers[0].ports),
            ]
            if spec.node_name:
                parts.append(f"on {spec.node_name}")
            if spec.scheduler_name != OURS:
                parts.append("theirs")
            if spec.tolerations:
                parts.append("tolerant")
            if spec.node_selector:
                parts.append("in zone a")
            if spec.affinity is not None:
                terms = spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity
                assert terms is not None
                far = "apart by" if spec.affinity.pod_anti_affinity else "near by"
                parts.append(f"{far} {terms.required[0].topology_key}")
            parts.extend(f"spread by {one.topology_key}" for one in spec.topology_spread_constraints)
            return ", ".join(parts)
        case Node():
            taints = ", tainted" if item.spec.taints else ""
            room = item.status.allocatable
            return f"cpu {room['cpu']}, pods {room['pods']}, zone {item.labels[ZONE]}{taints}"
        case PodGroup():
            return f"wants {item.spec.min_member}"
        case _:
            return ""
