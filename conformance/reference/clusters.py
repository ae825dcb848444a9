"""Scenarios of cluster-level scheduling (`conformance/clusters`), evaluated by `bayplan.fleet.karmada`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from bayplan.api.decode import decode_object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.fleet.karmada.binding import attempt
from bayplan.fleet.karmada.clusters import ClusterTable, affinity_matches
from bayplan.fleet.karmada.division import webster
from bayplan.fleet.karmada.estimate import GeneralEstimator
from bayplan.fleet.karmada.kinds import (
    APPLIED_PLACEMENT,
    BindingSpec,
    BindingStatus,
    Cluster,
    ClusterAffinity,
    Component,
    Placement,
    PropagationPolicy,
    ReplicaRequirements,
    ResourceBinding,
    decode_karmada,
)
from bayplan.fleet.karmada.schedule import Options, schedule
from bayplan.fleet.karmada.spread import ANY, Candidates, select_clusters
from bayplan.fleet.karmada.summary import node_estimate, resource_summary
from bayplan.fleet.karmada.templates import claiming_policy
from bayplan.state.cluster import Cluster as Columns

Json = dict[str, Any]


def evaluate(vector: Json) -> Json:
    """The result of one scenario."""
    return _KINDS[vector["kind"]](vector["input"], vector.get("gates") or {})


def _table(clusters: list[Json]) -> ClusterTable:
    return ClusterTable(decode_karmada(Cluster, one) for one in clusters)


def _general(gates: Mapping[str, bool]) -> GeneralEstimator:
    return GeneralEstimator(with_models=gates.get("CustomizedClusterResourceModeling", True))


def _schedule(given: Json, gates: Mapping[str, bool]) -> Json:
    spec = decode_karmada(BindingSpec, given["binding"]["spec"])
    status = decode_karmada(BindingStatus, given["binding"].get("status") or {})
    others = None
    if gates.get("WorkloadAffinity"):
        others = [decode_karmada(ResourceBinding, one) for one in given.get("otherBindings") or ()]
    result = schedule(
        spec,
        _table(given["clusters"]),
        observed=status.scheduler_observing_affinity_name,
        estimators=[_general(gates)],
        others=others,
        options=Options(
            components=gates.get("MultiplePodTemplatesScheduling", False),
            empty_workload_propagation=given.get("enableEmptyWorkloadPropagation", False),
        ),
        fresh=(
            spec.reschedule_triggered_at is not None
            and status.last_scheduled_time is not None
            and spec.reschedule_triggered_at > status.last_scheduled_time
        ),
    )
    if result.reason is not None:
        return {"error": result.error, "reason": result.reason.value}
    found: Json = {"clusters": result.replicas, "order": [one.name for one in result.targets]}
    parts = {
        one.name: [{"name": part.name, "replicas": part.replicas} for part in one.components]
        for one in result.targets
        if one.components
    }
    return {**found, "components": parts} if parts else found


def _select(given: Json, gates: Mapping[str, bool]) -> Json:
    clusters, placement = given["clusters"], decode_karmada(Placement, given["placement"])
    previous = {one["name"]: one.get("replicas", 0) for one in given.get("previous") or ()}
    names = [one["name"] for one in clusters]
    rank = {name: place for place, name in enumerate(sorted(names))}
    candidates = Candidates(
        np.arange(len(names)),
        np.array([rank[name] for name in names], np.int64),
        np.zeros(len(names), np.int64),
        np.array([one["score"] for one in clusters], np.int64),
        np.array([one["allocatable"] + previous.get(one["name"], 0) for one in clusters], np.int64),
        [one.get("region", "") for one in clusters],
    )
    replicas = given["replicas"]
    need = ANY if placement.is_duplicated else replicas
    found = select_clusters(candidates, placement, replicas, need)
    result: Json = {"sorted": [names[one] for one in found.ranked]}
    if found.region_scores:
        result["regionScores"] = dict(found.region_scores)
    if found.error:
        return {**result, "error": found.error}
    return {**result, "selected": [names[one] for one in found.selected]}


def _divide(given: Json, gates: Mapping[str, bool]) -> Json:
    return {"replicas": webster(given["replicas"], given["weights"], given.get("uid", ""))}


def _estimate(given: Json, gates: Mapping[str, bool]) -> Json:
    table = _table(given["clusters"])
    requirements = given.get("replicaRequirements")
    decoded = None if requirements is None else decode_karmada(ReplicaRequirements, requirements)
    counts = _general(gates).replicas(table, decoded)
    return {"available": dict(zip(table.names, map(int, counts), strict=True))}


def _estimate_sets(given: Json, gates: Mapping[str, bool]) -> Json:
    clusters = [decode_karmada(Cluster, one) for one in given["clusters"]]
    components = [decode_karmada(Component, one) for one in given["components"]]
    return {"sets": {one.name: _general(gates).sets(one, components) for one in clusters}}


def _match(given: Json, gates: Mapping[str, bool]) -> Json:
    affinity = decode_karmada(ClusterAffinity, given["affinity"])
    return {"match": affinity_matches(affinity, decode_karmada(Cluster, given["cluster"]))}


def _policy(given: Json, gates: Mapping[str, bool]) -> Json:
    policies = [decode_karmada(PropagationPolicy, one) for one in given["policies"]]
    found = claiming_policy(given["resource"], policies)
    return {"policy": None if found is None else found.name}


def _flow(given: Json, gates: Mapping[str, bool]) -> Json:
    binding = decode_karmada(ResourceBinding, given["binding"])
    made = attempt(binding, _table(given["clusters"]), estimators=[_general(gates)])
    # The scenario writes the annotation with spaces, so that it only stays the same if it is empty.
    applied, placement = binding.annotations.get(APPLIED_PLACEMENT), given["binding"]["spec"]["placement"]
    is_same = applied == json.dumps(placement, separators=(",", ":"))
    texts = [f"event: {one}" for one in dict.fromkeys(made.events)]
    found: Json = {
        "clusters": {one.name: one.replicas for one in made.targets},
        "observedAffinity": made.observed_affinity,
        "lastScheduledTimeChanged": made.is_scheduled,
        "appliedPlacementChanged": made.placement_applied and not is_same,
        "observedGeneration": binding.metadata.generation
        if made.generation_observed
        else binding.status.scheduler_observed_generation,
    }
    if made.condition is not None:
        found["condition"] = {"status": made.condition.status, "reason": made.condition.reason}
        texts.append(f"condition: {made.condition.message}")
    if made.retry is not None:
        found["retry"] = made.retry.value
    return {**found, "texts": texts}


def _accurate(given: Json, gates: Mapping[str, bool]) -> Json:
    requirements = decode_karmada(ReplicaRequirements, given.get("replicaRequirements") or {})
    columns = Columns()
    for node in _nodes(given):
        columns.set_node(node)
    for pod in _pods(given):
        if pod.spec.node_name and not pod.is_finished:
            columns.add_pod(pod, pod.spec.node_name)
    return {"maxReplicas": node_estimate(columns, requirements)}


def _summary(given: Json, gates: Mapping[str, bool]) -> Json:
    cluster = decode_karmada(Cluster, given["cluster"])
    found = resource_summary(_nodes(given), _pods(given), cluster.spec.resource_models)
    modelings = [{"grade": one.grade, "count": one.count} for one in found.allocatable_modelings]
    return {"resourceSummary": {**msgspec.to_builtins(found), "allocatableModelings": modelings}}


def _nodes(given: Json) -> list[Node]:
    decoded = [decode_object({"apiVersion": "v1", "kind": "Node", **one}) for one in given["nodes"] or ()]
    return [one for one in decoded if isinstance(one, Node)]


def _pods(given: Json) -> list[Pod]:
    decoded = [decode_object({"apiVersion": "v1", "kind": "Pod", **one}) for one in given["pods"] or ()]
    return [one for one in decoded if isinstance(one, Pod)]


_KINDS: Final[Mapping[str, Callable[[Json, Mapping[str, bool]], Json]]] = {
    "accurate": _accurate,
    "divide": _divide,
    "estimate": _estimate,
    "estimateSets": _estimate_sets,
    "flow": _flow,
    "match": _match,
    "policy": _policy,
    "schedule": _schedule,
    "select": _select,
    "summary": _summary,
}
