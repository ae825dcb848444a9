"""The policies: each filters and assigns devices as GpuSharing does, and scores nodes in its own way."""

from __future__ import annotations

from hashlib import blake2b
from typing import ClassVar, Final

import numpy as np

from bayplan.plugin import (
    CPU,
    CycleState,
    Handle,
    IntColumn,
    NodeColumns,
    NormalizePlugin,
    Pod,
    PreScorePlugin,
    ScorePlugin,
    Status,
)
from bayplan.plugins.library.gpu_sharing import policies
from bayplan.plugins.library.gpu_sharing.args import FGDArgs, GpuRandomArgs
from bayplan.plugins.library.gpu_sharing.devices import GpuDevices, GpuKinds
from bayplan.plugins.library.gpu_sharing.fragmentation import Fragmentation, IntArray
from bayplan.plugins.library.gpu_sharing.request import GPU_MODEL, Devices, GpuRequest
from bayplan.plugins.library.gpu_sharing.sharing import GpuDemand, GpuSharing, gpu_demand

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
    """Prefers nodes and devices where fragmentation falls most, or rises least (`fragmentation.py`)."""

    name: ClassVar = "FGD"
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
