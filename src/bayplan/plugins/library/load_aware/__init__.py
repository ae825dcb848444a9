"""Scheduling by measured load: TargetLoadPacking and LoadVariationRiskBalancing.

TargetLoadPacking fills nodes up to a target of cpu utilization, and spreads beyond it: up to the target the
score rises with the utilization that the node would have with the pod; beyond it falls. What the pod will use
is predicted from its limits or requests; so is the usage of pods that were assigned since the last
measurement.

LoadVariationRiskBalancing prefers nodes with a low and steady load. The risk of a node is half the sum of the
mean utilization it would have with the pod, and of the deviation of its measured utilization. Cpu and memory
are evaluated separately, and the higher risk counts.

The formulas are those of the scheduler-plugins project. `measurements.py` has where the load comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import ClassVar, Final

import msgspec
import numpy as np

from bayplan.plugin import (
    CPU,
    MEMORY,
    Cluster,
    CycleState,
    Handle,
    IntColumn,
    NodeColumns,
    Plugin,
    PluginArgs,
    Pod,
    ReservePlugin,
    ScorePlugin,
    Status,
)
from bayplan.plugin.args import FieldError, Gates, at, invalid
from bayplan.plugin.objects import fit_requests, milli_value
from bayplan.plugins.library.load_aware.measurements import (
    FloatArray,
    Load,
    LoadColumns,
    MetricProvider,
    NodeUsage,
)

REPORTING_SECONDS: Final = 60.0
"""A measurement may not include pods that were assigned up to this long before it."""
MAX_REMEMBERED_SECONDS: Final = 600.0
_NOTHING_COUNTED: Final = -1


class RecentPlacements:
    """Recently assigned pods, and their predicted usage on each row.

    A placement is added to the sum of its row. All sums are computed again only after a measurement, a node
    or a failed binding changed what counts; then pods are dropped that do not count any more.
    """

    def __init__(self) -> None:
        self._position: dict[str, int] = {}
        """Of each pod, by uid, in the lists."""
        self._uids: list[str] = []
        self._rows: list[int] = []
        self._times: list[float] = []
        self._milli: list[int] = []
        self._sums: IntColumn = np.zeros(0, dtype=np.int64)
        self._counted = 0
        """How many pods are in the sums."""
        self._counted_at = _NOTHING_COUNTED
        """The state of the columns by which they were counted."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, uid: str, row: int, now: float, milli: int) -> None:
        self.remove(uid)
        self._position[uid] = len(self._rows)
        self._uids.append(uid)
        self._rows.append(row)
        self._times.append(now)
        self._milli.append(milli)

    def remove(self, uid: str) -> None:
        position = self._position.pop(uid, None)
        if position is not None:
            self._milli[position] = 0
            self._counted_at = _NOTHING_COUNTED

    def missing(self, columns: LoadColumns, now: float) -> IntColumn:
        """For each row what its measurement does not include, in thousandths of a cpu."""
        if self._counted_at != columns.rows_computed:
            self._count_all(columns, now)
        elif self._counted < len(self._rows):
            for position in range(self._counted, len(self._rows)):
                row = self._rows[position]
                if self._times[position] > columns.measured_at[row] - REPORTING_SECONDS:
                    self._sums[row] += self._milli[position]
            self._counted = len(self._rows)
        return self._sums

    def _count_all(self, columns: LoadColumns, now: float) -> None:
        rows = np.array(self._rows, dtype=np.intp)
        times = np.array(self._times, dtype=np.float64)
        milli = np.array(self._milli, dtype=np.int64)
        first = np.maximum(columns.measured_at - REPORTING_SECONDS, now - MAX_REMEMBERED_SECONDS)
        counts = (milli > 0) & (times > first[rows]) & (times >= columns.named_at[rows])
        self._sums = np.zeros(len(first), dtype=np.int64)
        np.add.at(self._sums, rows[counts], milli[counts])
        if not counts.all():
            self._uids = list(compress(self._uids, counts.tolist()))
            self._position = dict(zip(self._uids, range(len(self._uids)), strict=True))
            self._rows, self._times = rows[counts].tolist(), times[counts].tolist()
            self._milli = milli[counts].tolist()
        self._counted = len(self._rows)
        self._counted_at = columns.rows_computed


class TargetLoadPackingArgs(PluginArgs, frozen=True):
    """The arguments of TargetLoadPacking."""

    metric_provider: MetricProvider = MetricProvider()
    target_utilization: int = 40
    """In percent of the node's cpu. Choose 10 less than what you want to reach."""
    default_requests: dict[str, str | int | float] = msgspec.field(default_factory=lambda: {CPU: "1000m"})
    """What a container without requests and limits will use; only cpu is read."""
    default_requests_multiplier: float | str = "1.5"
    """What a container without limits will use, as a multiple of its request."""

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        yield from self.metric_provider.validate(at(path, "metricProvider"))
        if not 0 < self.target_utilization < 100:
            yield invalid(at(path, "targetUtilization"), self.target_utilization, "must be between 1 and 99")
        if not 0 <= self.multiplier < 1000:
            multiplier = self.default_requests_multiplier
            yield invalid(
                at(path, "defaultRequestsMultiplier"), multiplier, "must be a number from 0 to 1000"
            )

    @property
    def multiplier(self) -> float:
        try:
            return float(self.default_requests_multiplier)
        except ValueError:
            return -1.0


