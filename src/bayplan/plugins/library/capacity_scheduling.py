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
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np

from bayplan.plugin import (
    Action,
    BoolColumn,
    Cluster,
    ClusterEventWithHint,
    CycleState,
    FilterOutcome,
    FilterPlugin,
    NodeColumns,
    ObjectReader,
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
from bayplan.plugin.quota import Amounts, Queue, add_to, charge, first_exceeded, refund
from bayplan.plugin.quota import Hypothesis as QueueHypothesis

OVER_MAX: Final = "namespace {namespace} would use more than the max of its ElasticQuota ({resource})"
OVER_MIN: Final = "all namespaces with an ElasticQuota would use more than the sum of their min ({resource})"
STILL_OVER: Final = "node(s) had too few pods whose eviction would free the quota"
STATE: Final = "CapacityScheduling"


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
class Quotas:
    """All quotas, as one pod finds them: a leaf for each namespace, below a root that has all of them.

    The ceiling of a leaf is its max, its guarantee its min; the ceiling of the root is the sum of all min.
    Only resources that some quota names are counted.
    """

    root: Queue
    namespace: str
    request: dict[str, int]
    """What the pod requests, with the pods of its namespace that are nominated and not less important."""
    total_request: dict[str, int]
    """The same with nominated pods of other namespaces that stay within their min."""
    requests_of: Callable[[Pod], Amounts]
    """The requests of an assigned pod."""
    world: QueueHypothesis
    """What is used, after some pods have left."""

    @classmethod
    def of(cls, nodes: NodeColumns, pod: Pod) -> Quotas:
        cluster = nodes.cluster
        root = derived(cluster, QuotaTree).root

        def requests_of(assigned: Pod) -> Amounts:
            return cluster.pod_infos.of(assigned).requests

        requests = (fit_requests(pod), fit_requests(pod))
        made = cls(root, pod.namespace, *requests, requests_of, QueueHypothesis(root))
        if made.own is not None:
            for slots in cluster.nominated.values():
                for slot in slots:
                    other = cluster.pods.pod[slot]
                    if other is not None and other.uid != pod.uid:
                        made._add_nominated(pod, other, cluster.pods.info_of(slot).requests)
        return made

    def _add_nominated(self, pod: Pod, other: Pod, requests: Amounts) -> None:
        queue = self.root.children.get(other.namespace)
        if queue is None:
            return
        if other.namespace == pod.namespace:
            if other.priority >= pod.priority:
                add_to(self.request, requests)
                add_to(self.total_request, requests)
        elif not self._borrows(queue):
            add_to(self.total_request, requests)

    @property
    def own(self) -> Queue | None:
        """The quota of the pod's namespace."""
        return self.root.children.get(self.namespace)

    @property
    def _requested_min(self) -> dict[str, int]:
        """The sum of all min, of the resources that are requested."""
        total = self.root.ceiling or {}
        return {resource: amount for resource, amount in total.items() if self.total_request.get(resource)}

    def _borrows(self, queue: Queue, asked: Amounts = MappingProxyType({})) -> bool:
        """Whether a namespace uses more than its min, or would with this request."""
        return first_exceeded(queue.guaranteed or {}, self.world.used(queue), asked) is not None

    def problem(self) -> str:
        """Why the pod must not be scheduled now; empty if it may be."""
        own, root = self.own, self.root
        if own is None:
            return ""
        resource = first_exceeded(own.ceiling or {}, self.world.used(own), self.request)
        if resource is not None:
            return OVER_MAX.format(namespace=self.namespace, resource=resource)
        resource = first_exceeded(self._requested_min, self.world.used(root), self.total_request)
        return "" if resource is None else OVER_MIN.format(resource=resource)

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
        of_own = np.array([name == self.namespace for name in namespaces], dtype=np.bool_)[set_of]
        of_any = np.array([name in self.root.children for name in namespaces], dtype=np.bool_)[set_of]
        for queue, counted, limits, asked in (
            (own, of_own, own.ceiling or {}, self.request),
            (self.root, of_any, self._requested_min, self.total_request),
        ):
            used = self.world.used(queue)
            for resource, limit in limits.items():
                amounts = pods.requests(resource).array.take(nodes.slots)
                excess = used.get(resource, 0) + asked.get(resource, 0) - limit
                over |= excess + nodes.change(amounts * (removed & counted)) > 0
        return over

    def without(self, pods: Iterable[Pod]) -> Quotas:
        """The same after these pods have left."""
        left = replace(self, world=QueueHypothesis(self.root))
        for pod in pods:
            left._remove(pod)
        return left

    def _remove(self, pod: Pod) -> None:
        queue = self.root.children.get(pod.namespace)
        if queue is not None:
            self.world.remove(queue, self.requests_of(pod))

    def victims(self, pod: Pod, pods: Sequence[Pod]) -> list[Pod]:
        """Which pods of a node may be evicted for this one, given least important first.

        Borrowers are taken only as long as their namespace uses more than its min.
        """
        own, leaves = self.own, self.root.children
        if own is None:
            return [p for p in pods if p.namespace not in leaves and p.priority < pod.priority]
        if self._borrows(own, self.request):
            return [p for p in pods if p.namespace == pod.namespace and p.priority < pod.priority]
        chosen: list[Pod] = []
        left = self.without(())
        for other in pods:
            queue = leaves.get(other.namespace)
            if queue is not None and queue is not own and left._borrows(queue):
                chosen.append(other)
                left._remove(other)
        return chosen


class QuotaTree(NamespaceUsage):
    """The quotas of all namespaces, and what their pods use: made again when a quota changes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        changes = cluster.changes
        self.freshness = changes.freshness(rows=(changes.usage,), objects=(changes.kind(ElasticQuota),))
        self._quotas: ObjectReader[ElasticQuota] = ObjectReader(self.freshness)
        self.root = make_tree((), self.of)

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        quotas = cluster.objects.of(ElasticQuota)
        super().update(cluster, rows)
        if any(self._quotas.changed(quotas)):
            self.root = make_tree(quotas, self.of)

    def _add(self, sums: Mapping[str, Amounts], sign: int) -> None:
        super()._add(sums, sign)
        for namespace, amounts in sums.items():
            queue = self.root.children.get(namespace)
            if queue is not None:
                (charge if sign > 0 else refund)(queue, amounts)


def make_tree(quotas: Iterable[ElasticQuota], usage: Callable[[str], Amounts]) -> Queue:
    """The quotas of all namespaces, and what their pods use. Of several in one namespace the first counts."""
    root = Queue("root", leaf=False)
    for item in sorted(quotas, key=lambda item: item.name):
        if item.namespace not in root.children:
            queue = Queue(item.namespace, root)
            queue.guaranteed, queue.ceiling = resource_amounts(item.spec.min), resource_amounts(item.spec.max)
            charge(queue, usage(item.namespace))
    leaves = root.children.values()
    counted = {kind: 0 for leaf in leaves for kind in (*(leaf.guaranteed or {}), *(leaf.ceiling or {}))}
    total = dict(counted)
    for leaf in leaves:
        add_to(total, leaf.guaranteed or {})
        leaf.guaranteed = {**counted, **(leaf.guaranteed or {})}
    root.ceiling = total
    return root
