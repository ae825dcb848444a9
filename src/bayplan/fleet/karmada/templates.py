"""From a workload to its binding: which policy claims it, how many replicas it has, and what a replica needs.

Pod affinity, topology spread, host ports, volumes and devices are not part of a binding: no estimator of
Karmada can see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from bayplan.api.meta import Content, LabelSelector, ObjectReference, Quantity
from bayplan.api.pod import Container, Pod, PodSpec
from bayplan.api.selectors import compile_selector
from bayplan.errors import SelectorError
from bayplan.fleet.karmada.kinds import (
    DIVIDED,
    WEIGHTED,
    BindingSpec,
    NodeClaim,
    Placement,
    PropagationPolicy,
    ReplicaRequirements,
    ResourceSelector,
    SpreadConstraint,
    WorkloadAffinityGroups,
)
from bayplan.fleet.karmada.summary import request_texts, requested_amounts

_BY_NAME, _BY_LABELS, _BY_KIND, _NO_MATCH = 3, 2, 1, 0
_WITH_REPLICAS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})


def claiming_policy(resource: Content, policies: Iterable[PropagationPolicy]) -> PropagationPolicy | None:
    """Of policies of one scope, the one that claims an object: by priority, then how exactly it names the
    object, then by name."""
    ranked = [
        (-policy.spec.priority, -matched, policy.name, policy)
        for policy in policies
        if policy.metadata.deletion_timestamp is None
        if (matched := max((_match(resource, one) for one in policy.spec.resource_selectors), default=0))
    ]
    return min(ranked, key=lambda one: one[:3])[3] if ranked else None


def policy_of(resource: Content, policies: Sequence[PropagationPolicy]) -> PropagationPolicy | None:
    """The policy that claims an object: one of its namespace, otherwise one for the whole control plane."""
    namespace = (resource.get("metadata") or {}).get("namespace", "")
    own = [one for one in policies if one.namespace and one.namespace == namespace]
    everywhere = [one for one in policies if not one.namespace]
    return claiming_policy(resource, own) or claiming_policy(resource, everywhere)


def _match(resource: Content, selector: ResourceSelector) -> int:
    meta = resource.get("metadata") or {}
    if selector.api_version != resource.get("apiVersion") or selector.kind != resource.get("kind"):
        return _NO_MATCH
    if selector.namespace and selector.namespace != meta.get("namespace", ""):
        return _NO_MATCH
    if selector.name:
        return _BY_NAME if selector.name == meta.get("name") else _NO_MATCH
    if selector.label_selector is not None:
        return _BY_LABELS if _selects(selector.label_selector, meta.get("labels") or {}) else _NO_MATCH
    return _BY_KIND


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    try:
        return compile_selector(selector).matches(labels)
    except SelectorError:
        return False


def with_placement_defaults(placement: Placement) -> Placement:
    """A placement with the defaults that Karmada's webhook sets."""
    constraints = tuple(
        msgspec.structs.replace(
            one,
            spread_by_field="cluster"
            if not (one.spread_by_field or one.spread_by_label)
            else one.spread_by_field,
            min_groups=one.min_groups or 1,
        )
        for one in placement.spread_constraints
    )
    scheduling = placement.replica_scheduling
    if scheduling is not None and scheduling.replica_scheduling_type == DIVIDED:
        preference = scheduling.replica_division_preference or WEIGHTED
        scheduling = msgspec.structs.replace(scheduling, replica_division_preference=preference)
    return msgspec.structs.replace(placement, spread_constraints=constraints, replica_scheduling=scheduling)


def placement_problems(placement: Placement) -> list[str]:
    """What Karmada's webhook rejects about a placement."""
    problems = []
    if placement.cluster_affinity is not None and placement.cluster_affinities:
        problems.append("clusterAffinity and clusterAffinities cannot be used together")
    names = [term.affinity_name for term in placement.cluster_affinities]
    if len(set(names)) < len(names):
        problems.append("clusterAffinities: an affinityName occurs twice")
    scheduling = placement.replica_scheduling
    weights = None if scheduling is None else scheduling.weight_preference
    is_dynamic = scheduling is not None and (
        scheduling.replica_division_preference == "Aggregated"
        or (weights is not None and bool(weights.dynamic_weight))
    )
    if any(term.overflow_affinities for term in placement.cluster_affinities) and not is_dynamic:
        problems.append("overflowAffinities need replicas that are Divided, Aggregated or by dynamicWeight")
    problems += _spread_problems(placement.spread_constraints)
    return problems