class TargetLoadPacking(Plugin, ScorePlugin, ReservePlugin):
    """Prefers nodes that are near the target of cpu utilization, from below."""

    args_type: ClassVar = TargetLoadPackingArgs

    args: TargetLoadPackingArgs

    def __init__(self, args: TargetLoadPackingArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        self.usage = NodeUsage(handle, self.args.metric_provider)
        self._columns = LoadColumns(self.usage.history, (CPU,), _cpu_capacity)
        self._recent = RecentPlacements()

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        self.usage.refresh()
        now = self.handle.now()
        columns = self._columns
        columns.update(nodes.cluster, now)
        size = np.maximum(columns.capacity(nodes, CPU), 1.0)
        latest = columns.load(nodes, CPU).latest
        missing = nodes.gather(self._recent.missing(columns, now))
        known = columns.known(nodes, now) & ~np.isnan(latest)
        percent = 100 * (np.where(known, latest, 0.0) * size + self.predicted(pod) + missing) / size
        return np.where(known, packing_scores(percent, self.args.target_utilization), 0)

    def predicted(self, pod: Pod) -> int:
        """What the pod will use, in thousandths of a cpu."""
        total = milli_value(pod.spec.overhead.get(CPU))
        for container in pod.spec.containers:
            resources = container.resources
            if CPU in resources.limits:
                total += milli_value(resources.limits[CPU])
            elif CPU in resources.requests:
                total += _rounded(milli_value(resources.requests[CPU]) * self.args.multiplier)
            else:
                total += milli_value(self.args.default_requests.get(CPU, "1"))
        return total

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        row = self.handle.cluster.nodes.row_of.get(node_name)
        if row is not None:
            self._recent.add(pod.uid, row, self.handle.now(), self.predicted(pod))
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._recent.remove(pod.uid)


def packing_scores(percent: FloatArray, target: int) -> IntColumn:
    """The scores of nodes that would use this much of their cpu."""
    rising = (100 - target) * percent / target + target
    falling = target * (100 - percent) / (100 - target)
    scores = np.where(percent > target, falling, rising)
    return np.where(percent > 100, 0.0, scores + 0.5).astype(np.int64)


def _cpu_capacity(cluster: Cluster, row: int, resource: str) -> int:
    node = cluster.nodes.node[row]
    if node is None:
        return 0
    return milli_value(node.status.capacity.get(resource) or node.status.allocatable.get(resource))


def _rounded(number: float) -> int:
    """Halves away from zero, as Go's math.Round."""
    return int(number + 0.5)


class LoadVariationRiskBalancingArgs(PluginArgs, frozen=True):
    """The arguments of LoadVariationRiskBalancing."""

    metric_provider: MetricProvider = MetricProvider()
    safe_variance_margin: float = 1.0
    """A factor of the deviation: how much variation counts."""
    safe_variance_sensitivity: float = 1.0
    """The root of the deviation: above 1, small variations count more."""

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        yield from self.metric_provider.validate(at(path, "metricProvider"))
        if not 0 <= self.safe_variance_margin < float("inf"):
            yield invalid(at(path, "safeVarianceMargin"), self.safe_variance_margin, "must not be negative")
        if not 0 <= self.safe_variance_sensitivity < float("inf"):
            sensitivity = self.safe_variance_sensitivity
            yield invalid(at(path, "safeVarianceSensitivity"), sensitivity, "must not be negative")


class LoadVariationRiskBalancing(Plugin, ScorePlugin):
    """Prefers nodes whose measured load is low and varies little."""

    args_type: ClassVar = LoadVariationRiskBalancingArgs

    args: LoadVariationRiskBalancingArgs

    def __init__(self, args: LoadVariationRiskBalancingArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        self.usage = NodeUsage(handle, self.args.metric_provider)
        self._columns = LoadColumns(self.usage.history, (CPU, MEMORY), _allocatable)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        self.usage.refresh()
        now = self.handle.now()
        self._columns.update(nodes.cluster, now)
        requests = fit_requests(pod)
        lowest = np.full(len(nodes), np.inf)
        for resource in (CPU, MEMORY):
            size = np.maximum(self._columns.capacity(nodes, resource), 1.0)
            load = self._columns.load(nodes, resource)
            # What is unknown is not a number, which fmin ignores.
            lowest = np.fmin(lowest, self.resource_score(load, requests.get(resource, 0) / size))
        known = self._columns.known(nodes, now) & (lowest < np.inf)
        return np.where(known, lowest + 0.5, 0.0).astype(np.int64)

    def resource_score(self, load: Load, request: FloatArray) -> FloatArray:
        """The scores of one resource; `request` is a share of the node."""
        mean = np.clip(np.minimum(load.mean, 1.0) + np.maximum(request, 0.0), 0.0, 1.0)
        deviation = np.clip(load.deviation, 0.0, 1.0)
        sensitivity = self.args.safe_variance_sensitivity
        # A root of order 0 leaves nothing of a share below 1.
        root = deviation ** (1 / sensitivity) if sensitivity else np.floor(deviation)
        risk = (mean + np.minimum(root * self.args.safe_variance_margin, 1.0)) / 2
        scores: FloatArray = (1 - risk) * 100
        return scores


def _allocatable(cluster: Cluster, row: int, resource: str) -> int:
    return int(cluster.nodes.resource(resource).allocatable.cell[row])
