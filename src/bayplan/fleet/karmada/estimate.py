"""How many more replicas a cluster has room for, as Karmada's general estimator computes it.

The estimate uses what a cluster reports about itself: the sums of its summary, or how many nodes it has of
each grade of its resource models. It does not see single nodes, so fragmentation, node selectors, taints of
nodes, affinity and spreading are not part of it. For several components that are scheduled together it counts
whole sets.

`schedule.py` calls `Estimator`s. There can be several: the smallest answer counts for each cluster, an
estimator that fails is left out, and an estimator may have no answer for a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from bayplan.api.meta import Quantity
from bayplan.api.quantity import (
    CPU,
    PODS,
    is_binary,
    is_tracked_resource,
    milli_units,
    milli_value,
    parse_quantity,
    resource_amount,
    value,
    whole_units,
)
from bayplan.errors import BayplanError
from bayplan.fleet.karmada.clusters import (
    ClusterTable,
    FreeResource,
    Ints,
    Mask,
    free_nano,
    grade_resources,
    node_counts,
)
from bayplan.fleet.karmada.kinds import (
    MAX_INT32,
    BindingSpec,
    Cluster,
    Component,
    ReplicaRequirements,
    ResourceSummary,
    int32,
)

PODS_PER_NODE: Final = 110
"""Of a node that a resource model stands for."""
NO_ANSWER: Final = -(2**63)
"""Karmada's estimators return -1; here a negative number means that existing replicas would not fit again."""


class EstimatorError(BayplanError):
    """An estimator cannot answer for any cluster."""


class Estimator(Protocol):
    """Answers how many more replicas of a workload, or sets of components, clusters have room for."""

    @property
    def name(self) -> str: ...

    def available(self, clusters: ClusterTable, rows: Ints, spec: BindingSpec, *, sets: bool) -> Ints:
        """The number for each of the rows; `NO_ANSWER` for a cluster without information.

        Raises:
            EstimatorError: it cannot answer.
        """


