"""Many Cluster objects as columns, so that a binding is filtered and estimated for all of them at once.

A row is a cluster. Lists that clusters share (taints, enabled APIs) are interned: a rule is applied to each
distinct list, and the result is gathered by id. What depends only on the clusters is computed once per table:
which of them an affinity matches, what is free of a resource.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import LabelSelectorRequirement
from bayplan.api.node import Taint
from bayplan.api.quantity import PODS, milli_units, parse_quantity, resource_amount, whole_units
from bayplan.api.selectors import Operator, Requirement, Selector, compile_selector, requirement_problems
from bayplan.errors import SelectorError
from bayplan.fleet.karmada.kinds import (
    Cluster,
    ClusterAffinity,
    FieldSelector,
    Placement,
    ResourceModel,
    ResourceSummary,
)

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
KeyT = TypeVar("KeyT", bound=Hashable)

ZONE_FIELD: Final = "zone"
MAX_CACHED: Final = 4096
"""Affinities whose matching clusters are remembered."""
MAX_NODES: Final = 2**40
"""Of one grade; a larger count is treated as this."""


@dataclass(frozen=True, slots=True)
class FreeResource:
    """What is free of one resource, by row: in whole units and in thousandths."""

    is_listed: Mask
    """Whether the cluster's summary lists the resource as allocatable."""
    whole: Ints
    milli: Ints


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """Clusters with the same resource models."""

    rows: Ints
    nodes: Sequence[Mapping[str, int]]
    """What a node of each grade has at least."""
    counts: Ints
    """How many nodes each cluster has of each grade: (clusters, grades)."""


class ClusterTable:
    """Clusters of a fleet, in the order given."""

    def __init__(self, clusters: Iterable[Cluster]) -> None:
        self.clusters: Sequence[Cluster] = tuple(clusters)
        self.names = [one.name for one in self.clusters]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.name_rank: Ints = _ranks(self.names)
        self.deleting: Mask = _mask(one.metadata.deletion_timestamp is not None for one in self.clusters)
        self.regions = [one.spec.region for one in self.clusters]
        self.has_provider: Mask = _mask(bool(one.spec.provider) for one in self.clusters)
        self.has_region: Mask = _mask(bool(region) for region in self.regions)
        self.has_zones: Mask = _mask(bool(one.spec.zones) for one in self.clusters)
        self.taint_ids, self.taint_lists = _interned(_taint_list(one) for one in self.clusters)
        self.api_ids, self.api_sets = _interned(_apis(one) for one in self.clusters)
        self.has_summary: Mask = _mask(one.status.resource_summary is not None for one in self.clusters)
        self._matching: dict[bytes, Mask] = {}
        self._free: dict[str, FreeResource] = {}

    def __len__(self) -> int:
        return len(self.clusters)

    def with_names(self, names: Iterable[str]) -> Mask:
        """The rows of these clusters; names of others are ignored."""
        mask = np.zeros(len(self.clusters), bool)
        mask[[self.row_of[name] for name in names if name in self.row_of]] = True
        return mask

    def matching(self, affinity: ClusterAffinity) -> Mask:
        """The rows that an affinity matches."""
        key = msgspec.json.encode(affinity)
        found = self._matching.get(key)
        if found is None:
            if len(self._matching) >= MAX_CACHED:
                self._matching.clear()
            matcher = AffinityMatcher(affinity)
            found = self._matching[key] = _mask(map(matcher.matches, self.clusters))
            found.flags.writeable = False
        return found

    def free(self, resource: str) -> FreeResource:
        """What is free of a resource; nothing where there is no summary."""
        found = self._free.get(resource)
        if found is None:
            summaries = [one.status.resource_summary for one in self.clusters]
            nano = [0 if one is None else free_nano(one, resource) for one in summaries]
            found = self._free[resource] = FreeResource(
                _mask(one is not None and resource in one.allocatable for one in summaries),
                np.fromiter(map(whole_units, nano), np.int64, len(nano)),
                np.fromiter(map(milli_units, nano), np.int64, len(nano)),
            )
        return found

    @cached_property
    def model_groups(self) -> Sequence[ModelGroup]:
        """The clusters whose resource models can be used."""
        groups: dict[tuple[ResourceModel, ...], list[tuple[int, list[int]]]] = {}
        for row, cluster in enumerate(self.clusters):
            counts = node_counts(cluster)
            if counts is not None:
                groups.setdefault(cluster.spec.resource_models, []).append((row, counts))
        return [
            ModelGroup(
                np.array([row for row, _ in members], np.int64),
                list(grade_resources(models).values()),
                np.array([[min(count, MAX_NODES) for count in counts] for _, counts in members], np.int64),
            )
            for models, members in groups.items()
        ]

    @property
    def free_pods(self) -> Ints:
        return self.free(PODS).whole


