"""The cost of each plugin: calls, rows and time by plugin and extension point, and how much the cache saves.

Every attempt is measured, with a timer that also counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.runtime.framework import Framework
from bayplan.runtime.observed import AttemptTimer, RarePoints
from bayplan.runtime.search import Found, NotFound

BY_ROW: Final = (Point.FILTER, Point.SCORE)
"""The points whose results are cached row by row."""
MANY_ROWS: Final = 0.5
"""A plugin that is called for more than this share of all rows should declare its dependencies."""
RARELY_SHARED: Final = 0.5

DECLARE: Final = "declare depends_on: it is called for every node and pod"
SHARE: Final = "results are rarely shared: depend on fewer fields, or on a function of the pod"
PAGE: Final = "docs/plugin-performance.md"


@dataclass(slots=True)
class Cost:
    """What one plugin cost at one point."""

    plugin: str
    point: str
    calls: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CostLine:
    """The same for each pod, as it is shown."""

    plugin: str
    point: str
    calls_per_pod: float
    rows_per_pod: float
    us_per_pod: float
    cached: float | None
    """The share of rows whose results came from the cache; None if the plugin's results are not cached."""
    hint: str = ""


class CallCounter(AttemptTimer):
    """Measures every attempt: calls, rows and CPU time, which other processes do not change."""

    def __init__(self) -> None:
        self.costs: dict[tuple[str, str], Cost] = {}

    def reset(self) -> None:
        self.costs.clear()

    clock = staticmethod(time.thread_time)

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        cost = self.costs.get((plugin, point))
        if cost is None:
            cost = self.costs[plugin, point] = Cost(plugin, point)
        cost.calls += 1
        cost.rows += rows
        cost.seconds += seconds


class _EveryAttempt:
    """Samples every attempt, and observes nothing else (`runtime.observed.PointObserver`)."""

    def __init__(self, counter: CallCounter) -> None:
        self._counter = counter
        self.rare_points = RarePoints(self)

    def clock(self) -> float:
        return 0.0

    def sample(self) -> AttemptTimer:
        return self._counter

    def observe(self, point: str, code: Code, seconds: float) -> None:
        return None

    def ended(self, result: Found | NotFound) -> None:
        return None

    def preemption_tried(self, code: Code, seconds: float) -> None:
        return None


def count_calls(frameworks: Sequence[Framework]) -> CallCounter:
    """Counts all calls of the plugins of these frameworks from now on."""
    counter = CallCounter()
    for framework in frameworks:
        framework.observer = _EveryAttempt(counter)
    return counter


def cost_lines(counting: CallCounter, plugins: Sequence[Plugin], nodes: int, pods: int) -> list[CostLine]:
    """The costs for each pod, most expensive first."""
    by_name = {plugin.name: plugin for plugin in plugins}
    lines = []
    for cost in sorted(counting.costs.values(), key=lambda cost: -cost.seconds):
        plugin = by_name[cost.plugin]
        share = cost.rows / (nodes * pods)
        by_row = cost.point in BY_ROW
        cached = max(0.0, 1 - share) if by_row and plugin.depends_on is not None else None
        lines.append(
            CostLine(
                cost.plugin,
                cost.point,
                round(cost.calls / pods, 3),
                round(cost.rows / pods, 1),
                round(cost.seconds * 1e6 / pods, 2),
                None if cached is None else round(cached, 4),
                _hint(plugin, share, cached) if by_row else "",
            )
        )
    return lines


def _hint(plugin: Plugin, share: float, cached: float | None) -> str:
    """How to make a plugin of a user faster."""
    if type(plugin).__module__.startswith("bayplan.plugins."):
        return ""
    if plugin.depends_on is None:
        return f"{DECLARE} ({PAGE})" if share > MANY_ROWS else ""
    return f"{SHARE} ({PAGE})" if cached is not None and cached < RARELY_SHARED else ""
