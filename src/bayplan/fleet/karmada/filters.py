"""Which clusters may take a workload: Karmada's filter plugins, each applied to all clusters.

karmada-scheduler stops at the first plugin that rejects a cluster, in an order that is random per process.
Here the order is fixed, every plugin is applied to every cluster, and all reasons are reported; messages
that have one reason per cluster take the first in this order.

A cluster that has the workload already is not rejected for its taints, APIs or workload affinity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.api.pod import any_tolerates
from bayplan.fleet.karmada.clusters import ClusterTable, Mask, observed_terms
from bayplan.fleet.karmada.kinds import BindingSpec, Placement, ResourceBinding

NO_API: Final = "cluster(s) did not have the API resource"
UNTOLERATED: Final = "cluster(s) had untolerated taint {{{taint}}}"
NO_AFFINITY_MATCH: Final = "cluster(s) did not match the placement cluster affinity constraint"
NO_PROPERTY: Final = {
    "provider": "cluster(s) did not have provider property",
    "region": "cluster(s) did not have region property",
    "zone": "cluster(s) did not have zones property",
}
IN_EVICTION: Final = "cluster(s) is in the process of eviction"
AFFINITY_GROUP: Final = "ResourceBinding with the same affinity group does not target this cluster"
ANTI_AFFINITY_GROUP: Final = "cluster already has workload with the same anti-affinity group"
NO_FIT: Final = "0/{total} clusters are available: {reasons}."
NO_CLUSTER: Final = "no cluster exists"

REJECTING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Rejection:
    """The clusters that one plugin rejects for one reason."""

    plugin: str
    reason: str
    rows: Mask


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Which clusters are feasible, and every reason of the others."""

    clusters: ClusterTable
    feasible: Mask
    rejections: tuple[Rejection, ...]

    def reasons(self, row: int) -> list[tuple[str, str]]:
        """Every plugin that rejects the cluster, and its reason."""
        return [(one.plugin, one.reason) for one in self.rejections if one.rows[row]]

    def message(self) -> str:
        """Karmada's text if no cluster is feasible, with one reason for each cluster."""
        counts: Counter[str] = Counter()
        left = ~self.clusters.deleting
        for one in self.rejections:
            counts[one.reason] += int(np.count_nonzero(one.rows & left))
            left = left & ~one.rows
        texts = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
        return NO_FIT.format(total=len(self.clusters), reasons=", ".join(texts) or NO_CLUSTER)


def filter_clusters(
    spec: BindingSpec,
    clusters: ClusterTable,
    observed: str,
    others: Sequence[ResourceBinding] | None = None,
) -> FilterResult:
    """Applies all filters.

    Args:
        observed: the name of the affinity group in use.
        others: the bindings of the control plane, for workload affinity; None: the feature is off.
    """
    placement = spec.placement or Placement()
    previous = clusters.with_names(target.name for target in spec.clusters)
    found = [
        *_without_api(spec, clusters, previous),
        *_tainted(placement, clusters, previous),
        *_outside_affinity(placement, clusters, observed, spec.is_workload),
        *_without_property(placement, clusters),
        *_in_eviction(spec, clusters),
        *(_outside_groups(spec, clusters, previous, others) if others is not None else ()),
    ]
    rejections = tuple(one for one in found if one.rows.any())
    feasible = ~clusters.deleting
    for one in rejections:
        feasible &= ~one.rows
    return FilterResult(clusters, feasible, rejections)


def _without_api(spec: BindingSpec, clusters: ClusterTable, previous: Mask) -> Iterator[Rejection]:
    wanted = spec.resource.api_version, spec.resource.kind
    absent = np.array([wanted not in apis for apis in clusters.api_sets], bool)
    if absent.any():
        yield Rejection("APIEnablement", NO_API, absent[clusters.api_ids] & ~previous)


def _tainted(placement: Placement, clusters: ClusterTable, previous: Mask) -> Iterator[Rejection]:
    for number, taints in enumerate(clusters.taint_lists):
        for taint in taints:
            if taint.effect in REJECTING_EFFECTS and not any_tolerates(placement.cluster_tolerations, taint):
                rows = (clusters.taint_ids == number) & ~previous
                yield Rejection("TaintToleration", UNTOLERATED.format(taint=taint), rows)
                break


def _outside_affinity(
    placement: Placement, clusters: ClusterTable, observed: str, is_workload: bool
) -> Iterator[Rejection]:
    terms = observed_terms(placement, observed, with_overflow=is_workload)
    if terms:
        matching = np.logical_or.reduce([clusters.matching(term) for term in terms])
        yield Rejection("ClusterAffinity", NO_AFFINITY_MATCH, ~matching)


def _without_property(placement: Placement, clusters: ClusterTable) -> Iterator[Rejection]:
    has = {"provider": clusters.has_provider, "region": clusters.has_region, "zone": clusters.has_zones}
    left = np.ones(len(clusters), bool)
    for constraint in placement.spread_constraints:
        field = constraint.spread_by_field
        if field in has:
            yield Rejection("SpreadConstraint", NO_PROPERTY[field], left & ~has[field])
            left = left & has[field]


def _in_eviction(spec: BindingSpec, clusters: ClusterTable) -> Iterator[Rejection]:
    if spec.graceful_eviction_tasks:
        rows = clusters.with_names(task.from_cluster for task in spec.graceful_eviction_tasks)
        yield Rejection("ClusterEviction", IN_EVICTION, rows)


def _outside_groups(
    spec: BindingSpec, clusters: ClusterTable, previous: Mask, others: Sequence[ResourceBinding]
) -> Iterator[Rejection]:
    groups, own_name = spec.workload_affinity_groups, binding_name(spec.resource.kind, spec.resource.name)
    neighbours = [
        one
        for one in others
        if one.namespace == spec.resource.namespace and one.name != own_name and one.spec.clusters
    ]
    rejected = np.zeros(len(clusters), bool)
    for one in neighbours:
        if (
            groups.affinity_group
            and one.spec.workload_affinity_groups.affinity_group == groups.affinity_group
        ):
            rejected |= ~clusters.with_names(target.name for target in one.spec.clusters)
    yield Rejection("WorkloadAffinity", AFFINITY_GROUP, rejected & ~previous)
    rejected = np.zeros(len(clusters), bool)
    anti = groups.anti_affinity_group
    for one in neighbours:
        if anti and one.spec.workload_affinity_groups.anti_affinity_group == anti:
            rejected |= clusters.with_names(target.name for target in one.spec.clusters)
    yield Rejection("WorkloadAntiAffinity", ANTI_AFFINITY_GROUP, rejected & ~previous)


def binding_name(kind: str, name: str) -> str:
    """The name of the binding of an object."""
    return f"{name.replace(':', '.')}-{kind}".lower()
