"""Measured usage: what the metrics API and Prometheus report of nodes and pods.

`MeasuredUsage` holds the newest values and does no I/O; `running.py` reads them. Node usage of the metrics
API is smoothed as upstream does: 9/10 of the old value and 1/10 of the new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bayplan.api.quantity import CPU, MEMORY, parse_quantity, resource_units
from bayplan.deschedule.args import METRIC_RESOURCE, PROMETHEUS

SMOOTHING: Final = 0.9
_RESOURCES: Final = (CPU, MEMORY)


class UsageError(Exception):
    """Usage is not known for all nodes."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to an instant query: samples with labels and a value, or an error."""

    type: str = "vector"
    samples: tuple[tuple[Mapping[str, str], float], ...] = ()
    error: str = ""


@dataclass(slots=True)
class MeasuredUsage:
    """The newest measurements."""

    has_kubernetes_metrics: bool = False
    queries: dict[str, QueryResult] | None = None
    """The newest result of each query; None without a Prometheus server."""
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    pods: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    def collect(self, node_metrics: Iterable[Mapping[str, Any]]) -> None:
        """Adds a round of NodeMetrics. Nodes without a sample keep their value."""
        for one in node_metrics:
            name = one["metadata"]["name"]
            new = _amounts(one.get("usage", {}))
            old = self.nodes.get(name)
            self.nodes[name] = (
                new if old is None else {key: _smoothed(old.get(key, 0), new[key]) for key in new}
            )

    def set_pods(self, pod_metrics: Iterable[Mapping[str, Any]]) -> None:
        """Replaces the usage of pods by these PodMetrics."""
        self.pods = {}
        for one in pod_metrics:
            total: dict[str, int] = {}
            for container in one.get("containers", ()):
                for key, amount in _amounts(container.get("usage", {})).items():
                    total[key] = total.get(key, 0) + amount
            self.pods[one["metadata"].get("namespace", ""), one["metadata"]["name"]] = total

    def has(self, source: str) -> bool:
        return self.queries is not None if source == PROMETHEUS else self.has_kubernetes_metrics

    def node_usage(self, source: str, query: str, names: list[str]) -> Mapping[str, Mapping[str, int]]:
        if source == PROMETHEUS:
            return self._queried(query, names)
        for name in names:
            if name not in self.nodes:
                raise UsageError(f'unable to find node "{name}" in the collected metrics')
        return self.nodes

    def pod_usage(self, source: str, namespace: str, name: str) -> Mapping[str, int] | None:
        return self.pods.get((namespace, name))

    def _queried(self, query: str, names: list[str]) -> Mapping[str, Mapping[str, int]]:
        known = {} if self.queries is None else self.queries
        result = known.get(query, QueryResult(error="no result"))
        if result.error:
            raise UsageError(f"unable to capture prometheus metrics: {result.error}")
        if result.type != "vector":
            raise UsageError(f'expected query results to be of type "vector", got "{result.type}" instead')
        found: dict[str, dict[str, int]] = {}
        for labels, value in result.samples:
            if "instance" not in labels:
                raise UsageError("the collected metrics sample is missing 'instance' key")
            if not 0 <= value <= 1:
                shown = (
                    np.format_float_positional(value, trim="-").replace("nan", "NaN").replace("inf", "Inf")
                )
                shown = f"+{shown}" if value == np.inf else shown
                raise UsageError(
                    f'the collected metrics sample for "{labels["instance"]}" has value {shown} '
                    "outside of <0; 1> interval"
                )
            found[labels["instance"]] = {METRIC_RESOURCE: int(value * 100)}
        for name in names:
            if name not in found:
                raise UsageError(f"unable to find metric entry for {name}")
        return found


def _amounts(usage: Mapping[str, Any]) -> dict[str, int]:
    return {key: resource_units(key, parse_quantity(usage[key])) for key in _RESOURCES if key in usage}


def _smoothed(old: int, new: int) -> int:
    """Rounded half away from zero, as Go does."""
    return math.floor(SMOOTHING * old + (1 - SMOOTHING) * new + 0.5)