@dataclass(frozen=True, slots=True)
class GeneralEstimator:
    """Karmada's general estimator: from what each Cluster object reports."""

    with_models: bool = True
    """Feature gate CustomizedClusterResourceModeling."""
    name: str = "general-estimator"

    def available(self, clusters: ClusterTable, rows: Ints, spec: BindingSpec, *, sets: bool) -> Ints:
        if sets:
            counts = (self.sets(clusters.clusters[row], spec.components) for row in rows)
            return np.fromiter(counts, np.int64, len(rows))
        return self.replicas(clusters, spec.replica_requirements)[rows]

    def replicas(self, clusters: ClusterTable, requirements: ReplicaRequirements | None) -> Ints:
        """How many replicas fit, by row."""
        pods = clusters.free_pods
        if requirements is None:
            found = pods
        else:
            found = np.minimum(pods, _by_summary(clusters, requirements.resource_request))
            if self.with_models:
                by_model, has_models = _by_models(clusters, requirements.resource_request)
                found = np.where(has_models, np.minimum(pods, by_model), found)
        found = np.where(clusters.has_summary & (pods > 0), found, 0)
        # As `int32`, for all rows.
        return found.astype(np.int32).astype(np.int64)

    def sets(self, cluster: Cluster, components: Sequence[Component]) -> int:
        """How many sets of all components fit into one cluster."""
        summary = cluster.status.resource_summary
        pods = 0 if summary is None else whole_units(free_nano(summary, PODS))
        if summary is None or pods <= 0:
            return 0
        per_set = sum(one.replicas for one in components)
        if per_set <= 0:
            return int32(pods)
        bound = min(int32(pods // per_set), _sets_by_summary(summary, components))
        if self.with_models and bound > 0:
            nodes = model_nodes(cluster)
            if nodes is not None:
                bound = first_fit_sets(nodes, components, bound)
        return bound


def _by_summary(clusters: ClusterTable, request: Mapping[str, Quantity]) -> Ints:
    """The smallest quotient of what is free and what is requested, by row."""
    found = np.full(len(clusters), np.iinfo(np.int64).max)
    for resource, quantity in request.items():
        wanted = milli_value(quantity) if resource == CPU else value(quantity)
        if value(quantity) <= 0:
            continue
        free: FreeResource = clusters.free(resource)
        amounts = free.milli if resource == CPU else free.whole
        quotients = np.where(free.is_listed & (free.whole > 0), amounts // wanted, 0)
        np.minimum(found, quotients, out=found)
    return found


# Resource models


def _by_models(clusters: ClusterTable, request: Mapping[str, Quantity]) -> tuple[Ints, Mask]:
    """How many replicas fit onto the nodes that models stand for, and the rows that have such nodes."""
    found = np.zeros(len(clusters), np.int64)
    modelled = np.zeros(len(clusters), bool)
    wanted = _amounts(request)
    for group in clusters.model_groups:
        fits = [
            min([PODS_PER_NODE, *(node.get(name, 0) // amount for name, amount in wanted.items())])
            for node in group.nodes
        ]
        found[group.rows] = group.counts @ np.array(fits, np.int64)
        modelled[group.rows] = True
    return found, modelled


def model_nodes(cluster: Cluster) -> list[dict[str, int]] | None:
    """The nodes that the models of a cluster stand for, in order; None if there are none to use."""
    counts = node_counts(cluster)
    if counts is None:
        return None
    grades = grade_resources(cluster.spec.resource_models)
    return [
        {**node, PODS: PODS_PER_NODE}
        for node, count in zip(grades.values(), counts, strict=True)
        for _ in range(count)
    ]


def _amounts(request: Mapping[str, Quantity]) -> dict[str, int]:
    """The requests for a node; names that no scheduler counts are ignored."""
    amounts = {name: resource_amount(name, quantity) for name, quantity in request.items()}
    return {name: amount for name, amount in amounts.items() if amount > 0 and is_tracked_resource(name)}


# Sets of components


def component_amounts(component: Component) -> dict[str, int]:
    """What one replica of a component needs on a node, including one of `pods`."""
    requirements = component.replica_requirements
    return {**({} if requirements is None else _amounts(requirements.resource_request)), PODS: 1}


def first_fit_sets(nodes: list[dict[str, int]], components: Sequence[Component], bound: int) -> int:
    """How many sets fit if each replica takes the first node with room, up to a bound. Changes `nodes`."""
    wanted = [(component_amounts(one), one.replicas) for one in components]
    for done in range(bound):
        for amounts, replicas in wanted:
            if place_first_fit(nodes, amounts, replicas) < replicas:
                return done
    return bound


def place_first_fit(nodes: list[dict[str, int]], amounts: Mapping[str, int], replicas: int) -> int:
    """Places replicas on the first nodes that have room; returns how many were placed."""
    placed = 0
    for node in nodes:
        if placed >= replicas:
            break
        fit = min(node.get(name, 0) // amount for name, amount in amounts.items())
        taken = max(0, min(fit, replicas - placed))
        for name, amount in amounts.items() if taken else ():
            node[name] -= amount * taken
        placed += taken
    return placed


def _sets_by_summary(summary: ResourceSummary, components: Sequence[Component]) -> int:
    """The smallest quotient of what is free and what a set needs.

    Both sides are counted in thousandths if they are written as decimal numbers, and in whole units if they
    have a binary suffix: where the two are written differently, the quotient is off by 1000, as in Karmada.
    """
    required: dict[str, int] = {}
    for one in components:
        requirements = one.replica_requirements
        for name, quantity in ({} if requirements is None else requirements.resource_request).items():
            amount = _by_format(parse_quantity(quantity), binary=is_binary(quantity))
            required[name] = required.get(name, 0) + one.replicas * amount
    sets = MAX_INT32
    for name, amount in required.items():
        if amount <= 0:
            continue
        free = _by_format(free_nano(summary, name), binary=_difference_is_binary(summary, name))
        if free <= 0:
            return 0
        sets = min(sets, int32(free // amount))
    return sets


def _by_format(nano: int, *, binary: bool) -> int:
    return whole_units(nano) if binary else milli_units(nano)


def _difference_is_binary(summary: ResourceSummary, resource: str) -> bool:
    """The format of a difference: that of the first number that is not zero."""
    for amounts in (summary.allocatable, summary.allocated, summary.allocating):
        quantity = amounts.get(resource)
        if quantity is not None and parse_quantity(quantity):
            return is_binary(quantity)
    return False
