"""TargetLoadPacking: fills nodes up to a target of measured cpu utilization, and spreads beyond it.

Up to the target the score rises with the utilization that the node would have with the pod; beyond it falls.
What the pod will use is predicted from its limits or requests; so is the usage of
pods that were assigned since the last measurement. The formulas are those of the scheduler-plugins project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec
import numpy as np

from bayplan.plugin import (
    CPU,
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
from bayplan.plugin.objects import milli_value
from bayplan.plugins.library.load_aware.columns import LoadColumns
from bayplan.plugins.library.load_aware.history import FloatArray
from bayplan.plugins.library.load_aware.placements import RecentPlacements
from bayplan.plugins.library.load_aware.usage import MetricProvider, NodeUsage


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

    name: ClassVar = "TargetLoadPacking"
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
