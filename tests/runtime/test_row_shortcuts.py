"""Shortcuts of plugins for single rows: `row_filter` and `row_score`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bayplan.plugin import Code, CycleState, Dependencies, NodeColumns, Plugin, Pod, Reject, unschedulable
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.observed import AttemptTimer, RarePoints
from bayplan.runtime.observed import observed as observed_framework
from bayplan.runtime.search import Found, NotFound
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import FakeHandle

from .profiles import found, make_framework, not_found
from .scripted import pods


class Shortcut(Plugin):
    """Rejects nodes with pods, and prefers those of a low number; single rows by its shortcuts."""

    depends_on = Dependencies.of(usage=True)
    elementwise = True

    def __init__(self) -> None:
        super().__init__(None, FakeHandle())
        self.rows: list[tuple[str, int]] = []
        self.problem: dict[str, Exception] = {}

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(nodes.pod_count > 0, unschedulable("taken"))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        return nodes.maximum(100 - nodes.pod_count, 0)

    def row_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], bool]:
        return lambda row: bool(self._number("filter", row, nodes) > 0)

    def row_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int]:
        return lambda row: max(100 - self._number("score", row, nodes), 0)

    def _number(self, point: str, row: int, nodes: NodeColumns) -> int:
        self.rows.append((point, row))
        if point in self.problem:
            raise self.problem[point]
        return int(nodes.cluster.nodes.pod_count.cell[row])


class HalfSeconds(AttemptTimer):
    """A timer whose clock advances by half a second whenever it is read."""

    def __init__(self) -> None:
        self.observed: list[tuple[str, float]] = []
        self._now = 0.0

    def clock(self) -> float:
        self._now += 0.5
        return self._now

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        self.observed.append((point, seconds))


class Sampled:
    """Samples every attempt."""

    def __init__(self, timer: AttemptTimer) -> None:
        self._timer = timer
        self.rare_points = RarePoints(self)

    def clock(self) -> float:
        return 0.0

    def sample(self) -> AttemptTimer:
        return self._timer

    def observe(self, point: str, code: Code, seconds: float) -> None:
        pass

    def ended(self, result: Found | NotFound) -> None:
        pass

    def preemption_tried(self, code: Code, seconds: float) -> None:
        pass


class TestShortcuts:
    def test_a_row_that_changed_is_computed_by_them(self) -> None:
        plugin = Shortcut()
        framework = make_framework(plugin, nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        assert found(framework, next(next_pod)).feasible == 4
        assert plugin.rows == [("filter", 2), ("score", 2)]

    def test_the_reasons_are_those_of_filter(self) -> None:
        framework = make_framework(Shortcut(), nodes=2)
        next_pod = pods()
        found(framework, next(next_pod))
        for name in ("n0", "n1"):
            framework.cluster.add_pod(make_pod(f"other-{name}"), name)
        statuses = not_found(framework, next(next_pod)).diagnosis.statuses()
        assert [(status.reasons, len(rows)) for status, rows in statuses] == [(("taken",), 2)]

    @pytest.mark.parametrize(
        ("taken", "observed"),
        [
            pytest.param("", [("Filter", 0.5), ("Score", 0.5)], id="by the shortcut"),
            pytest.param("n2", [("Filter", 0.5), ("Score", 0.5)], id="by Filter, which has the reason"),
        ],
    )
    def test_a_sampled_attempt_observes_each_plugin_once(
        self, taken: str, observed: list[tuple[str, float]]
    ) -> None:
        framework = make_framework(Shortcut(), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        if not taken:
            found(framework, next(next_pod))
            framework.cluster.remove_pod(make_pod("other").uid)
        timer = HalfSeconds()
        found(observed_framework(framework, Sampled(timer)), next(next_pod))
        assert timer.observed == observed

    @pytest.mark.parametrize(
        ("point", "text"),
        [
            ("filter", 'running "Shortcut" filter plugin: RuntimeError: no luck'),
            ("score", 'running Score plugins: plugin "Shortcut" failed with: RuntimeError: no luck'),
        ],
    )
    def test_an_exception_fails_the_attempt_and_names_the_plugin(self, point: str, text: str) -> None:
        plugin = Shortcut()
        framework = make_framework(plugin, nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        plugin.problem[point] = RuntimeError("no luck")
        with pytest.raises(AttemptError, match=re.escape(text)):
            framework.find(next(next_pod))
        plugin.problem.clear()
        assert found(framework, next(next_pod)).feasible == 4
