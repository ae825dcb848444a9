"""NodeResourceTopologyMatch: pods go to nodes where they fit into one NUMA node.

A kubelet with the topology manager policy `single-numa-node` rejects pods whose cpus, memory and devices it
cannot take from one NUMA node. The scheduler sees only sums, unless an agent publishes what each NUMA node
has available (NodeResourceTopology). Filter rejects nodes on which a container (or the pod, by the scope of
the kubelet) fits into no NUMA node; Score compares the NUMA nodes by a strategy. The rules are those of the
scheduler-plugins project, without its scheduler-side cache.

https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from bayplan.plugin import (
    CPU,
    EPHEMERAL_STORAGE,
    MAX_SCORE,
    MEMORY,
    Action,
    BoolColumn,
    Cluster,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    Handle,
    IntColumn,
    Node,
    NodeColumns,
    ObjectReader,
    Plugin,
    PluginArgs,
    Pod,
    Reject,
    Resource,
    ScorePlugin,
    derived,
    event_with_hint,
    unschedulable,
)
from bayplan.plugin.args import ArgsRecord, FieldError, Gates, at, invalid, unsupported
from bayplan.plugin.objects import (
    BEST_EFFORT,
    GUARANTEED,
    NodeResourceTopology,
    fit_requests,
    is_extended_resource,
    qos_class,
    resource_amounts,
)

CANNOT_ALIGN: Final = {
    "pod": "cannot align pod",
    "container": "cannot align container",
    "init": "cannot align init container",
}
SINGLE_NUMA_NODE: Final = "single-numa-node"
POD_SCOPE: Final = "pod"
CONTAINER_SCOPE: Final = "container"
POLICIES: Final = ("none", "best-effort", "restricted", SINGLE_NUMA_NODE)
MAX_NUMA_ID: Final = 64

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
BALANCED_ALLOCATION: Final = "BalancedAllocation"
STRATEGIES: Final = (LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION)

Amounts = dict[str, int]
"""cpu in milli, everything else in whole units."""


class ResourceWeight(ArgsRecord, frozen=True):
    name: str
    weight: int = 1


class NumaScoringStrategy(ArgsRecord, frozen=True):
    """How NUMA nodes are compared."""

    type: str = LEAST_ALLOCATED
    resources: tuple[ResourceWeight, ...] = ()
    """Weights of resources; all others have 1."""


class NodeResourceTopologyMatchArgs(PluginArgs, frozen=True):
    """The arguments of NodeResourceTopologyMatch."""

    scoring_strategy: NumaScoringStrategy = NumaScoringStrategy()

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        strategy = at(path, "scoringStrategy")
        if self.scoring_strategy.type not in STRATEGIES:
            yield unsupported(at(strategy, "type"), self.scoring_strategy.type, list(STRATEGIES))
        for index, resource in enumerate(self.scoring_strategy.resources):
            if not 1 <= resource.weight <= 100:
                place = at(f"{strategy}.resources[{index}]", "weight")
                yield invalid(place, resource.weight, "must be between 1 and 100")


@dataclass(frozen=True, slots=True)
class Topology:
    """A NodeResourceTopology, parsed."""

    policy: str
    scope: str
    numa_nodes: dict[int, Amounts]
    """What is available, by the id of the NUMA node."""

    @property
    def decides(self) -> bool:
        return self.policy == SINGLE_NUMA_NODE


class NodeResourceTopologyMatch(Plugin, FilterPlugin, ScorePlugin):
    """Filters and scores nodes by their NUMA nodes."""

    args_type: ClassVar = NodeResourceTopologyMatchArgs
    kinds: ClassVar = (NodeResourceTopology,)
    depends_on = Dependencies.of("resources", node_kinds=(NodeResourceTopology,))

    args: NodeResourceTopologyMatchArgs

    def __init__(self, args: NodeResourceTopologyMatchArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        weights = self.args.scoring_strategy.resources
        self._weights = {resource.name: resource.weight for resource in weights}

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            event_with_hint(Resource.POD, Action.DELETE),
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
            event_with_hint(Resource.NODE_RESOURCE_TOPOLOGY, Action.ADD | Action.UPDATE),
        )

    # Filter

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        quality = qos_class(pod)
        if quality == BEST_EFFORT and not any(is_extended_resource(name) for name in fit_requests(pod)):
            return
        masks: dict[str, BoolColumn] = {}
        for position, node, topology in _deciding(nodes):
            problem = misfit(pod, quality, topology, node.status.allocatable)
            if problem:
                masks.setdefault(problem, np.zeros(len(nodes), dtype=np.bool_))[position] = True
        for problem, mask in masks.items():
            yield Reject(mask, unschedulable(problem))

    # Score

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        if qos_class(pod) != GUARANTEED:
            return np.full(len(nodes), MAX_SCORE, dtype=np.int64)
        scores = np.zeros(len(nodes), dtype=np.int64)
        for position, _, topology in _deciding(nodes):
            if topology.numa_nodes:
                scores[position] = self._node_score(pod, topology)
        return scores

    def _node_score(self, pod: Pod, topology: Topology) -> int:
        if topology.scope == POD_SCOPE:
            return self._lowest(fit_requests(pod), topology)
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        scores = [self._lowest(resource_amounts(each.resources.requests), topology) for each in containers]
        return sum(scores) // len(scores) if scores else 0

    def _lowest(self, requests: Amounts, topology: Topology) -> int:
        """The lowest score of a NUMA node that has enough; 0 if none has."""
        found = [self._numa_score(requests, available) for available in topology.numa_nodes.values()]
        return min((score for score in found if score), default=0)

    def _numa_score(self, requests: Amounts, available: Amounts) -> int:
        if not requests:
            return 0
        if self.args.scoring_strategy.type == BALANCED_ALLOCATION:
            return _balance(requests, available)
        total = weights = 0
        for name, request in requests.items():
            weight = self._weights.get(name, 1)
            weights += weight
            size, requested = _whole(name, available.get(name, 0)), _whole(name, request)
            if size and request <= available.get(name, 0):
                used = requested if self.args.scoring_strategy.type == MOST_ALLOCATED else size - requested
                total += weight * (used * MAX_SCORE // size)
        return total // weights


class Topologies:
    """An index for `derived`: the parsed topologies by row."""

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self.freshness = changes.freshness(
            rows=(changes.nodes,), objects=(changes.kind(NodeResourceTopology),)
        )
        self._objects: ObjectReader[NodeResourceTopology] = ObjectReader(self.freshness)
        self.by_row: dict[int, Topology] = {}
        self.decides = cluster.nodes.column(np.bool_, False)
        """Whether the kubelet of the row rejects pods that it cannot align."""

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        row_of, topologies = cluster.nodes.row_of, cluster.objects.of(NodeResourceTopology)
        for changed in self._objects.changed(topologies):
            rows.update(row_of[item.name] for item in changed if item.name in row_of)
        for row in rows:
            found = topologies.get(cluster.nodes.name[row])
            parsed = None if found is None else parse(found)
            self.decides.cell[row] = parsed is not None and parsed.decides
            if parsed is None:
                self.by_row.pop(row, None)
            else:
                self.by_row[row] = parsed


def _deciding(nodes: NodeColumns) -> Iterator[tuple[int, Node, Topology]]:
    """The positions of nodes whose kubelet rejects pods that it cannot align."""
    topologies = derived(nodes.cluster, Topologies)
    rows = nodes.rows
    for position in np.flatnonzero(nodes.of(topologies.decides)).tolist():
        row = int(rows[position])
        node = nodes.cluster.nodes.node[row]
        if node is not None:
            yield position, node, topologies.by_row[row]


def misfit(pod: Pod, quality: int, topology: Topology, allocatable: Mapping[str, object]) -> str:
    """Why the kubelet could not align the pod; empty if it can."""
    if topology.scope == POD_SCOPE:
        fits = _numa_node_for(fit_requests(pod), quality, topology.numa_nodes, allocatable)
        return "" if fits is not None else CANNOT_ALIGN["pod"]
    left = {number: dict(available) for number, available in topology.numa_nodes.items()}
    for container in pod.spec.init_containers:
        if _numa_node_for(resource_amounts(container.resources.requests), quality, left, allocatable) is None:
            return CANNOT_ALIGN["init"]
    for container in pod.spec.containers:
        requests = resource_amounts(container.resources.requests)
        chosen = _numa_node_for(requests, quality, left, allocatable)
        if chosen is None:
            return CANNOT_ALIGN["container"]
        for name, amount in requests.items():
            # Other pods share cpu and memory, wherever they are.
            if name in left.get(chosen, {}) and (quality == GUARANTEED or not _is_aligned(name)):
                left[chosen][name] -= amount
    return ""


def _numa_node_for(
    requests: Amounts, quality: int, numa_nodes: Mapping[int, Amounts], allocatable: Mapping[str, object]
) -> int | None:
    """The first NUMA node that has enough of everything; None if none has."""
    possible = set(range(MAX_NUMA_ID))
    for name, amount in requests.items():
        if not amount:
            continue
        if name not in allocatable:
            return None
        known = {number: found[name] for number, found in numa_nodes.items() if name in found}
        if not known and _is_host_level(name):
            continue
        shared = quality != GUARANTEED and _is_aligned(name)
        possible &= {number for number, available in known.items() if shared or available >= amount}
        if not possible:
            return None
    return min(possible)


def _is_aligned(resource: str) -> bool:
    """Whether only Guaranteed pods get it from one NUMA node."""
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _is_host_level(resource: str) -> bool:
    """Whether it may belong to no NUMA node."""
    return resource in (EPHEMERAL_STORAGE, "storage") or is_extended_resource(resource)


def _balance(requests: Amounts, available: Amounts) -> int:
    """Scores how evenly the requests use the resources; 0 if one does not fit."""
    shares = []
    for name, request in requests.items():
        size = _whole(name, available.get(name, 0))
        share = _whole(name, request) / size if size else 1.0
        if share > 1:
            return 0
        shares.append(share)
    if len(shares) < 2:
        return MAX_SCORE
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    return int((1 - variance) * MAX_SCORE)


def _whole(resource: str, amount: int) -> int:
    """Scores are computed from whole cpus, rounded up."""
    return -(-amount // 1000) if resource == CPU else amount


_OLD_POLICIES: Final = {
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, POD_SCOPE),
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, CONTAINER_SCOPE),
    "BestEffortPodLevel": ("best-effort", POD_SCOPE),
    "BestEffortContainerLevel": ("best-effort", CONTAINER_SCOPE),
    "RestrictedPodLevel": ("restricted", POD_SCOPE),
    "RestrictedContainerLevel": ("restricted", CONTAINER_SCOPE),
}


def parse(item: NodeResourceTopology) -> Topology:
    """Attributes override the deprecated policies; invalid values and zones are ignored."""
    policy, scope = "none", CONTAINER_SCOPE
    if item.topology_policies:
        policy, scope = _OLD_POLICIES.get(item.topology_policies[0], (policy, scope))
    for attribute in item.attributes:
        if attribute.name == "topologyManagerPolicy" and attribute.value in POLICIES:
            policy = attribute.value
        elif attribute.name == "topologyManagerScope" and attribute.value in (POD_SCOPE, CONTAINER_SCOPE):
            scope = attribute.value
    numa_nodes: dict[int, Amounts] = {}
    for zone in item.zones:
        number = zone.name.removeprefix("node-")
        if zone.type != "Node" or not (number.isascii() and number.isdigit() and len(number) < 4):
            continue
        if int(number) < MAX_NUMA_ID:
            numa_nodes[int(number)] = resource_amounts(
                {each.name: each.available for each in zone.resources if each.available is not None}
            )
    return Topology(policy, scope, numa_nodes)
