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
    Cluster,
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
from bayplan.plugin.objects import fit_requests
from bayplan.plugins.library.load_aware.columns import Load, LoadColumns
from bayplan.plugins.library.load_aware.history import FloatArray
from bayplan.plugins.library.load_aware.usage import MetricProvider, NodeUsage


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