def free_nano(summary: ResourceSummary, resource: str) -> int:
    """Allocatable without what pods use and wait for, in nano units."""
    return (
        parse_quantity(summary.allocatable.get(resource))
        - parse_quantity(summary.allocated.get(resource))
        - parse_quantity(summary.allocating.get(resource))
    )


def grade_resources(models: Sequence[ResourceModel]) -> dict[int, dict[str, int]]:
    """The resources of a node by grade, ascending: the lower bounds of its ranges."""
    return {
        model.grade: {one.name: resource_amount(one.name, one.min) for one in model.ranges}
        for model in sorted(models, key=lambda model: model.grade)
    }


def node_counts(cluster: Cluster) -> list[int] | None:
    """How many nodes a cluster has of each grade, ascending; None if its models cannot be used."""
    summary = cluster.status.resource_summary
    modelings = () if summary is None else summary.allocatable_modelings
    if not modelings or not cluster.spec.resource_models or any(one.count < 0 for one in modelings):
        return None
    counts = dict.fromkeys(sorted(model.grade for model in cluster.spec.resource_models), 0)
    for one in modelings:
        if one.grade in counts:
            counts[one.grade] += one.count
    return list(counts.values())


def observed_terms(placement: Placement, observed: str, *, with_overflow: bool) -> list[ClusterAffinity]:
    """The affinities of which one must match; empty: every cluster passes.

    Args:
        observed: the name of the affinity group in use.
        with_overflow: whether the tiers of that group belong to it, which they do for workloads.
    """
    if placement.cluster_affinity is not None:
        return [placement.cluster_affinity]
    term = placement.term(observed)
    if term is None:
        return []
    return [term, *((term.overflow_affinities or ()) if with_overflow else ())]


class AffinityMatcher:
    """A cluster affinity, compiled. A selector that does not parse matches nothing."""

    def __init__(self, affinity: ClusterAffinity) -> None:
        self._names = frozenset(affinity.cluster_names)
        self._excluded = frozenset(affinity.exclude)
        self._labels: Selector | None = None
        self._fields: Selector | None = None
        self._zones: tuple[LabelSelectorRequirement, ...] = ()
        self._is_valid = True
        try:
            if affinity.label_selector is not None:
                self._labels = compile_selector(affinity.label_selector)
            if affinity.field_selector is not None:
                self._fields, self._zones = _compile_fields(affinity.field_selector)
        except SelectorError:
            self._is_valid = False

    def matches(self, cluster: Cluster) -> bool:
        spec = cluster.spec
        return (
            self._is_valid
            and (not self._names or cluster.name in self._names)
            and cluster.name not in self._excluded
            and (self._labels is None or self._labels.matches(cluster.labels))
            and all(_zone_matches(one, spec.zones) for one in self._zones)
            and (self._fields is None or self._fields.matches(_fields_of(spec.provider, spec.region)))
        )


def affinity_matches(affinity: ClusterAffinity, cluster: Cluster) -> bool:
    """Whether an affinity matches one cluster."""
    return AffinityMatcher(affinity).matches(cluster)


def _fields_of(provider: str, region: str) -> Mapping[str, str]:
    return {key: text for key, text in (("provider", provider), ("region", region)) if text}


def _compile_fields(
    selector: FieldSelector,
) -> tuple[Selector, tuple[LabelSelectorRequirement, ...]]:
    """Requirements on provider and region, and those on zones, which a cluster has several of."""
    zones, others = [], []
    for expression in selector.match_expressions:
        if expression.key == ZONE_FIELD:
            zones.append(expression)
            continue
        try:
            operator = Operator(expression.operator)
        except ValueError as error:
            raise SelectorError(f"{expression.operator!r} is not an operator") from error
        problems = requirement_problems(expression.key, operator, expression.values)
        if problems:
            raise SelectorError(problems[0])
        others.append(Requirement(expression.key, operator, frozenset(expression.values)))
    return Selector(tuple(others)), tuple(zones)


def _zone_matches(expression: LabelSelectorRequirement, zones: Sequence[str]) -> bool:
    named = not set(expression.values).isdisjoint(zones)
    match expression.operator:
        case Operator.IN:
            return named
        case Operator.NOT_IN:
            return not named
        case Operator.EXISTS:
            return bool(zones)
        case Operator.DOES_NOT_EXIST:
            return not zones
        case _:
            return False


def _mask(flags: Iterable[bool]) -> Mask:
    return np.fromiter(flags, bool)


def _ranks(names: Sequence[str]) -> Ints:
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


def _interned(values: Iterable[KeyT]) -> tuple[Ints, list[KeyT]]:
    ids: dict[KeyT, int] = {}
    column = np.fromiter((ids.setdefault(value, len(ids)) for value in values), np.int64)
    return column, list(ids)


def _taint_list(cluster: Cluster) -> tuple[Taint, ...]:
    return cluster.spec.taints


def _apis(cluster: Cluster) -> frozenset[tuple[str, str]]:
    return frozenset(
        (group.group_version, resource.kind)
        for group in cluster.status.api_enablements
        for resource in group.resources
    )
