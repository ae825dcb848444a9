"""GPU sharing: pods that use a part of a GPU, or several whole ones, and six policies that score nodes.

Filter rejects nodes without enough free devices, Reserve chooses the devices, and the binding writes them
into an annotation of the pod, from which a device plugin (or bayplan, after a restart) reads them. GpuSharing
scores nothing; its subclasses are the policies, of which a profile enables one.

`request.py` parses what pods request, `policies.py` has the scores and choices of devices as functions of
arrays. First come the devices of all nodes, then the plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple

import numpy as np

from bayplan.plugin import (
    CPU,
    SKIP,
    Action,
    Amounts,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    Handle,
    IntColumn,
    Node,
    NodeAmounts,
    NodeColumns,
    NormalizePlugin,
    Plugin,
    PluginArgs,
    Pod,
    PreFilterPlugin,
    PreScorePlugin,
    Reject,
    ReservePlugin,
    Resource,
    ScorePlugin,
    Status,
    annotate_binding,
    event_with_hint,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.args import ArgsRecord, FieldError, Gates, at, invalid, required
from bayplan.plugin.objects import fit_requests, value
from bayplan.plugins.library.gpu_sharing import policies
from bayplan.plugins.library.gpu_sharing.policies import (
    Fragmentation,
    IntArray,
    TypicalPod,
    best_fit_devices,
    enough_devices,
)
from bayplan.plugins.library.gpu_sharing.request import (
    DEVICE_MILLI,
    GPU_COUNT,
    GPU_INDEX,
    GPU_MODEL,
    MAX_DEVICES,
    NO_GPU,
    Devices,
    GpuRequest,
    InvalidRequestError,
    annotated_devices,
    gpu_request,
    index_text,
    valid_request,
)


def device_count(node: Node) -> int:
    return min(max(value(node.status.allocatable.get(GPU_COUNT)), 0), MAX_DEVICES)


class PodDevices(NamedTuple):
    """What a pod requests, and the devices in its annotation; empty if it has none."""

    request: GpuRequest
    annotated: Devices


class GpuDevices(NodeAmounts[PodDevices]):
    """Thousandths of each device of each node.

    Which devices a pod uses is known from the annotation that is written with its binding; until the API
    server has confirmed that, from what Reserve decided. Pods without either (bound by another scheduler) are
    counted where best fit would put them.
    """

    def capacity(self, node: Node) -> Sequence[int]:
        return [DEVICE_MILLI] * device_count(node)

    def request(self, pod: Pod) -> PodDevices | None:
        request = valid_request(pod)
        return PodDevices(request, annotated_devices(pod, request)) if request.count else None

    def place(self, request: PodDevices, free: Amounts) -> Sequence[int]:
        wanted, devices = request
        if not devices or devices[-1] >= len(free):
            devices = best_fit_devices(free, wanted)
        return amounts_of(devices, wanted)

    def free_milli(self, nodes: NodeColumns) -> IntArray:
        """What is free of each device of these rows. 0 for devices that a node does not have, or that are
        overcommitted."""
        free: IntArray = np.maximum(self.free(nodes), 0)
        return free

    def count(self, nodes: NodeColumns) -> IntArray:
        """The number of devices of these rows."""
        count: IntArray = (self.capacity_of(nodes) > 0).sum(axis=1)
        return count

    def free_for(self, pod: Pod, nodes: NodeColumns) -> IntArray:
        """`free_milli` of the one row that a pod is assumed on, as if it were not there."""
        taken = self.taken_by(pod)
        free = self.free(nodes)
        found: IntArray = np.maximum(free if taken is None else free + taken, 0)
        return found


def amounts_of(devices: Devices, request: GpuRequest) -> list[int]:
    """What a pod takes of each device, up to the last one it has."""
    amounts = [0] * (devices[-1] + 1 if devices else 0)
    for device in devices:
        amounts[device] = request.milli
    return amounts


class GpuKinds(NodeAmounts[int]):
    """The number of pods of each kind (`GpuRequest.kind`) on each node.

    Nodes have none of these kinds, so what is left of them is the number of pods, negated.
    """

    def capacity(self, node: Node) -> Sequence[int]:
        return [0] * (device_count(node) + 1)

    def request(self, pod: Pod) -> int | None:
        request = valid_request(pod)
        return request.kind if request.count else None

    def place(self, request: int, free: Amounts) -> Sequence[int]:
        kind = min(request, len(free) - 1)
        return [0] * kind + [1]

    def pods(self, nodes: NodeColumns) -> IntArray:
        """One column for each kind."""
        pods: IntArray = -self.free(nodes)
        return pods


TOO_FEW: Final = "node(s) had too few GPUs"
NOT_FREE: Final = "node(s) didn't have enough free GPUs"
OTHER_MODEL: Final = "node(s) had other GPU models"
TAKEN: Final = "the GPUs of node {node} were taken meanwhile"

REQUEST: Final = "GpuSharing request"
"""The key of the request in the state."""


class GpuDemand(NamedTuple):
    """What the results for a pod depend on."""

    cpu_milli: int
    gpus: GpuRequest
    problem: str = ""
    """Why the request is invalid."""


def gpu_demand(pod: Pod) -> GpuDemand:
    """A function for `Dependencies`: pods that request the same cpu and GPUs share results."""
    cpu_milli = fit_requests(pod).get(CPU, 0)
    try:
        return GpuDemand(cpu_milli, gpu_request(pod))
    except InvalidRequestError as error:
        return GpuDemand(cpu_milli, NO_GPU, str(error))


class GpuSharing(Plugin, PreFilterPlugin, FilterPlugin, ReservePlugin):
    """Filters by devices, and assigns them by best fit."""

    depends_on: Dependencies | None = Dependencies.of(gpu_demand, usage=True)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changes = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL
        return (
            event_with_hint(Resource.POD, Action.DELETE, self.pod_change_helps),
            event_with_hint(Resource.NODE, changes, self.node_change_helps),
        )

    def pod_change_helps(self, pod: Pod, old: Pod, new: Pod | None) -> bool:
        """A pod with GPUs was deleted that was assigned or nominated to a node."""
        has_node = bool(old.spec.node_name or old.status.nominated_node_name)
        return has_node and valid_request(old).count > 0

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """The node has enough devices of a suitable model, which it did not have before."""
        request = valid_request(pod)
        return _suits(new, request) and (
            old is None or not _suits(old, request) or device_count(new) > device_count(old)
        )

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        demand = gpu_demand(pod)
        if demand.problem:
            return unresolvable(demand.problem)
        if not demand.gpus.count:
            return SKIP
        state.write(REQUEST, demand.gpus)
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        request: GpuRequest = state.read(REQUEST)
        table = GpuDevices.of(nodes)
        has_devices = table.count(nodes) >= request.count
        # A mask without a row costs as much as any other, and most are.
        if not has_devices.all():
            yield Reject(~has_devices, unresolvable(TOO_FEW))
        if request.models:
            other = has_devices & ~nodes.label(GPU_MODEL).isin(request.models)
            yield Reject(other, unresolvable(OTHER_MODEL))
        occupied = has_devices & ~enough_devices(table.free(nodes), request)
        if occupied.any():
            yield Reject(occupied, unschedulable(NOT_FREE))

    # Devices

    def choose_devices(self, pod: Pod, request: GpuRequest, node: NodeColumns, free: IntArray) -> Devices:
        """The devices for a pod on its node (one row) with this much free; none if it is not enough."""
        return best_fit_devices(free[0], request)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        request = gpu_request(pod)
        if not request.count:
            return None
        cluster = self.handle.cluster
        node = NodeColumns(cluster, np.array([cluster.nodes.row_of[node_name]], dtype=np.intp))
        table = GpuDevices.of(cluster)
        devices = self.choose_devices(pod, request, node, table.free_for(pod, node))
        if not devices:
            return unschedulable(TAKEN.format(node=node_name))
        table.reserve(pod, amounts_of(devices, request))
        annotate_binding(state, {GPU_INDEX: index_text(devices)})
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        if valid_request(pod).count:
            GpuDevices.of(self.handle.cluster).unreserve(pod)


def _suits(node: Node, request: GpuRequest) -> bool:
    model = node.labels.get(GPU_MODEL)
    return device_count(node) >= request.count and (not request.models or model in request.models)


MAX_TYPICAL_PODS: Final = 1000


class TypicalPodArgs(ArgsRecord, frozen=True):
    """A kind of pod that is expected in the cluster."""

    cpu_milli: int = 0
    gpu_milli: int = 0
    """Of each device."""
    gpu_count: int = 0
    gpu_models: tuple[str, ...] = ()
    """The models that will do; empty: all."""
    weight: float = 1.0
    """How many of all pods are like this one, in any unit."""

    def validate(self, path: str) -> Iterator[FieldError]:
        if self.cpu_milli < 0:
            yield invalid(at(path, "cpuMilli"), self.cpu_milli, "must not be negative")
        if not 0 <= self.gpu_count <= MAX_DEVICES:
            yield invalid(at(path, "gpuCount"), self.gpu_count, f"must be between 0 and {MAX_DEVICES}")
        elif self.gpu_count == 0 and self.gpu_milli != 0:
            yield invalid(at(path, "gpuMilli"), self.gpu_milli, "must be 0 if gpuCount is 0")
        elif self.gpu_count == 1 and not 1 <= self.gpu_milli <= DEVICE_MILLI:
            yield invalid(at(path, "gpuMilli"), self.gpu_milli, f"must be between 1 and {DEVICE_MILLI}")
        elif self.gpu_count > 1 and self.gpu_milli != DEVICE_MILLI:
            yield invalid(at(path, "gpuMilli"), self.gpu_milli, f"must be {DEVICE_MILLI} for several GPUs")
        if not 0 < self.weight < float("inf"):
            yield invalid(at(path, "weight"), self.weight, "must be greater than 0")


class FGDArgs(PluginArgs, frozen=True):
    """The arguments of FGD."""

    typical_pods: tuple[TypicalPodArgs, ...] = ()

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        pods = at(path, "typicalPods")
        if not self.typical_pods:
            yield required(pods, "FGD needs the pods that are expected")
        if len(self.typical_pods) > MAX_TYPICAL_PODS:
            yield invalid(pods, len(self.typical_pods), f"must have at most {MAX_TYPICAL_PODS} entries")
        for index, pod in enumerate(self.typical_pods):
            yield from pod.validate(f"{pods}[{index}]")

    def distribution(self) -> tuple[TypicalPod, ...]:
        """The typical pods with weights that add up to 1."""
        total = sum(pod.weight for pod in self.typical_pods)
        return tuple(
            TypicalPod(pod.cpu_milli, pod.gpu_milli, pod.gpu_count, pod.gpu_models, pod.weight / total)
            for pod in self.typical_pods
        )


class GpuRandomArgs(PluginArgs, frozen=True):
    """The arguments of GpuRandom."""

    seed: int = 0


DEMAND: Final = "GpuSharing demand"
"""The key of the demand in the state."""


class GpuPolicy(GpuSharing, PreScorePlugin, ScorePlugin):
    """Base of the policies."""

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        state.write(DEMAND, gpu_demand(pod))
        return None

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return self.scores(state.read(DEMAND), nodes, GpuDevices.of(nodes).free_milli(nodes))

    def scores(self, demand: GpuDemand, nodes: NodeColumns, free: IntArray) -> IntArray:
        """The scores of these rows, which have this much free of each device."""
        raise NotImplementedError


def _free_cpu(nodes: NodeColumns) -> IntArray:
    free: IntArray = nodes.allocatable(CPU) - nodes.requested(CPU)
    return free


class GpuDotProd(GpuPolicy):
    """Prefers nodes whose free resources are unlike the request: a small dot product of the two."""

    def scores(self, demand: GpuDemand, nodes: NodeColumns, free: IntArray) -> IntArray:
        return policies.dot_product(_free_cpu(nodes), free, demand.cpu_milli, demand.gpus)


class GpuBestFit(GpuPolicy, NormalizePlugin):
    """Prefers nodes that have the least cpu and GPU left after the pod."""

    def scores(self, demand: GpuDemand, nodes: NodeColumns, free: IntArray) -> IntArray:
        return policies.best_fit(_free_cpu(nodes), free, demand.cpu_milli, demand.gpus)

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return policies.spread_out(scores)


class GpuClustering(GpuPolicy):
    """Prefers nodes with pods that request the same: a part of a GPU, or the same number of GPUs."""

    def scores(self, demand: GpuDemand, nodes: NodeColumns, free: IntArray) -> IntArray:
        return policies.clustering(free, GpuKinds.of(nodes).pods(nodes), demand.gpus)


class GpuPacking(GpuPolicy):
    """Prefers GPUs in use, then free GPUs of nodes in use, then idle nodes."""

    def scores(self, demand: GpuDemand, nodes: NodeColumns, free: IntArray) -> IntArray:
        return policies.packing(free, GpuDevices.of(nodes).count(nodes), demand.gpus)


class FGD(GpuPolicy):
    """Prefers nodes and devices where fragmentation falls most, or rises least (`policies.Fragmentation`)."""

    args_type: ClassVar = FGDArgs

    def __init__(self, args: FGDArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._fragmentation = Fragmentation(self.args.distribution())

    def scores(self, demand: GpuDemand, nodes: NodeColumns, free: IntArray) -> IntArray:
        scores, _ = policies.fgd(
            self._fragmentation,
            _free_cpu(nodes),
            free,
            self._access(nodes),
            demand.cpu_milli,
            demand.gpus,
        )
        return scores

    def choose_devices(self, pod: Pod, request: GpuRequest, node: NodeColumns, free: IntArray) -> Devices:
        """For a part of a GPU the device with the best score, the first of equals."""
        if not request.is_share:
            return super().choose_devices(pod, request, node, free)
        cpu_milli = gpu_demand(pod).cpu_milli
        # The pod is assumed, so its cpu is not free any more; and the node may be overcommitted.
        cpu = np.maximum(_free_cpu(node) + cpu_milli, cpu_milli)
        _, device = policies.fgd(self._fragmentation, cpu, free, self._access(node), cpu_milli, request)
        return () if device[0] == policies.NO_DEVICE else (int(device[0]),)

    def _access(self, nodes: NodeColumns) -> policies.BoolArray | None:
        if not self._fragmentation.has_models:
            return None
        label = nodes.cluster.nodes.label(GPU_MODEL)
        by_model = self._fragmentation.access([*label.values.values, ""])
        return None if by_model is None else by_model[:, nodes.label(GPU_MODEL).ids]


class GpuRandom(GpuPolicy):
    """Chooses a node at random, and the device for a part of a GPU.

    The choice follows from the seed and the pod's uid, so that it is the same however often a pod is
    evaluated. It depends on all nodes that fit, so nothing is cached.
    """

    args_type: ClassVar = GpuRandomArgs
    depends_on = None

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        scores = np.zeros(len(nodes), dtype=np.int64)
        if len(nodes):
            scores[self._draw(pod, "node", len(nodes))] = 100
        return scores

    def choose_devices(self, pod: Pod, request: GpuRequest, node: NodeColumns, free: IntArray) -> Devices:
        if not request.is_share:
            return super().choose_devices(pod, request, node, free)
        enough = np.flatnonzero(free[0] >= request.milli).tolist()
        return (enough[self._draw(pod, "device", len(enough))],) if enough else ()

    def _draw(self, pod: Pod, what: str, count: int) -> int:
        """A number below the count: a hash, which costs less than seeding a generator for each pod."""
        text = f"{self.args.seed} {what} {pod.uid}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") * count >> 64
