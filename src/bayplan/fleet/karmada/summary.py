"""Two results computed from the nodes and pods of a member: the summary that Karmada's controller reports,
and the estimate of karmada-scheduler-estimator.

The estimator sees nodes, so node selectors, required node affinity, taints and fragmentation count. It does
not see the pod: affinity, spreading, host ports, volumes, devices and priority do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

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
from bayplan.api.selectors import selector_from_map
from bayplan.fleet.karmada.clusters import Ints
from bayplan.fleet.karmada.estimate import component_amounts, place_first_fit
from bayplan.fleet.karmada.filters import REJECTING_EFFECTS
from bayplan.fleet.karmada.kinds import (
    MAX_INT32,
    AllocatableModeling,
    Component,
    NodeClaim,
    ReplicaRequirements,
    ResourceModel,
    ResourceSummary,
)
from bayplan.state.cluster import Cluster

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
    by_node: dict[str, dict[str, int]] = {}
    for pod in pods:
        if not pod.spec.node_name:
            _add_pod((allocating,), pod.spec)
        elif pod.status.phase not in _FINISHED:
            _add_pod((allocated, by_node.setdefault(pod.spec.node_name, {})), pod.spec)
    return ResourceSummary(
        allocatable={name: quantity_text_like(allocatable[name], text) for name, text in formats.items()},
        allocated=request_texts(allocated),
        allocating=request_texts(allocating),
        allocatable_modelings=_modelings(nodes, by_node, models),
    )


_ONE_POD: Final = {PODS: 1}


def _add_pod(totals: Sequence[dict[str, int]], spec: PodSpec) -> None:
    for container in spec.containers:
        _add(totals, requested_amounts(container.resources.requests))
    for container in spec.init_containers:
        # The maximum is that of the running total, not of the pod, as in Karmada.
        for name, amount in requested_amounts(container.resources.requests).items():
            for total in totals:
                total[name] = max(total.get(name, 0), amount)
    if spec.overhead:
        _add(totals, requested_amounts(spec.overhead))
    _add(totals, _ONE_POD)


def _add(totals: Sequence[dict[str, int]], amounts: Mapping[str, int]) -> None:
    for total in totals:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount


def _modelings(
    nodes: Sequence[Node], used: Mapping[str, Mapping[str, int]], models: Sequence[ResourceModel]
) -> tuple[AllocatableModeling, ...]:
    """How many nodes have room for each grade."""
    if not models:
        return ()
    ordered = sorted(models, key=lambda model: model.grade)
    bounds = _lower_bounds(ordered)
    counts = [0] * len(ordered)
    for node in nodes:
        free: Mapping[str, int] = _amounts(tuple(node.status.allocatable.items()))
        taken = used.get(node.name)
        if taken is not None:
            if free.get(PODS, 0) <= taken[PODS]:
                # Karmada stops here, so the nodes behind a full one are not counted.
                break
            free = {name: amount - taken.get(name, 0) for name, amount in free.items()}
        reached = _reached(free, bounds)
        if reached >= 0:
            counts[reached] += 1
    return tuple(
        AllocatableModeling(grade=model.grade, count=count)
        for model, count in zip(ordered, counts, strict=True)
    )


def _lower_bounds(models: Sequence[ResourceModel]) -> dict[str, list[tuple[int, int]]]:
    """By resource: the lower bounds of the models that name it, and their positions, the last model first."""
    bounds: dict[str, list[tuple[int, int]]] = {}
    for place in range(len(models) - 1, -1, -1):
        for one in {one.name: one for one in reversed(models[place].ranges)}.values():
            bounds.setdefault(one.name, []).append((resource_amount(one.name, one.min), place))
    return bounds


def _reached(free: Mapping[str, int], bounds: Mapping[str, list[tuple[int, int]]]) -> int:
    """The position of the last model that the free resources reach in every resource; -1 if there is none."""
    lowest = -1
    for name, several in bounds.items():
        amount = free.get(name, 0)
        reached = next((place for least, place in several if least <= amount), -1)
        if reached < 0:
            return -1
        lowest = reached if lowest < 0 else min(lowest, reached)
    return lowest


# The accurate estimator


def claim_affinity(claim: NodeClaim | None) -> RequiredNodeAffinity:
    """The requirements on labels and names of nodes."""
    if claim is None:
        return RequiredNodeAffinity()
    selector = selector_from_map(claim.node_selector) if claim.node_selector else None
    if claim.hard_node_affinity is None:
        return RequiredNodeAffinity(selector)
    return RequiredNodeAffinity(selector, compile_terms(claim.hard_node_affinity.node_selector_terms))


def claimed_rows(columns: Cluster, claim: NodeClaim | None) -> Ints:
    """The rows of nodes where pods with these requirements may run, in the order in which nodes are
    evaluated."""
    nodes, tolerations = columns.nodes, () if claim is None else claim.tolerations
    rows: Ints = np.asarray(columns.order, np.int64)
    untolerated = [
        any(taint.effect in REJECTING_EFFECTS and not any_tolerates(tolerations, taint) for taint in taints)
        for taints in nodes.taint_lists.values
    ]
    passing = ~np.array([*untolerated, False], bool)[nodes.taint_set.array[rows]]
    if not any_tolerates(tolerations, _CORDON):
        passing &= ~nodes.unschedulable.array[rows]
    passed: Ints = rows[passing]
    affinity = claim_affinity(claim)
    if affinity.is_empty:
        return passed
    found = [(int(row), nodes.node[row]) for row in passed]
    matching = [row for row, node in found if node is not None and affinity.matches(node.labels, node.name)]
    return np.array(matching, np.int64)


def replicas_by_row(columns: Cluster, rows: Ints, amounts: Mapping[str, int]) -> Ints:
    """How many replicas with these requests fit onto each of the nodes."""
    nodes = columns.nodes
    found: Ints = np.maximum(nodes.allowed_pods.array[rows] - nodes.pod_count.array[rows], 0)
    for name, amount in amounts.items():
        if amount > 0:
            resource = nodes.resource(name)
            free = np.maximum(resource.allocatable.array[rows] - resource.requested.array[rows], 0)
            found = np.minimum(found, free // amount)
    return found


def node_estimate(columns: Cluster, requirements: ReplicaRequirements | None) -> int:
    """How many replicas fit onto the nodes, as karmada-scheduler-estimator counts them."""
    required = requirements or ReplicaRequirements()
    rows = claimed_rows(columns, required.node_claim)
    fitting = replicas_by_row(columns, rows, requested_amounts(required.resource_request))
    return min(int(fitting.sum()), MAX_INT32)


def node_estimate_sets(columns: Cluster, components: Sequence[Component]) -> int:
    """How many sets of components fit, each replica on the first node with room."""
    nodes, per_set = columns.nodes, sum(one.replicas for one in components)
    names = {name for one in components for name in component_amounts(one) if name != PODS}
    rows = np.asarray(columns.order, np.int64)
    free_pods = np.maximum(nodes.allowed_pods.array[rows] - nodes.pod_count.array[rows], 0)
    if per_set <= 0:
        return min(int(free_pods.sum()), MAX_INT32)
    free = {name: np.maximum(_free(columns, name)[rows], 0) for name in names}
    room = [
        {PODS: int(free_pods[place]), **{name: int(free[name][place]) for name in names}}
        for place in range(len(rows))
    ]
    place_of = {int(row): place for place, row in enumerate(rows)}
    wanted = []
    for one in components:
        claim = None if one.replica_requirements is None else one.replica_requirements.node_claim
        allowed = [room[place_of[int(row)]] for row in claimed_rows(columns, claim)]
        wanted.append((allowed, component_amounts(one), one.replicas))
    for sets in range(int(free_pods.sum()) // per_set):
        for allowed, amounts, replicas in wanted:
            if place_first_fit(allowed, amounts, replicas) < replicas:
                return sets
    return int(free_pods.sum()) // per_set


def _free(columns: Cluster, name: str) -> Ints:
    resource = columns.nodes.resource(name)
    found: Ints = resource.allocatable.array - resource.requested.array
    return found


def requested_amounts(resources: Mapping[str, Quantity]) -> Mapping[str, int]:
    """Requests in the units that scheduling counts in, each rounded, without names that it does not count."""
    return _requested_amounts(tuple(resources.items()))


@lru_cache(maxsize=4096)
def _requested_amounts(resources: tuple[tuple[str, Quantity], ...]) -> Mapping[str, int]:
    return {
        name: resource_amount(name, quantity) for name, quantity in resources if is_tracked_resource(name)
    }


@lru_cache(maxsize=4096)
def _amounts(resources: tuple[tuple[str, Quantity], ...]) -> Mapping[str, int]:
    return {name: resource_amount(name, quantity) for name, quantity in resources}
