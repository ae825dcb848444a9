"""CapacityScheduling: namespaces share a cluster by elastic quotas.

An ElasticQuota guarantees a namespace its `min` and limits it to its `max`. What one namespace does not use
of its `min`, others may borrow: a pod is scheduled as long as its namespace stays within `max`, and all
namespaces with a quota together stay within the sum of all `min`. When the lender needs its share, its pods
preempt pods of namespaces that use more than their `min`, whatever their priority. A namespace above its own
`min` preempts only its own pods of lower priority.

The rules are those of the scheduler-plugins project (docs/capacity-scheduling.md lists the differences).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from bayplan.plugin import (
    Action,
    BoolColumn,
    ClusterEventWithHint,
    CycleState,
    FilterOutcome,
    FilterPlugin,
    NodeColumns,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    Status,
    derived,
    event_with_hint,
    unschedulable,
)
from bayplan.plugin.objects import ElasticQuota, NamespaceUsage, fit_requests, resource_amounts
from bayplan.plugin.preemption import Hypothesis, MayEvict, PreemptionPlugin

OVER_MAX: Final = "namespace {namespace} would use more than the max of its ElasticQuota ({resource})"
OVER_MIN: Final = "all namespaces with an ElasticQuota would use more than the sum of their min ({resource})"
STILL_OVER: Final = "node(s) had too few pods whose eviction would free the quota"
STATE: Final = "CapacityScheduling"

Amounts = dict[str, int]


class CapacityScheduling(PreemptionPlugin, PreFilterPlugin, FilterPlugin):
    """Keeps namespaces within their elastic quotas, and preempts borrowers for lenders."""

    kinds: ClassVar = (ElasticQuota,)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            event_with_hint(Resource.POD, Action.DELETE, self.pod_deletion_helps),
            event_with_hint(Resource.ELASTIC_QUOTA, Action.ADD | Action.UPDATE | Action.DELETE),
        )

    def pod_deletion_helps(self, pod: Pod, old: Pod, new: Pod | None) -> bool:
        """A pod that was assigned or nominated gives back quota, perhaps that of all namespaces together."""
        return bool(old.spec.node_name or old.status.nominated_node_name)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        quotas = Quotas.of(nodes, pod)
        state.write(STATE, quotas)
        problem = quotas.problem()
        return unschedulable(problem) if problem else None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        """Only a dry run changes what is used: PreFilter has checked the cluster as it is."""
        quotas: Quotas = state.read(STATE)
        if quotas.own is None or not isinstance(nodes, Hypothesis):
            return
        yield Reject(quotas.over_without_victims(nodes), unschedulable(STILL_OVER))

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        found = state.get(STATE)
        # Another plugin may have ended the search before PreFilter.
        quotas = found if isinstance(found, Quotas) else Quotas.of(NodeColumns(outcome.cluster), pod)
        return lambda row, pods: quotas.victims(pod, pods)


@dataclass(slots=True)
class Quota:
    """The quota of one namespace, and what its pods use."""

    min: Amounts
    max: Amounts
    used: Amounts

    def is_over_min(self, with_: Mapping[str, int], counted: Iterable[str]) -> bool:
        """Whether it borrows, or would with this request."""
        return any(
            self.used.get(resource, 0) + with_.get(resource, 0) > self.min.get(resource, 0)
            for resource in counted
        )


@dataclass(slots=True)
class Quotas:
    """All quotas, as one pod finds them. Only resources that some quota names are counted."""

    namespace: str
    quotas: dict[str, Quota]
    counted: tuple[str, ...]
    request: Amounts
    """What the pod requests, with the pods of its namespace that are nominated and not less important."""
    total_request: Amounts
    """The same with nominated pods of other namespaces that stay within their min."""
    requests_of: Callable[[Pod], Mapping[str, int]]
    """The requests of an assigned pod."""

    @classmethod
    def of(cls, nodes: NodeColumns, pod: Pod) -> Quotas:
        cluster = nodes.cluster
        usage = derived(cluster, NamespaceUsage)

        def requests_of(assigned: Pod) -> Mapping[str, int]:
            return cluster.pod_infos.of(assigned).requests

        quotas: dict[str, Quota] = {}
        for item in sorted(cluster.objects.of(ElasticQuota), key=lambda item: item.name):
            # A namespace has one quota; of several the first by name counts.
            if item.namespace not in quotas:
                used = dict(usage.of(item.namespace))
                quotas[item.namespace] = Quota(
                    resource_amounts(item.spec.min), resource_amounts(item.spec.max), used
                )
        counted = dict.fromkeys(name for quota in quotas.values() for name in (*quota.min, *quota.max))
        made = cls(pod.namespace, quotas, tuple(counted), fit_requests(pod), fit_requests(pod), requests_of)
        if made.own is not None:
            for slots in cluster.nominated.values():
                for slot in slots:
                    other = cluster.pods.pod[slot]
                    if other is not None and other.uid != pod.uid:
                        made._add_nominated(pod, other, cluster.pods.info_of(slot).requests)
        return made

    def _add_nominated(self, pod: Pod, other: Pod, requests: Mapping[str, int]) -> None:
        quota = self.quotas.get(other.namespace)
        if quota is None:
            return
        if other.namespace == pod.namespace:
            if other.priority >= pod.priority:
                _add(self.request, requests)
                _add(self.total_request, requests)
        elif not quota.is_over_min({}, self.counted):
            _add(self.total_request, requests)

    @property
    def own(self) -> Quota | None:
        """The quota of the pod's namespace."""
        return self.quotas.get(self.namespace)

    def problem(self) -> str:
        """Why the pod must not be scheduled now; empty if it may be."""
        own = self.own
        if own is None:
            return ""
        for resource in self.counted:
            limit = own.max.get(resource)
            if limit is not None and own.used.get(resource, 0) + self.request.get(resource, 0) > limit:
                return OVER_MAX.format(namespace=self.namespace, resource=resource)
        for resource in self.counted:
            requested = self.total_request.get(resource, 0)
            if requested and self._used(resource) + requested > self._guaranteed(resource):
                return OVER_MIN.format(resource=resource)
        return ""

    def over_without_victims(self, nodes: Hypothesis) -> BoolColumn:
        """For each row whether `problem` remains when the pods that the hypothesis removes have left."""
        own, pods, label_sets = self.own, nodes.cluster.pods, nodes.cluster.label_sets
        over = np.zeros(len(nodes), dtype=np.bool_)
        if own is None:
            return over
        # Pods with the same labels have the same namespace, and there are fewer sets of labels than pods.
        set_ids, set_of = np.unique(pods.label_set.array.take(nodes.slots), return_inverse=True)
        namespaces = [label_sets[set_id].namespace for set_id in set_ids.tolist()]
        removed = nodes.signs < 0
        of_own = removed & np.array([name == self.namespace for name in namespaces], dtype=np.bool_)[set_of]
        of_any = removed & np.array([name in self.quotas for name in namespaces], dtype=np.bool_)[set_of]
        for resource in self.counted:
            amounts = pods.requests(resource).array.take(nodes.slots)
            limit = own.max.get(resource)
            if limit is not None:
                excess = own.used.get(resource, 0) + self.request.get(resource, 0) - limit
                over |= excess + nodes.change(amounts * of_own) > 0
            requested = self.total_request.get(resource, 0)
            if requested:
                excess = self._used(resource) + requested - self._guaranteed(resource)
                over |= excess + nodes.change(amounts * of_any) > 0
        return over

    def _used(self, resource: str) -> int:
        return sum(quota.used.get(resource, 0) for quota in self.quotas.values())

    def _guaranteed(self, resource: str) -> int:
        return sum(quota.min.get(resource, 0) for quota in self.quotas.values())

    def without(self, pods: Sequence[Pod]) -> Quotas:
        """The same after these pods have left."""
        changed = dict(self.quotas)
        for namespace in {pod.namespace for pod in pods}:
            quota = changed.get(namespace)
            if quota is not None:
                changed[namespace] = Quota(quota.min, quota.max, dict(quota.used))
        for pod in pods:
            quota = changed.get(pod.namespace)
            if quota is not None:
                _add(quota.used, self.requests_of(pod), -1)
        return replace(self, quotas=changed)

    def victims(self, pod: Pod, pods: Sequence[Pod]) -> list[Pod]:
        """Which pods of a node may be evicted for this one, given least important first.

        Borrowers are taken only as long as their namespace uses more than its min.
        """
        own = self.own
        if own is None:
            return [p for p in pods if p.namespace not in self.quotas and p.priority < pod.priority]
        if own.is_over_min(self.request, self.counted):
            return [p for p in pods if p.namespace == pod.namespace and p.priority < pod.priority]
        chosen: list[Pod] = []
        left = self
        for other in pods:
            quota = left.quotas.get(other.namespace)
            if other.namespace != pod.namespace and quota and quota.is_over_min({}, self.counted):
                chosen.append(other)
                left = left.without([other])
        return chosen


def _add(total: Amounts, amounts: Mapping[str, int], sign: int = 1) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + sign * amount
