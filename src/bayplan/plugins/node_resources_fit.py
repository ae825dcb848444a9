"""NodeResourcesFit: rejects nodes without enough free resources, and scores by how much is left.

The filter compares the pod's requests with the allocatable amounts minus the requests of the pods on the
node, whatever they really use. The score uses the same amounts with one of three strategies: spread pods over
nodes (LeastAllocated, the default), fill nodes up (MostAllocated), or a configured curve
(RequestedToCapacityRatio). For scoring, a container without cpu or memory requests counts with a small
default, because otherwise all pods without requests would run on one node.

An extended resource that a DeviceClass serves is left to DynamicResources on nodes that do not offer it
themselves, through a device plugin.

`filter` and `score` are formulas over whatever the columns return: arrays, or plain numbers for the one row
that changed. They are called for every pod, so everything that depends on the pod alone is computed in
`pre_filter` and `pre_score`.

https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import attrgetter, methodcaller
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from bayplan.plugin import (
    CPU,
    EPHEMERAL_STORAGE,
    MAX_SCORE,
    MEMORY,
    Action,
    Cluster,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    Handle,
    Lookup,
    Node,
    NodeColumns,
    Plugin,
    Pod,
    PreFilterPlugin,
    PreScorePlugin,
    Reject,
    Resource,
    ScorePlugin,
    Status,
    derived,
    event_with_hint,
    unresolvable,
    unschedulable,
)
from bayplan.plugin._internal import Interner, RowFilterPlugin, RowScorePlugin
from bayplan.plugin.args import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    NodeResourcesFitArgs,
    UtilizationShapePoint,
    shape_scores,
)
from bayplan.plugin.devices import (
    DEVICE_KINDS,
    IMPLICIT_PREFIX,
    DeviceClass,
    ExtendedResources,
    is_device_resource,
    with_devices,
)
from bayplan.plugin.groups import Group, NodePlacement, PlacementScorePlugin
from bayplan.plugin.objects import (
    fit_requests,
    is_extended_resource,
    is_scalar_resource,
    is_tracked_resource,
    resource_amount,
    scoring_requests,
    value,
)

TOO_MANY_PODS: Final = unschedulable("Too many pods")
REASON_RESOURCE: Final = "Insufficient {resource}"

NEEDED: Final = ("NodeResourcesFit", "needed")
SCORED: Final = ("NodeResourcesFit", "scored")


class Needed(NamedTuple):
    """What must be free of one resource."""

    resource: str
    amount: int
    short: Status
    """The status of nodes where other pods use it; on nodes that are too small even if empty, `too_small`."""
    too_small: Status
    by_devices: bool
    """Whether a DeviceClass serves it: DynamicResources decides on nodes that do not offer it themselves."""


class Scored(NamedTuple):
    """One resource of the score."""

    resource: str
    allocatable: Callable[[NodeColumns], Any]
    used: Callable[[NodeColumns], Any]
    amount: int
    weight: int


Scorer = Callable[[NodeColumns, Sequence[Scored]], Any]


class NodeResourcesFit(
    Plugin,
    PreFilterPlugin,
    FilterPlugin,
    RowFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    RowScorePlugin,
    PlacementScorePlugin,
):
    """Rejects nodes without room for the pod, and scores by how much room there is."""

    args_type: ClassVar = NodeResourcesFitArgs
    depends_on = Dependencies.of("resources", usage=True, kinds=(DeviceClass,))
    elementwise = True

    args: NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        resources = self.args.scoring_strategy.resources
        self._scores_devices = any(is_device_resource(one.name) for one in resources)
        if self._scores_devices:
            # The score also depends on devices, so its cached results are often stale.
            self.depends_on = Dependencies.of("resources", usage=True, kinds=DEVICE_KINDS)
            self.elementwise = False

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(
                Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, self.pod_change_helps
            ),
            event_with_hint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self.node_change_helps
            ),
            event_with_hint(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, self.device_class_helps),
        ]

    def pod_change_helps(self, pod: Pod, old: Pod, new: Pod | None) -> bool:
        """A pod that was assigned or nominated was deleted, or one now requests less of what this pod
        needs."""
        if new is None:
            return bool(old.spec.node_name or old.status.nominated_node_name)
        if new.uid == pod.uid:
            return True
        if not new.spec.node_name:
            return False
        assigned_requests = self.release.accounting.assigned_requests
        before, after = assigned_requests(old), assigned_requests(new)
        return any(
            amount and before.get(resource, 0) > after.get(resource, 0)
            for resource, amount in assigned_requests(pod).items()
        )

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """The pod would fit the node if it were empty, and something that it needs is new or has grown."""
        needed = {resource: amount for resource, amount in fit_requests(pod).items() if amount}
        allowed = value(new.status.allocatable.get("pods"))
        by_devices = {resource for resource in needed if self._is_served_by_devices(new, resource)}
        own = {resource: amount for resource, amount in needed.items() if resource not in by_devices}
        if allowed < 1 or any(amount > _allocatable(new, resource) for resource, amount in own.items()):
            return False
        if old is None or by_devices or allowed > value(old.status.allocatable.get("pods")):
            return True
        return any(_allocatable(new, resource) > _allocatable(old, resource) for resource in own)

    def _is_served_by_devices(self, node: Node, resource: str) -> bool:
        """Whether devices have to serve a resource on this node."""
        if not is_device_resource(resource) or _allocatable(node, resource):
            return False
        return derived(self.handle.cluster, ExtendedResources).class_for(resource) is not None

    def device_class_helps(self, pod: Pod, old: Any, new: Any) -> bool:
        """A DeviceClass was added or renamed its extended resource, and the pod requests that resource."""
        named = new.spec.extended_resource_name
        if old is None:
            offered = {named, IMPLICIT_PREFIX + new.name}
        elif old.spec.extended_resource_name != named:
            offered = {named}
        else:
            return False
        return any(amount and resource in offered for resource, amount in fit_requests(pod).items())

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        requests = fit_requests(pod)
        plain = [resource for resource in (CPU, MEMORY, EPHEMERAL_STORAGE) if resource in requests]
        others = sorted(requests.keys() - set(plain))
        classes = derived(nodes.cluster, ExtendedResources) if others else None
        state.write(
            NEEDED,
            [
                Needed(
                    resource,
                    requests[resource],
                    unschedulable(REASON_RESOURCE.format(resource=resource)),
                    unresolvable(REASON_RESOURCE.format(resource=resource)),
                    classes is not None
                    and is_device_resource(resource)
                    and classes.class_for(resource) is not None,
                )
                for resource in (*plain, *others)
                if requests[resource] and not self._ignores(resource)
            ],
        )

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        rejects = []
        full = nodes.pod_count >= nodes.allowed_pods
        if nodes.any(full):
            rejects.append(Reject(full, TOO_MANY_PODS))
        for resource, amount, short_status, too_small, by_devices in state.read(NEEDED):
            allocatable = nodes.allocatable(resource)
            short = amount > allocatable - nodes.requested(resource)
            if by_devices:
                short = short & (allocatable > 0)
            if nodes.any(short):
                # If even the empty node is too small, evicting pods does not help.
                rejects.append(Reject(short & (amount <= allocatable), short_status))
                rejects.append(Reject(short & (amount > allocatable), too_small))
        return rejects

    def row_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], bool] | None:
        """`filter` for one row; there is no shortcut for resources that devices serve."""
        table = nodes.cluster.nodes
        pod_count, allowed_pods = table.pod_count, table.allowed_pods
        needed = []
        for resource, amount, _, _, by_devices in state.read(NEEDED):
            if by_devices:
                return None
            columns = table.resource(resource)
            needed.append((columns.allocatable, columns.requested, amount))

        def rejects(row: int) -> bool:
            if pod_count.cell[row] >= allowed_pods.cell[row]:
                return True
            for allocatable, requested, amount in needed:
                if amount > allocatable.cell[row] - requested.cell[row]:
                    return True
            return False

        return rejects

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        requests = scoring_requests(pod)
        state.write(
            SCORED,
            [
                self._scored(nodes.cluster, spec.name, requests.get(spec.name, 0), spec.weight)
                for spec in self.args.scoring_strategy.resources
                # The amount of a special resource that the pod does not request does not matter.
                if is_tracked_resource(spec.name)
                and (requests.get(spec.name) or not is_scalar_resource(spec.name))
            ],
        )

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        scored = state.read(SCORED)
        return self._scorer(nodes, scored) if scored else nodes.where(nodes.exists, 0, 0)

    def row_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int] | None:
        """`least_allocated` for one row; the other strategies have no shortcut."""
        if self._scorer is not least_allocated:
            return None
        table = nodes.cluster.nodes
        used = {CPU: table.nonzero_cpu_milli, MEMORY: table.nonzero_memory_bytes}
        scored = []
        for resource, _, _, amount, weight in state.read(SCORED):
            columns = table.resource(resource)
            scored.append((columns.allocatable, used.get(resource, columns.requested), amount, weight))

        def score(row: int) -> int:
            total = weights = 0
            for allocatable, taken, amount, weight in scored:
                size = allocatable.cell[row]
                if size > 0:
                    weights += weight
                    free = size - taken.cell[row] - amount
                    if free > 0:
                        total += weight * (free * MAX_SCORE // size)
            return total // weights if weights else 0

        return score

    def score_placements(
        self,
        group: Group,
        scheduled: Sequence[Pod],
        placements: Sequence[NodePlacement],
        placed: Sequence[Sequence[Pod]],
    ) -> Sequence[int]:
        """The fuller the nodes of a placement would be, the better, whatever the strategy for single pods."""
        cluster = self.handle.cluster
        rows = [NodeColumns(cluster, placement.rows).rows for placement in placements]
        nodes = NodeColumns(cluster, np.concatenate(rows))
        ends = np.cumsum([0, *map(len, rows)])
        members = {pod.uid: pod for pods in placed for pod in pods}
        requests = {uid: scoring_requests(pod) for uid, pod in members.items()}
        totals, weights = [0] * len(rows), [0] * len(rows)
        for spec in self.args.scoring_strategy.resources:
            amounts = [sum([requests[pod.uid].get(spec.name, 0) for pod in pods]) for pods in placed]
            scored = self._scored(cluster, spec.name, 0, spec.weight)
            allocatable = _sums(scored.allocatable(nodes), ends)
            used = _sums(scored.used(nodes), ends)
            for index, size in enumerate(allocatable):
                if size:
                    share = min(used[index] + amounts[index], size) * MAX_SCORE // size
                    totals[index] += spec.weight * share
                    weights[index] += spec.weight
        return [total // weight if weight else 0 for total, weight in zip(totals, weights, strict=True)]

    def _scored(self, cluster: Cluster, resource: str, amount: int, weight: int) -> Scored:
        if self._scores_devices and is_device_resource(resource):
            found = derived(cluster, ExtendedResources).class_for(resource)
            if found is not None:
                return Scored(
                    resource,
                    lambda nodes: with_devices(nodes, resource, found)[0],
                    lambda nodes: with_devices(nodes, resource, found)[1],
                    amount,
                    weight,
                )
        return Scored(resource, methodcaller("allocatable", resource), _used(resource), amount, weight)

    @cached_property
    def _scorer(self) -> Scorer:
        strategy = self.args.scoring_strategy
        if strategy.type == LEAST_ALLOCATED:
            return least_allocated
        if strategy.type == MOST_ALLOCATED:
            return most_allocated
        ratio = strategy.requested_to_capacity_ratio
        return requested_to_capacity_ratio(ratio.shape if ratio is not None else ())

    def _ignores(self, resource: str) -> bool:
        """Whether the configuration leaves this resource to another component, such as an extender."""
        if not is_extended_resource(resource):
            return False
        group = resource.partition("/")[0]
        return resource in self.args.ignored_resources or group in self.args.ignored_resource_groups


def least_allocated(nodes: NodeColumns, resources: Sequence[Scored]) -> Any:
    """The more is left, the better: free share in percent, averaged by weight."""
    total: Any = 0
    weights: Any = 0
    for _, read_allocatable, used, amount, weight in resources:
        allocatable = read_allocatable(nodes)
        free = nodes.maximum(allocatable - used(nodes) - amount, 0)
        total = total + weight * (free * MAX_SCORE // nodes.maximum(allocatable, 1))
        weights = weights + _effective_weight(nodes, weight, allocatable)
    return total // nodes.maximum(weights, 1)


def most_allocated(nodes: NodeColumns, resources: Sequence[Scored]) -> Any:
    """The less is left, the better: used share in percent, averaged by weight."""
    total: Any = 0
    weights: Any = 0
    for _, read_allocatable, used, amount, weight in resources:
        allocatable = read_allocatable(nodes)
        taken = nodes.minimum(used(nodes) + amount, allocatable)
        total = total + weight * (taken * MAX_SCORE // nodes.maximum(allocatable, 1))
        weights = weights + _effective_weight(nodes, weight, allocatable)
    return total // nodes.maximum(weights, 1)


def requested_to_capacity_ratio(shape: Sequence[UtilizationShapePoint]) -> Scorer:
    """A score that follows a curve over the used share in percent.

    There are only 101 such shares, so the curve is a table. A resource that scores 0 does not count, not even
    with its weight, and the average is rounded half up.
    """
    scores = shape_scores(shape)
    percents: Interner[int] = Interner()
    for percent in range(101):
        percents.intern(percent)
    curve = Lookup(percents, lambda percent: scores[percent])

    def score(nodes: NodeColumns, resources: Sequence[Scored]) -> Any:
        total: Any = 0
        weights: Any = 0
        for _, read_allocatable, used, amount, weight in resources:
            allocatable = read_allocatable(nodes)
            size = nodes.maximum(allocatable, 1)
            on_curve = curve(nodes.minimum(used(nodes) + amount, size) * 100 // size)
            counts = nodes.where((allocatable > 0) & (on_curve > 0), weight, 0)
            total = total + on_curve * counts
            weights = weights + counts
        return (2 * total + weights) // nodes.maximum(2 * weights, 1)

    return score


def _sums(amounts: Any, ends: Any) -> list[int]:
    """The sum of each part of a column, from one end to the next."""
    running = np.zeros(len(amounts) + 1, dtype=np.int64)
    np.cumsum(amounts, out=running[1:])
    sums: list[int] = np.diff(running.take(ends)).tolist()
    return sums


def _effective_weight(nodes: NodeColumns, weight: int, allocatable: Any) -> Any:
    """The weight of a resource; 0 on nodes that do not have it."""
    absent = allocatable <= 0
    return nodes.where(absent, 0, weight) if nodes.any(absent) else weight


def _used(resource: str) -> Callable[[NodeColumns], Any]:
    """A function that reads the used amount, with defaults for pods without cpu or memory requests."""
    if resource == CPU:
        return attrgetter("nonzero_cpu_milli")
    if resource == MEMORY:
        return attrgetter("nonzero_memory_bytes")
    return methodcaller("requested", resource)


def _allocatable(node: Node, resource: str) -> int:
    return resource_amount(resource, node.status.allocatable.get(resource))
