"""What is measured: allocation and fragmentation, by how much of the cluster was requested so far.

Every arrival, placed or not, gives a line. Lines are grouped by the share of the cluster's GPU that was
requested until then, rounded to a whole percent; a published value is the mean over the lines of a percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.plugins.library.gpu_sharing.policies import FloatArray, Fragmentation, IntArray
from bayplan.plugins.library.gpu_sharing.request import DEVICE_MILLI
from bayplan.simulate.openb.orders import Orders
from bayplan.simulate.openb.trace import Trace

_BATCH: Final = 4096
"""States whose fragmentation is computed at once."""


class Result(msgspec.Struct, frozen=True):
    """The result of one run. Percentages are of the GPU capacity of all nodes."""

    policy: str
    seed: int
    pods: int
    arrived_gpu_milli: int
    used_gpu_milli: int
    failed_pods: int
    alloc_at_100: float | None
    alloc_at_130: float | None
    frag_at_130: float | None
    seconds: float


class Point(NamedTuple):
    """The means over the lines of one percent."""

    arrived_percent: int
    alloc_percent: float
    frag_percent: float
    frag_ratio_percent: float
    """Fragmentation as a share of what is free."""
    failed_pods: int
    """Until the last of these lines."""


@dataclass(frozen=True, slots=True)
class Curves:
    """One entry for each arrival."""

    capacity_milli: int
    arrived_milli: IntArray
    """What was requested until then."""
    used_milli: IntArray
    fragmented_milli: FloatArray
    failed: IntArray
    """Pods that did not fit until then."""

    @property
    def percent(self) -> IntArray:
        """The whole percent that each line belongs to; halves are rounded to even."""
        return np.rint(100 * self.arrived_milli / self.capacity_milli).astype(np.int64)

    def points(self) -> list[Point]:
        """The curve: one point for each percent that has lines."""
        return [self._point(int(percent), self.percent == percent) for percent in np.unique(self.percent)]

    def at(self, percent: int) -> Point | None:
        """The means at a percent; if it has no lines, those of its neighbours. None: these have none."""
        lines = self.percent == percent
        if not lines.any():
            lines = abs(self.percent - percent) <= 1
        return self._point(percent, lines) if lines.any() else None

    def _point(self, percent: int, lines: NDArray[np.bool_]) -> Point:
        free = self.capacity_milli - self.used_milli[lines]
        ratio = 100 * self.fragmented_milli[lines] / np.maximum(free, 1)
        allocated = np.round(100 * self.used_milli[lines] / self.capacity_milli, 2)
        fragmented = 100 * float(self.fragmented_milli[lines].mean()) / self.capacity_milli
        return Point(
            percent,
            round(float(allocated.mean()), 2),
            round(fragmented, 2),
            round(float(np.round(ratio, 2).mean()), 2),
            int(self.failed[lines][-1]),
        )

    def result(self, policy: str, seed: int, seconds: float) -> Result:
        at_100, at_130 = self.at(100), self.at(130)
        return Result(
            policy=policy,
            seed=seed,
            pods=len(self.arrived_milli),
            arrived_gpu_milli=int(self.arrived_milli[-1]),
            used_gpu_milli=int(self.used_milli[-1]),
            failed_pods=int(self.failed[-1]),
            alloc_at_100=None if at_100 is None else at_100.alloc_percent,
            alloc_at_130=None if at_130 is None else at_130.alloc_percent,
            frag_at_130=None if at_130 is None else at_130.frag_percent,
            seconds=round(seconds, 3),
        )


class Placements:
    """Records the state of each pod's node after the pod came; fragmentation is computed at the end.

    Rows are nodes in the order in which they are listed.
    """

    def __init__(self, trace: Trace, orders: Orders) -> None:
        self._trace = trace
        self._nodes = [trace.nodes[index] for index in orders.nodes]
        pods = [trace.pods[index] for index in orders.arrivals]
        self._requested = np.array([pod.total_milli for pod in pods], dtype=np.int64)
        self._width = max(node.gpus for node in self._nodes)
        self._row = np.full(len(pods), -1, dtype=np.int64)
        self._cpu = np.zeros(len(pods), dtype=np.int64)
        self._free = np.zeros((len(pods), self._width), dtype=np.int64)

    def record(self, number: int, row: int, cpu_milli: int, free: IntArray) -> None:
        """The arrival of this number came to a node, which then has this much free."""
        self._row[number] = row
        self._cpu[number] = cpu_milli
        self._free[number] = free[: self._width]

    def curves(self, fragmentation: Fragmentation) -> Curves:
        placed = self._row >= 0
        return Curves(
            capacity_milli=self._trace.capacity_milli,
            arrived_milli=np.cumsum(self._requested),
            used_milli=np.cumsum(np.where(placed, self._requested, 0)),
            fragmented_milli=self._fragmented(fragmentation),
            failed=np.cumsum(~placed),
        )

    def _fragmented(self, fragmentation: Fragmentation) -> FloatArray:
        """The fragmentation of the cluster after each arrival: each placement changes that of one node."""
        count = np.array([node.gpus for node in self._nodes])
        idle = np.where(np.arange(self._width) < count[:, None], DEVICE_MILLI, 0)
        rows = np.concatenate((np.arange(len(self._nodes)), self._row))
        known = np.flatnonzero(rows >= 0)
        cpu = np.concatenate((np.array([node.cpu_milli for node in self._nodes]), self._cpu))
        free = np.concatenate((idle, self._free))
        values = np.zeros(len(rows))
        for start in range(0, len(known), _BATCH):
            some = known[start : start + _BATCH]
            models = [self._nodes[row].model for row in rows[some]] if fragmentation.has_models else ()
            values[some] = fragmentation.of(cpu[some], free[some], fragmentation.access(models))
        change = np.zeros(len(rows))
        last = np.zeros(len(self._nodes))
        for index in known.tolist():
            change[index] = values[index] - last[rows[index]]
            last[rows[index]] = values[index]
        found: FloatArray = np.cumsum(change)[len(self._nodes) :]
        return found
