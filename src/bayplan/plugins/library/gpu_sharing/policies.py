"""The scores of the policies and their choices of devices, over all nodes at once.

Each function takes one row per node: free cpu (milli), and the free milli of each device (0 for devices that
the node does not have). Scores are integers from 0 to 100 and meaningful only for nodes that the pod fits on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.plugins.library.gpu_sharing.fragmentation import FloatArray, Fragmentation, IntArray
from bayplan.plugins.library.gpu_sharing.request import DEVICE_MILLI, GpuRequest

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
