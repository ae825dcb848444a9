"""LoadVariationRiskBalancing: prefers nodes with a low and steady measured load.

The risk of a node is half the sum of the mean utilization it would have with the pod, and of the deviation
of its measured utilization. Cpu and memory are evaluated separately, and the higher risk counts. The
formulas are those of the scheduler-plugins project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from bayplan.plugin import (
    CPU,
    MEMORY,
    CycleState,
    Handle,
    IntColumn,
    NodeColumns,
    Plugin,
    PluginArgs,
    Pod,
    ScorePlugin,
)
from bayplan.plugin.args import FieldError, Gates, at, invalid
from bayplan.plugin.resources import fit_requests
from bayplan.plugins.load_aware.usage import Load, MetricProvider, NodeHistory, NodeUsage


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

    name: ClassVar = "LoadVariationRiskBalancing"
    args_type: ClassVar = LoadVariationRiskBalancingArgs

    args: LoadVariationRiskBalancingArgs

    def __init__(
        self, args: LoadVariationRiskBalancingArgs | None = None, handle: Handle | None = None
    ) -> None:
        super().__init__(args or LoadVariationRiskBalancingArgs(), handle)
        self.usage = NodeUsage(handle, self.args.metric_provider)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        self.usage.refresh()
        now = 0.0 if self.handle is None else self.handle.now()
        requests = fit_requests(pod)
        capacity = {resource: nodes.allocatable(resource).tolist() for resource in (CPU, MEMORY)}
        scores = np.zeros(len(nodes), dtype=np.int64)
        for position, name in enumerate(nodes.names):
            history = self.usage.of(name)
            if history is not None:
                found = [
                    self._of(history, resource, requests.get(resource, 0), capacity[resource][position], now)
                    for resource in (CPU, MEMORY)
                ]
                known = [score for score in found if score is not None]
                scores[position] = int(min(known, default=0.0) + 0.5)
        return scores

    def _of(
        self, history: NodeHistory, resource: str, request: int, capacity: int, now: float
    ) -> float | None:
        load = history.load(resource, capacity, now)
        return None if load is None else self.resource_score(load, request / capacity)

    def resource_score(self, load: Load, request: float) -> float:
        """The score of one resource; `request` is a share of the node."""
        mean = min(max(min(load.mean, 1.0) + max(request, 0.0), 0.0), 1.0)
        deviation = min(max(load.deviation, 0.0), 1.0)
        sensitivity = self.args.safe_variance_sensitivity
        # A root of order 0 leaves nothing of a share below 1.
        root = deviation ** (1 / sensitivity) if sensitivity else float(deviation >= 1)
        risk = (mean + min(root * self.args.safe_variance_margin, 1.0)) / 2
        return (1 - risk) * 100
