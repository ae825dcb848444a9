"""Clusters with devices and claims, and pods that use them, for DynamicResources."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from bayplan.api.pod import PodResourceClaim, PodResourceClaimStatus
from bayplan.api.releases import V1_36
from bayplan.plugin import Cluster, FilterOutcome, Object, Pod, Release, Status, unresolvable
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.scheduler.core import CoreHandle
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)

from ..evaluating import Evaluation

CLASS = make_device_class("gpu")
REQUEST = make_device_request("gpu", "gpu")
CLAIM = make_resource_claim("c", REQUEST)
ALLOCATED = make_resource_claim("c", REQUEST, allocated=[make_allocated_device("gpu-0", "n")])
ON_A = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_fields=(LabelSelectorRequirement(key="metadata.name", operator="In", values=("a",)),)
        ),
    )
)

plain = make_pod()
claiming = make_pod(resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="c"),))
templated = make_pod(
    "t", uid="u", resource_claims=(PodResourceClaim(name="gpu", resource_claim_template_name="x"),)
)


def created(pod: Pod, name: str | None) -> Pod:
    """The pod once the controller has created its claim."""
    status = PodResourceClaimStatus(name="gpu", resource_claim_name=name)
    return replace(pod, status=replace(pod.status, resource_claim_statuses=(status,)))


def gpus(node: str, count: int = 1, **fields: Any) -> Object:
    devices = (make_device(f"gpu-{number}", **fields) for number in range(count))
    return make_resource_slice(f"slice-{node}", *devices, node=node)


def cluster_with(*objects: Object, nodes: tuple[str, ...] = ("a", "b"), release: Release = V1_36) -> Cluster:
    cluster = Cluster(release)
    for name in nodes:
        cluster.set_node(make_node(name))
    for item in (CLASS, *objects):
        cluster.objects.put(item)
    return cluster


def plugin_on(cluster: Cluster) -> DynamicResources:
    return DynamicResources(None, CoreHandle(cluster))


def evaluate(pod: Pod, cluster: Cluster) -> Evaluation:
    return Evaluation(plugin_on(cluster), pod, cluster)


def post_filter(
    evaluation: Evaluation, reason: str = "", pre_filtered: frozenset[str] | None = None
) -> Status:
    """The status of PostFilter where every node was rejected for this reason."""
    rejected = unresolvable(reason).by("DynamicResources")
    rows = evaluation.nodes.rows
    diagnosis = SimpleNamespace(statuses=lambda: [(rejected, rows)])
    outcome = SimpleNamespace(
        pre_filtered={"DynamicResources"} if pre_filtered is None else pre_filtered,
        diagnosis=diagnosis,
        cluster=evaluation.cluster,
    )
    status: Status = evaluation.plugin.post_filter(
        evaluation.state, evaluation.pod, cast(FilterOutcome, outcome)
    ).status
    return status
