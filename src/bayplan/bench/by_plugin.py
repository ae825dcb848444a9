"""The cost of each plugin: calls, rows and time by plugin and extension point, and how much the cache saves.

All plugins of a framework are called through its `Caller`; here that is one that counts. Shortcuts for single
rows (`RowFilterPlugin`, `RowScorePlugin`) are not used while it counts, so built-in plugins that have them
are faster than shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Reasons, Rejections
from bayplan.framework.plugin_api import NodeNames, Plugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import Step
from bayplan.runtime.timing import NORMALIZE
from bayplan.state.view import IntColumn, NodeColumns

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
    nanoseconds: int = 0


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


_cpu_ns: Final = time.thread_time_ns
"""CPU time: other processes on the machine do not change it."""


class CountingCalls:
    """`runtime/calls.py` with counters. It is also the attempt's timer, so that single rows use it."""

    def __init__(self) -> None:
        self.costs: dict[tuple[str, str], Cost] = {}
        self.clock = time.thread_time

    def reset(self) -> None:
        self.costs.clear()

    def _count(self, plugin: str, point: str, rows: int, started: int) -> None:
        took = _cpu_ns() - started
        cost = self.costs.get((plugin, point))
        if cost is None:
            cost = self.costs[plugin, point] = Cost(plugin, point)
        cost.calls += 1
        cost.rows += rows
        cost.nanoseconds += took

    # The timer of an attempt: whole points are not measured here

    def start(self) -> None:
        return None

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        return None

    def took(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        """PostFilter, which is not called through here."""
        started = _cpu_ns() - round(seconds * 1e9)
        self._count(plugin, point, 0, started)

    # The functions of calls.py

    def pre_filter(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames:
        started = _cpu_ns()
        try:
            return calls.pre_filter(step, state, pod, nodes)
        finally:
            self._count(step.name, Point.PRE_FILTER, 0, started)

    def filter_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons) -> int:
        started = _cpu_ns()
        try:
            return calls.filter_one(step, state, pod, node, reasons)
        finally:
            self._count(step.name, Point.FILTER, 1, started)

    def filter_rows(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
    ) -> Rejections | None:
        started = _cpu_ns()
        try:
            return calls.filter_rows(step, state, pod, nodes, reasons)
        finally:
            self._count(step.name, Point.FILTER, len(nodes), started)

    def by_row(self, step: Step, point: Point, shortcut: Callable[[int], int], row: int) -> int:
        started = _cpu_ns()
        answer = calls.by_row(step, point, shortcut, row)
        if answer is not True:
            self._count(step.name, point, 1, started)
        return answer

    def pre_score(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
        started = _cpu_ns()
        try:
            return calls.pre_score(step, state, pod, nodes)
        finally:
            self._count(step.name, Point.PRE_SCORE, 0, started)

    def score_rows(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        started = _cpu_ns()
        try:
            return calls.score_rows(step, state, pod, nodes)
        finally:
            self._count(step.name, Point.SCORE, len(nodes), started)

    def score_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int:
        started = _cpu_ns()
        try:
            return calls.score_one(step, state, pod, node)
        finally:
            self._count(step.name, Point.SCORE, 1, started)

    def normalized(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
    ) -> IntColumn:
        started = _cpu_ns()
        try:
            return calls.normalized(step, state, pod, nodes, scores)
        finally:
            if step.normalizes:
                self._count(step.name, NORMALIZE, len(nodes), started)

    def scores_by_domain(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> calls.DomainScores | None:
        started = _cpu_ns()
        try:
            return calls.scores_by_domain(step, state, pod, nodes)
        finally:
            self._count(step.name, Point.SCORE, 0, started)


def count_calls(frameworks: Sequence[Framework]) -> CountingCalls:
    """Counts all calls of the plugins of these frameworks from now on."""
    counting = CountingCalls()
    for framework in frameworks:
        framework.caller.calls = counting
        framework.caller.timer = counting
    return counting


def cost_lines(counting: CountingCalls, plugins: Sequence[Plugin], nodes: int, pods: int) -> list[CostLine]:
    """The costs for each pod, most expensive first."""
    by_name = {plugin.name: plugin for plugin in plugins}
    lines = []
    for cost in sorted(counting.costs.values(), key=lambda cost: -cost.nanoseconds):
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
                round(cost.nanoseconds / 1e3 / pods, 2),
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
