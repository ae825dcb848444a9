"""What is known of a member cluster from its nodes and pods: the summary that Karmada's controller reports,
and the estimate of karmada-scheduler-estimator.

The estimator knows nodes, so node selectors, required node affinity, taints and fragmentation count. It
does not know the pod: affinity, spreading, host ports, volumes, devices and priority do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bayplan.api.meta import Quantity
from bayplan.api.node import Node, Taint
from bayplan.api.node_selectors import RequiredNodeAffinity, compile_terms
from bayplan.api.pod import Pod, PodSpec, any_tolerates
from bayplan.api.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    MILLI,
    NANO,
    PODS,
    is_tracked_resource,
    parse_quantity,
    quantity_text,
    quantity_text_like,
    resource_amount,
)
from bayplan.api.release import Release
from bayplan.api.selectors import selector_from_map
from bayplan.fleet.karmada.filters import REJECTING_EFFECTS
from bayplan.fleet.karmada.kinds import (
    MAX_INT32,
    AllocatableModeling,
    NodeClaim,
    ReplicaRequirements,
    ResourceModel,
    ResourceSummary,
)

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_FINISHED: Final = frozenset({"Succeeded", "Failed"})

Amounts = dict[str, int]
"""Nano units by resource."""


def request_texts(amounts: Mapping[str, int]) -> dict[str, Quantity]:
    """Requests in the units that scheduling counts in, as Karmada writes them; without what is zero."""
    return {
        name: quantity_text(
            amount * (MILLI if name == CPU else NANO), binary=name in (MEMORY, EPHEMERAL_STORAGE)
        )
        for name, amount in amounts.items()
        if amount
    }


def resource_summary(
    nodes: Sequence[Node], pods: Iterable[Pod], models: Sequence[ResourceModel]
) -> ResourceSummary:
    """The summary of a cluster, as Karmada's cluster status controller reports it."""
    allocatable: Amounts = {}
    formats: dict[str, Quantity] = {}
    for node in nodes:
        for name, quantity in node.status.allocatable.items():
            nano = parse_quantity(quantity)
            allocatable[name] = allocatable.get(name, 0) + nano
            if nano:
                formats.setdefault(name, quantity)
    allocated: dict[str, int] = {}
    allocating: dict[str, int] = {}
    running: list[Pod] = []
    for pod in pods:
        if not pod.spec.node_name:
            _add_pod(allocating, pod.spec)
        elif pod.status.phase not in _FINISHED:
            _add_pod(allocated, pod.spec)
            running.append(pod)
    return ResourceSummary(
        allocatable={name: quantity_text_like(allocatable[name], text) for name, text in formats.items()},
        allocated=request_texts(allocated),
        allocating=request_texts(allocating),
        allocatable_modelings=_modelings(nodes, running, models),
    )


def _add_pod(total: dict[str, int], spec: PodSpec) -> None:
    for container in spec.containers:
        _add(total, container.resources.requests)
    for container in spec.init_containers:
        # The maximum is that of the running total, not of the pod, as in Karmada.
        for name, amount in requested_amounts(container.resources.requests).items():
            total[name] = max(total.get(name, 0), amount)
    _add(total, spec.overhead)
    total[PODS] = total.get(PODS, 0) + 1


def _add(total: dict[str, int], resources: Mapping[str, Quantity]) -> None:
    for name, amount in requested_amounts(resources).items():
        total[name] = total.get(name, 0) + amount


def _modelings(
    nodes: Sequence[Node], pods: Iterable[Pod], models: Sequence[ResourceModel]
) -> tuple[AllocatableModeling, ...]:
    """How many nodes have room for each grade."""
    if not models:
        return ()
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        _add_pod(used.setdefault(pod.spec.node_name, {}), pod.spec)
    ordered = sorted(models, key=lambda model: model.grade)
    counts = {model.grade: 0 for model in ordered}
    for node in nodes:
        free = {name: resource_amount(name, quantity) for name, quantity in node.status.allocatable.items()}
        taken = used.get(node.name)
        if taken is not None:
            if free.get(PODS, 0) <= taken[PODS]:
                # Karmada stops here, so the nodes behind a full one are not counted.
                break
            free = {name: amount - taken.get(name, 0) for name, amount in free.items()}
        grade = _grade(free, ordered)
        if grade is not None:
            counts[grade] += 1
    return tuple(AllocatableModeling(grade=grade, count=count) for grade, count in counts.items())


def _grade(free: Mapping[str, int], models: Sequence[ResourceModel]) -> int | None:
    """The largest grade that the free resources reach in every resource of the models."""
    names = dict.fromkeys(one.name for model in models for one in model.ranges)
    lowest: int | None = None
    for name in names:
        reached = None
        for place, model in enumerate(models):
            least = next((one.min for one in model.ranges if one.name == name), None)
            if least is not None and resource_amount(name, least) <= free.get(name, 0):
                reached = place
        if reached is None:
            return None
        lowest = reached if lowest is None else min(lowest, reached)
    return None if lowest is None else models[lowest].grade


# The accurate estimator


def claim_affinity(claim: NodeClaim | None) -> RequiredNodeAffinity:
    """The requirements on labels and names of nodes."""
    if claim is None:
        return RequiredNodeAffinity()
    selector = selector_from_map(claim.node_selector) if claim.node_selector else None
    if claim.hard_node_affinity is None:
        return RequiredNodeAffinity(selector)
    return RequiredNodeAffinity(selector, compile_terms(claim.hard_node_affinity.node_selector_terms))


def takes_claim(node: Node, claim: NodeClaim | None, affinity: RequiredNodeAffinity) -> bool:
    """Whether pods with these requirements may run on the node."""
    tolerations = () if claim is None else claim.tolerations
    if node.spec.unschedulable and not any_tolerates(tolerations, _CORDON):
        return False
    if not affinity.is_empty and not affinity.matches(node.labels, node.name):
        return False
    return all(
        any_tolerates(tolerations, taint) for taint in node.spec.taints if taint.effect in REJECTING_EFFECTS
    )


def node_estimate(
    nodes: Sequence[Node], pods: Iterable[Pod], requirements: ReplicaRequirements, release: Release
) -> int:
    """How many replicas fit onto the nodes, as karmada-scheduler-estimator counts them."""
    on_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and pod.status.phase not in _FINISHED:
            on_node.setdefault(pod.spec.node_name, []).append(pod)
    amounts = requested_amounts(requirements.resource_request)
    wanted = {PODS: 1, **{name: amount for name, amount in amounts.items() if amount > 0}}
    affinity = claim_affinity(requirements.node_claim)
    total = 0
    for node in nodes:
        if takes_claim(node, requirements.node_claim, affinity):
            free = {
                name: resource_amount(name, quantity) for name, quantity in node.status.allocatable.items()
            }
            there = on_node.get(node.name, ())
            free[PODS] = free.get(PODS, 0) - len(there)
            for pod in there:
                for name, amount in release.accounting.assigned_requests(pod).items():
                    free[name] = free.get(name, 0) - amount
            total += max(0, min(free.get(name, 0) // amount for name, amount in wanted.items()))
    return min(total, MAX_INT32)


def requested_amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """Requests in the units that scheduling counts in, each rounded; names that it does not count are
    left out."""
    return {
        name: resource_amount(name, quantity)
        for name, quantity in resources.items()
        if is_tracked_resource(name)
    }
