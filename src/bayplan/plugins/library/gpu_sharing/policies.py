"""The scores of the policies and their choices of devices, over all nodes at once; and the fragmentation of
nodes.

Each function takes one row per node: free cpu (milli), and the free milli of each device (0 for devices that
the node does not have). Scores are integers from 0 to 100 and meaningful only for nodes that the pod fits on.

Fragmentation is how much of a node's free GPU is useless to the pods that may come, given as a list of
typical pods, each with its share. To a typical pod that does not fit on the node, all of the node's free GPU
is useless; to one that fits, only devices that have too little free are. A pod without GPU request has no use
for GPU anywhere. The fragmentation of a node is the mean over the typical pods, in milli.

The method is that of FGD: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayplan.plugins.library.gpu_sharing.request import DEVICE_MILLI, GpuRequest

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class TypicalPod(NamedTuple):
    """One kind of pod that may come."""

    cpu_milli: int
    gpu_milli: int
    """Of each device."""
    gpu_count: int
    models: tuple[str, ...]
    """Empty: any model."""
    share: float
    """The part of all pods that are like this one; shares add up to 1."""


class Category(StrEnum):
    """Why free GPU is useless to a typical pod, or (q3) that it is not."""

    LACK_BOTH = "q1_lack_both"
    LACK_GPU = "q2_lack_gpu"
    SATISFIED = "q3_satisfied"
    LACK_CPU = "q4_lack_cpu"
    NO_GPU_FITS = "xl_satisfied"
    NO_GPU_LACKS_CPU = "xr_lack_cpu"
    NO_ACCESS = "no_access"


class Fragmentation:
    """Computes fragmentation for a list of typical pods.

    Arrays have one row per state of a node: its free cpu, and the free milli of each device (0 for devices
    that the node does not have).
    """

    def __init__(self, typical: Sequence[TypicalPod]) -> None:
        self.typical = tuple(typical)
        self._cpu = np.array([[pod.cpu_milli] for pod in typical], dtype=np.int64).reshape(-1, 1)
        self._count = np.array([[pod.gpu_count] for pod in typical], dtype=np.int64).reshape(-1, 1)
        self._share = np.array([[pod.share] for pod in typical], dtype=np.float64).reshape(-1, 1)
        self._uses_gpu = self._count > 0
        sizes = sorted({pod.gpu_milli for pod in typical})
        self._sizes = np.array(sizes, dtype=np.int64).reshape(-1, 1, 1)
        self._size_of = np.array([sizes.index(pod.gpu_milli) for pod in typical], dtype=np.intp)
        self.has_models = any(pod.models and pod.gpu_count for pod in typical)

    def access(self, models: Sequence[str]) -> NDArray[np.bool_] | None:
        """Which typical pod may use which of these nodes, given by model; None: all may."""
        if not self.has_models:
            return None
        rows = [
            [not pod.gpu_count or not pod.models or model in pod.models for model in models]
            for pod in self.typical
        ]
        return np.array(rows, dtype=np.bool_)

    def of(self, cpu: IntArray, free: IntArray, access: NDArray[np.bool_] | None = None) -> FloatArray:
        """The fragmentation of each state, in milli.

        Contributions are added in the order of the typical pods: NumPy does that over the first axis if the
        other one has at least two entries. So a state has the same result, to the last bit, in whichever
        batch it is computed.
        """
        if len(cpu) == 1:
            twice = None if access is None else np.repeat(access, 2, axis=1)
            return self.of(np.repeat(cpu, 2), np.repeat(free, 2, axis=0), twice)[:1]
        total = free.sum(axis=1)
        enough = free >= self._sizes
        number = enough.sum(axis=2).take(self._size_of, axis=0)
        too_small = (total - (free * enough).sum(axis=2)).take(self._size_of, axis=0)
        fits = (number >= self._count) & (cpu >= self._cpu) & self._uses_gpu
        if access is not None:
            fits &= access
        useless = self._share * np.where(fits, too_small, total)
        found: FloatArray = np.add.reduce(useless, axis=0)
        return found

    def categories(
        self, cpu: IntArray, free: IntArray, access: NDArray[np.bool_] | None = None
    ) -> dict[Category, FloatArray]:
        """The free GPU of each state by category; all categories together are all that is free."""
        total = free.sum(axis=1)
        enough = free >= self._sizes
        gpu = enough.sum(axis=2).take(self._size_of, axis=0) >= self._count
        useful = (free * enough).sum(axis=2).take(self._size_of, axis=0)
        has_cpu, uses_gpu = cpu >= self._cpu, self._uses_gpu
        allowed: Any = True if access is None else access
        candidate = uses_gpu & allowed
        satisfied = candidate & gpu & has_cpu
        whole = {
            Category.NO_GPU_FITS: ~uses_gpu & has_cpu,
            Category.NO_GPU_LACKS_CPU: ~uses_gpu & ~has_cpu,
            Category.NO_ACCESS: uses_gpu & np.logical_not(allowed),
            Category.LACK_BOTH: candidate & ~gpu & ~has_cpu,
            Category.LACK_CPU: candidate & gpu & ~has_cpu,
        }
        found: dict[Category, FloatArray] = {
            category: (self._share * np.where(mask, total, 0)).sum(axis=0) for category, mask in whole.items()
        }
        lacks_gpu = np.where(candidate & ~gpu & has_cpu, total, np.where(satisfied, total - useful, 0))
        found[Category.LACK_GPU] = (self._share * lacks_gpu).sum(axis=0)
        found[Category.SATISFIED] = (self._share * np.where(satisfied, useful, 0)).sum(axis=0)
        return found


LARGEST_CPU_MILLI: Final = 128_000
LARGEST_GPU_MILLI: Final = 8_000
"""The largest node of the published experiment: scores are relative to it, not to the cluster."""

NO_DEVICE: Final = -1

BoolArray = NDArray[np.bool_]


def enough_devices(free: IntArray, request: GpuRequest) -> BoolArray:
    """Nodes with enough devices that have enough free."""
    enough: BoolArray = (free >= request.milli).sum(axis=1) >= request.count
    return enough


def in_range(scores: FloatArray) -> IntArray:
    """Truncated. Nodes that are larger than the largest of the experiment would exceed the range."""
    return np.clip(scores, 0, 100).astype(np.int64)


def dot_product(cpu: IntArray, free: IntArray, pod_cpu: int, request: GpuRequest) -> IntArray:
    """Nodes whose free resources point in another direction than the request score higher."""
    by_cpu = (cpu / LARGEST_CPU_MILLI) * (pod_cpu / LARGEST_CPU_MILLI)
    by_gpu = (free.sum(axis=1) / LARGEST_GPU_MILLI) * (request.total_milli / LARGEST_GPU_MILLI)
    return in_range(100 * (1 - (by_cpu + by_gpu) / 2))


def best_fit(cpu: IntArray, free: IntArray, pod_cpu: int, request: GpuRequest) -> IntArray:
    """The less a node has left, the higher its score."""
    by_cpu = (cpu - pod_cpu) / LARGEST_CPU_MILLI
    by_gpu = (free.sum(axis=1) - request.total_milli) / LARGEST_GPU_MILLI
    return in_range(100 * (1 - (0.5 * by_cpu + 0.5 * by_gpu)))


def spread_out(scores: IntArray) -> IntArray:
    """Normalized so that the lowest becomes 0 and the highest 100; all 0 if there is no difference."""
    lowest, highest = int(scores.min(initial=100)), int(scores.max(initial=0))
    if highest <= lowest:
        return np.zeros(len(scores), dtype=np.int64)
    found: IntArray = (scores - lowest) * 100 // (highest - lowest)
    return found


def clustering(free: IntArray, kinds: IntArray, request: GpuRequest) -> IntArray:
    """Pods of a kind go where pods of the same kind are, and on fuller nodes. `kinds` counts the pods of
    each kind."""
    if not request.count:
        return np.zeros(len(free), dtype=np.int64)
    same = kinds[:, request.kind] if request.kind < kinds.shape[1] else np.zeros(len(kinds), dtype=np.int64)
    others = kinds.sum(axis=1) - same
    base = np.where(same > 0, np.where(others > 0, 50, 75), np.where(others > 0, 0, 25))
    fullness = 25 * np.maximum(LARGEST_GPU_MILLI - free.sum(axis=1), 0) // LARGEST_GPU_MILLI
    found: IntArray = base + fullness
    return found


def packing(free: IntArray, device_count: IntArray, request: GpuRequest) -> IntArray:
    """Devices that are in use before free ones on nodes in use, and these before idle nodes."""
    if not request.count:
        return np.zeros(len(free), dtype=np.int64)
    whole = (free == DEVICE_MILLI).sum(axis=1)
    idle = np.maximum(33 - whole, whole)
    if not request.is_share:
        in_use: IntArray = np.full(len(free), max(50 - request.count, 33), dtype=np.int64)
    else:
        partly = (free >= request.milli) & (free < DEVICE_MILLI)
        least = np.where(partly, free, DEVICE_MILLI).min(axis=1, initial=DEVICE_MILLI)
        used = np.maximum(100 - least * 100 // DEVICE_MILLI // 10, 50)
        in_use = np.where(partly.any(axis=1), used, 49)
    return np.where(whole == device_count, idle, in_use)


def fgd(
    fragmentation: Fragmentation,
    cpu: IntArray,
    free: IntArray,
    access: BoolArray | None,
    pod_cpu: int,
    request: GpuRequest,
) -> tuple[IntArray, IntArray]:
    """The score of each node, and the device for a part of a GPU (`NO_DEVICE` where none is chosen).

    100 times the sigmoid of the fall of fragmentation in GPUs, truncated: 50 is no change. The published
    results depend on the truncation, which makes many nodes equal. Nodes that do not fit have score 0.
    """
    scores = np.zeros(len(cpu), dtype=np.int64)
    devices = np.full(len(cpu), NO_DEVICE, dtype=np.int64)
    rows = (enough_devices(free, request) & (cpu >= pod_cpu)).nonzero()[0]
    if not len(rows):
        return scores, devices
    if not request.is_share:
        after = _without_whole(free[rows], request.count)
        scores[rows] = _fall_scores(fragmentation, cpu[rows], free[rows], after, None, access, rows, pod_cpu)
        return scores, devices
    at, device = _distinct_choices(free[rows], request.milli)
    after = free[rows[at]]
    after[np.arange(len(at)), device] -= request.milli
    found = _fall_scores(fragmentation, cpu[rows], free[rows], after, at, access, rows, pod_cpu)
    by_device = np.full((len(rows), free.shape[1]), -1, dtype=np.int64)
    by_device[at, device] = found
    scores[rows] = by_device.max(axis=1)
    devices[rows] = by_device.argmax(axis=1)
    return scores, devices


def _fall_scores(
    fragmentation: Fragmentation,
    cpu: IntArray,
    free: IntArray,
    after: IntArray,
    at: NDArray[np.intp] | None,
    access: BoolArray | None,
    rows: NDArray[np.intp],
    pod_cpu: int,
) -> IntArray:
    """The score of each state in `after`, which belongs to the node `at` (None: one each, in order)."""
    left = cpu - pod_cpu
    states = np.concatenate((cpu, left if at is None else left.take(at)))
    allowed = None
    if access is not None:
        here = access[:, rows]
        allowed = np.concatenate((here, here if at is None else here[:, at]), axis=1)
    found = fragmentation.of(states, np.concatenate((free, after)), allowed)
    before = found[: len(cpu)]
    fall = (before if at is None else before.take(at)) - found[len(cpu) :]
    return (100 * (1 / (1 + np.exp(-fall / 1000)))).astype(np.int64)


def _distinct_choices(free: IntArray, milli: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Nodes and devices that are worth trying: of devices with equally much free only the first."""
    equal = free[:, :, None] == free[:, None, :]
    at, device = ((free >= milli) & ~(equal & _earlier(free.shape[1])).any(axis=2)).nonzero()
    return at, device


@lru_cache(maxsize=8)
def _earlier(width: int) -> BoolArray:
    """For each device those before it."""
    return np.tri(width, k=-1, dtype=np.bool_)


def _without_whole(free: IntArray, count: int) -> IntArray:
    """What is free after the first `count` wholly free devices are in use."""
    if not count:
        return free
    whole = free == DEVICE_MILLI
    used = whole & (np.cumsum(whole, axis=1) <= count)
    return np.where(used, 0, free)


def best_fit_devices(free: IntArray, request: GpuRequest) -> tuple[int, ...]:
    """The devices on one node: the one with least free that is enough, or the first wholly free ones.

    Empty if the node has too few.
    """
    enough = free >= request.milli
    if int(enough.sum()) < request.count or not request.count:
        return ()
    if request.is_share:
        return (int(np.where(enough, free, DEVICE_MILLI + 1).argmin()),)
    return tuple(np.flatnonzero(enough)[: request.count].tolist())
