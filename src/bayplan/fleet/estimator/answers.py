"""The answers of the estimator: from a pod of the workload if one is found, otherwise from requests alone.

A request carries requests, node selectors and tolerations, but no pod. Its metadata names the workload, so
its pods are looked up in the member, and then in the other members of this process. If the pod found has
the requests and selectors of the request, copies of it are scheduled on a branch, so that affinity,
spreading, ports, volumes, devices and quotas count. Otherwise the answer is that of Karmada's own
estimator: node by node, by requests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from bayplan.answers.whatif.cluster import Branch, Cluster
from bayplan.answers.whatif.scaling import pods_of_workload
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Affinity, Container, NodeAffinity, Pod, PodSpec, ResourceRequirements
from bayplan.api.quantity import resource_amounts
from bayplan.api.workloads import ReplicaSet, ResourceQuota
from bayplan.errors import BayplanError
from bayplan.fleet.estimator.wire import (
    AssumedWorkload,
    ReplicasRequest,
    SetsRequest,
    UnschedulableRequest,
    decode_replicas_request,
    decode_sets_request,
    decode_unschedulable_request,
)
from bayplan.fleet.karmada.kinds import MAX_INT32, ReplicaRequirements
from bayplan.fleet.karmada.summary import node_estimate, node_estimate_sets
from bayplan.fleet.karmada.templates import requirements_of
from bayplan.fleet.room import create_namespace, has_own_rules

AT_MOST: Final = 1000
"""Copies to schedule for one answer: within Karmada's 3 s on 5,000 nodes."""
MAX_CACHED: Final = 1000

TEMPLATE, REQUESTS = "template", "requests"
"""What an answer was computed from."""

_OBJECT: Final = re.compile(r"kind=(?P<kind>[^,]*), name=(?P<namespace>[^/]*)/(?P<name>.*)")
_OTHER_CLUSTER: Final = "cluster name does not match, got: {got}, desire: {known}"
_NOT_SYNCED: Final = "cluster {name} has not been read completely yet"
_NOT_SUPPORTED: Final = "kind({kind}) of workload({namespace}/{name}) is not supported"


class EstimateError(BayplanError):
    """A request cannot be answered; the text goes to the client."""


class EstimatedMember(Protocol):
    """A member as the estimator needs it (`live.LiveMember`)."""

    name: str
    cluster: Cluster
    changes: int
    is_synced: bool