def _spread_problems(constraints: Sequence[SpreadConstraint]) -> list[str]:
    problems = []
    fields = [one.spread_by_field for one in constraints if one.spread_by_field]
    if len(set(fields)) < len(fields):
        problems.append("spreadConstraints: a spreadByField occurs twice")
    if fields and "cluster" not in fields:
        problems.append("spreadConstraints: one with spreadByField cluster is missing")
    for one in constraints:
        if one.spread_by_field and one.spread_by_label:
            problems.append("spreadConstraints: spreadByField and spreadByLabel cannot be used together")
        if min(one.min_groups, one.max_groups) < 0:
            problems.append("spreadConstraints: minGroups and maxGroups must not be negative")
        elif 0 < one.max_groups < one.min_groups:
            problems.append("spreadConstraints: maxGroups must not be less than minGroups")
    return problems


# Bindings


def replicas_of(workload: Content) -> int:
    """How many replicas Karmada counts for an object."""
    spec = workload.get("spec") or {}
    kind = workload.get("kind")
    if kind == "Pod":
        return 1
    if kind == "Job":
        parallelism = int(spec.get("parallelism", 1))
        return min(parallelism, int(spec.get("completions", parallelism)))
    return int(spec.get("replicas") or 0) if kind in _WITH_REPLICAS else 0


def requirements_of(pod: Pod) -> ReplicaRequirements | None:
    """What a binding says about the pods of a workload; None if they need nothing in particular."""
    spec = pod.spec
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    required = None if affinity is None else affinity.required
    claim = None
    if spec.node_selector or required is not None or spec.tolerations:
        claim = NodeClaim(
            hard_node_affinity=required,
            node_selector=spec.node_selector or {},
            tolerations=spec.tolerations,
        )
    request = _requests(spec)
    if claim is None and not request:
        return None
    return ReplicaRequirements(
        node_claim=claim,
        resource_request=request,
        namespace=pod.namespace,
        priority_class_name=spec.priority_class_name,
    )


def _requests(spec: PodSpec) -> dict[str, Quantity]:
    """The sum of the containers, at least that of each init container, and the overhead; sidecars are not
    special."""
    total: dict[str, int] = {}
    for container in spec.containers:
        for name, amount in _needs(container).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.init_containers:
        for name, amount in _needs(container).items():
            total[name] = max(total.get(name, 0), amount)
    for name, amount in requested_amounts(spec.overhead).items():
        total[name] = total.get(name, 0) + amount
    return request_texts(total)


def _needs(container: Container) -> Mapping[str, int]:
    return requested_amounts({**container.resources.limits, **container.resources.requests})


def binding_spec(
    workload: Content, pod: Pod | None, placement: Placement, *, replicas: int | None = None
) -> BindingSpec:
    """The binding of a workload.

    Args:
        pod: what its template makes; None for objects without pods.
        replicas: instead of those that the workload states.
    """
    meta: dict[str, Any] = workload.get("metadata") or {}
    labels = meta.get("labels") or {}
    affinity = placement.workload_affinity

    def group(term: Any) -> str:
        key = "" if term is None else term.group_by_label_key
        return f"{key}={labels[key]}" if key in labels else ""

    return BindingSpec(
        resource=ObjectReference(
            api_version=str(workload.get("apiVersion", "")),
            kind=str(workload.get("kind", "")),
            namespace=str(meta.get("namespace", "")),
            name=str(meta.get("name", "")),
            uid=str(meta.get("uid", "")),
        ),
        replicas=replicas_of(workload) if replicas is None else replicas,
        replica_requirements=None if pod is None else requirements_of(pod),
        placement=placement,
        workload_affinity_groups=WorkloadAffinityGroups()
        if affinity is None
        else WorkloadAffinityGroups(
            affinity_group=group(affinity.affinity), anti_affinity_group=group(affinity.anti_affinity)
        ),
    )
