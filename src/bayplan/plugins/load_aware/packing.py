"""TargetLoadPacking: fills nodes up to a target of measured cpu utilization, and spreads beyond it.

Up to the target the score rises with the utilization that the node would have with the pod; beyond it falls.
What the pod will use is predicted from its limits or requests; pods that were placed since the last
measurement are predicted, too. The formulas are those of the scheduler-plugins project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import msgspec
import numpy as np

from bayplan.plugin import (
    CPU,
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
from bayplan.plugin.resources import milli_value
from bayplan.plugins.load_aware.usage import MetricProvider, NodeUsage

REPORTING_SECONDS: Final = 60.0
"""A measurement may not include pods that were placed up to this long before it."""
MAX_REMEMBERED_SECONDS: Final = 600.0


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

    def __init__(self, args: TargetLoadPackingArgs | None = None, handle: Handle | None = None) -> None:
        super().__init__(args or TargetLoadPackingArgs(), handle)
        self.usage = NodeUsage(handle, self.args.metric_provider)
        self._placed: dict[str, dict[str, tuple[float, int]]] = {}
        """For each node the pods placed lately: when, and what they will use."""

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        self.usage.refresh()
        now = 0.0 if self.handle is None else self.handle.now()
        wanted = self.predicted(pod)
        scores = np.zeros(len(nodes), dtype=np.int64)
        for position, row in enumerate(nodes.rows.tolist()):
            name = nodes.cluster.nodes.name[row]
            node = nodes.cluster.nodes.node[row]
            history = self.usage.of(name)
            if history is None or node is None:
                continue
            capacity = milli_value(node.status.capacity.get(CPU) or node.status.allocatable.get(CPU))
            load = history.load(CPU, capacity, now)
            if load is not None:
                missing = self._missing(name, history.samples[-1].time)
                percent = 100 * (load.latest * capacity + wanted + missing) / capacity
                scores[position] = packing_score(percent, self.args.target_utilization)
        return scores

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

    def _missing(self, node_name: str, measured_at: float) -> int:
        """What pods will use that the last measurement does not include."""
        placed: Mapping[str, tuple[float, int]] = self._placed.get(node_name, {})
        return sum(milli for time, milli in placed.values() if time > measured_at - REPORTING_SECONDS)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if self.handle is not None:
            now = self.handle.now()
            placed = self._placed.setdefault(node_name, {})
            for uid in [uid for uid, (time, _) in placed.items() if now - time > MAX_REMEMBERED_SECONDS]:
                del placed[uid]
            placed[pod.uid] = (now, self.predicted(pod))
            if len(self._placed) > 2 * self.handle.cluster.node_count + 100:
                known = self.handle.cluster.nodes.row_of
                self._placed = {name: pods for name, pods in self._placed.items() if name in known}
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._placed.get(node_name, {}).pop(pod.uid, None)


def packing_score(percent: float, target: int) -> int:
    """The score of a node that would use this much of its cpu."""
    if percent > 100:
        return 0
    if percent > target:
        return _rounded(target * (100 - percent) / (100 - target))
    return _rounded((100 - target) * percent / target + target)


def _rounded(number: float) -> int:
    """Halves away from zero, as Go's math.Round."""
    return int(number + 0.5)