@dataclass(slots=True)
class Estimates:
    """Answers requests about the members."""

    members: Sequence[EstimatedMember]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    answered: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Answers by cluster, method and what they were computed from."""
    _cache: dict[tuple[str, bytes, str], tuple[int, int, str]] = field(default_factory=dict)

    def max_available_replicas(self, data: bytes, metadata: str = "") -> int:
        """How many more replicas fit.

        Args:
            metadata: the workload, as Karmada's client names it.

        Raises:
            BayplanError: the request is malformed, or about another cluster.
        """
        request = decode_replicas_request(data)
        member = self._member(request.cluster)
        # Which pod is found depends on all members.
        changes = sum(one.changes for one in self.members)
        key = member.name, data, metadata
        found = self._cache.get(key)
        if found is None or found[0] != changes:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            found = self._cache[key] = (changes, *self._replicas(member, request, metadata))
        self.answered[member.name, "MaxAvailableReplicas", found[2]] += 1
        return found[1]

    def _replicas(self, member: EstimatedMember, request: ReplicasRequest, metadata: str) -> tuple[int, str]:
        pod = self._pod(member, metadata, request.requirements)
        with member.cluster.branch() as branch:
            _assume(branch, request.assumed)
            by_requests = node_estimate(branch.columns, request.requirements)
            if pod is None:
                return by_requests, REQUESTS
            create_namespace(branch, pod.namespace)
            counted = branch.capacity(pod, at_most=AT_MOST)
            if counted.is_limit or _has_limits(branch, pod):
                return min(counted.count, MAX_INT32), TEMPLATE
            # More fit than were counted, and nothing but requests limits them.
            return by_requests, TEMPLATE

    def max_available_sets(self, data: bytes) -> int:
        """How many sets of components fit. Raises BayplanError, as `max_available_replicas`."""
        request: SetsRequest = decode_sets_request(data)
        member = self._member(request.cluster)
        with member.cluster.branch() as branch:
            _assume(branch, request.assumed)
            found = node_estimate_sets(branch.columns, request.components)
        self.answered[member.name, "MaxAvailableComponentSets", REQUESTS] += 1
        return found

    def unschedulable_replicas(self, data: bytes) -> int:
        """Pods of a Deployment's newest ReplicaSet that have been unschedulable for longer than a
        threshold."""
        request: UnschedulableRequest = decode_unschedulable_request(data)
        member = self._member(request.cluster)
        if request.kind != "Deployment":
            raise EstimateError(
                _NOT_SUPPORTED.format(kind=request.kind, namespace=request.namespace, name=request.name)
            )
        sets = [
            one
            for one in member.cluster.objects_of(ReplicaSet)
            if one.namespace == request.namespace
            and (owner := one.metadata.controller()) is not None
            and (owner.kind, owner.name) == ("Deployment", request.name)
        ]
        newest = max(sets, key=_creation, default=None)
        threshold = timedelta(microseconds=max(0, request.threshold_nanos) / 1000)
        found = 0
        for pod in member.cluster.pods:
            owner = pod.metadata.controller()
            if newest is not None and owner is not None and owner.uid == newest.uid:
                found += _is_unschedulable(pod, self.now() - threshold)
        self.answered[member.name, "GetUnschedulableReplicas", TEMPLATE] += 1
        return found

    def _member(self, name: str) -> EstimatedMember:
        for one in self.members:
            if one.name == name:
                if not one.is_synced:
                    raise EstimateError(_NOT_SYNCED.format(name=name))
                return one
        known = ", ".join(one.name for one in self.members)
        raise EstimateError(_OTHER_CLUSTER.format(got=name, known=known))

    def _pod(
        self, member: EstimatedMember, metadata: str, requirements: ReplicaRequirements | None
    ) -> Pod | None:
        """A pod of the workload with these requirements, from the member itself if it has one."""
        named = _OBJECT.fullmatch(metadata)
        if named is None:
            return None
        others = [one for one in self.members if one is not member and one.is_synced]
        for one in (member, *others):
            pods = pods_of_workload(
                named["namespace"], named["name"], one.cluster.pods, one.cluster.objects_of(ReplicaSet)
            )
            for pod in pods:
                made = one.cluster.as_created(pod)
                if same_requirements(requirements_of(made), requirements):
                    return made
        return None


def same_requirements(known: ReplicaRequirements | None, asked: ReplicaRequirements | None) -> bool:
    """Whether a pod needs what a request says: otherwise its template has changed since.

    Tolerations are not compared, because an API server adds some to every pod.
    """
    one, other = known or ReplicaRequirements(), asked or ReplicaRequirements()
    if _positive(one) != _positive(other):
        return False
    left, right = one.node_claim, other.node_claim
    return (left.node_selector if left else {}) == (right.node_selector if right else {}) and (
        left.hard_node_affinity if left else None
    ) == (right.hard_node_affinity if right else None)


def _positive(requirements: ReplicaRequirements) -> dict[str, int]:
    amounts = resource_amounts(requirements.resource_request)
    return {name: amount for name, amount in amounts.items() if amount > 0}


def _has_limits(branch: Branch, pod: Pod) -> bool:
    """Whether something besides requests may limit copies of a pod that have not been counted."""
    quotas = any(one.namespace == pod.namespace for one in branch.objects_of(ResourceQuota))
    return quotas or has_own_rules(pod)


def _assume(branch: Branch, assumed: Sequence[AssumedWorkload]) -> None:
    """Places what Karmada has just assigned to the cluster."""
    for number, workload in enumerate(assumed):
        for part, component in enumerate(workload.components):
            pod = _pod_of(component.replica_requirements, workload.namespace, f"assumed-{number}-{part}")
            create_namespace(branch, pod.namespace)
            if component.replicas:
                branch.schedule(branch.add(pod, replicas=component.replicas))


def _pod_of(requirements: ReplicaRequirements | None, namespace: str, name: str) -> Pod:
    required = requirements or ReplicaRequirements()
    claim = required.node_claim
    affinity = None
    if claim is not None and claim.hard_node_affinity is not None:
        affinity = Affinity(node_affinity=NodeAffinity(required=claim.hard_node_affinity))
    resources = ResourceRequirements(requests=required.resource_request)
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace or "default"),
        spec=PodSpec(
            containers=(Container(name="assumed", resources=resources),),
            node_selector=dict(claim.node_selector) if claim is not None else None,
            tolerations=() if claim is None else claim.tolerations,
            affinity=affinity,
        ),
    )


def _is_unschedulable(pod: Pod, before: datetime) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            since = condition.last_transition_time
            return condition.reason == "Unschedulable" and since is not None and since < before
    return False


def _creation(one: ReplicaSet) -> float:
    created = one.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()
