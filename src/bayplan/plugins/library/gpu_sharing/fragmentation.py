"""Fragmentation: how much of a node's free GPU is useless to the pods that may come.

What may come is a list of typical pods, each with its share. To a typical pod that does not fit on the
node, all of the node's free GPU is useless; to one that fits, only devices that have too little free are.
A pod without GPU request has no use for GPU anywhere. The fragmentation of a node is the mean over the
typical pods, in milli.

The method is that of FGD: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
