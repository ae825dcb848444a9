"""The base classes of plugins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayplan.framework.points import Point
from bayplan.plugin import (
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodePlugin,
    Plugin,
    Pod,
    normalize_default,
    unschedulable,
)
from bayplan.runtime.profile import Profile, points_of
from bayplan.testing.calling import make_plugin
from tests.runtime.profiles import make_profile


class Unnamed(Plugin):
    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


class Named(Plugin):
    name = "other-name"

    def pre_enqueue(self, pod: Pod) -> None:
        return None


class Child(Named):
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None


def test_a_plugin_is_named_after_its_class_unless_it_sets_a_name() -> None:
    assert (Unnamed.name, Named.name, Child.name) == ("Unnamed", "other-name", "Child")


def test_a_plugin_takes_part_in_the_points_whose_methods_it_has() -> None:
    assert points_of(Unnamed) == {Point.SCORE}
    assert points_of(Child) == {Point.PRE_ENQUEUE, Point.PERMIT}
    assert points_of(Plugin) == frozenset()


def test_a_plugin_without_registered_events_is_requeued_by_any_event() -> None:
    assert make_plugin(Unnamed).events_to_register() is None


def test_reads_in_short() -> None:
    assert Dependencies.of("labels", "ports", usage=True) == Dependencies(
        frozenset({"labels", "ports"}), usage=True
    )


class TestNodePlugin:
    def test_it_gets_the_points_it_has_methods_for(self) -> None:
        class Filters(NodePlugin):
            def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
                return unschedulable("no")

        class Scores(NodePlugin):
            def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
                return 1

        class Both(Filters):
            def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
                return 1

        assert [points_of(plugin) for plugin in (Filters, Scores, Both)] == [
            {Point.FILTER},
            {Point.SCORE},
            {Point.FILTER, Point.SCORE},
        ]

    def test_its_own_filter_is_left_alone(self) -> None:
        class Own(NodePlugin):
            def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
                return unschedulable("no")

            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
                return ()

        assert list(make_plugin(Own).filter(CycleState(), None, None)) == []  # type: ignore[arg-type]  # uses no arguments


@pytest.mark.parametrize(
    ("scores", "normal", "reverse"),
    [
        pytest.param([0, 5, 10], [0, 50, 100], [100, 50, 0], id="the highest becomes 100"),
        pytest.param([1, 2, 3], [33, 66, 100], [67, 34, 0], id="cut, not rounded"),
        pytest.param([0, 0], [0, 0], [100, 100], id="nothing to scale by"),
        pytest.param([], [], [], id="no nodes"),
        pytest.param([7], [100], [0], id="one node"),
    ],
)
def test_default_normalisation(scores: list[int], normal: list[int], reverse: list[int]) -> None:
    column = np.array(scores, dtype=np.int64)
    assert normalize_default(column).tolist() == normal
    assert normalize_default(column, reverse=True).tolist() == reverse
    assert column.tolist() == scores


class TestProfile:
    def test_weights(self) -> None:
        """One that is not given, or 0, is 1."""
        profile = make_profile(make_plugin(Unnamed), weights={"Unnamed": 3})
        assert [step.weight for step in profile.scores] == [3]
        assert [step.weight for step in make_profile(make_plugin(Unnamed)).scores] == [1]
        assert [
            step.weight for step in make_profile(make_plugin(Unnamed), weights={"Unnamed": 0}).scores
        ] == [1]

    def test_a_plugin_at_several_points_is_one_plugin(self) -> None:
        plugin = make_plugin(Child)
        profile = Profile("p", {Point.PRE_ENQUEUE: [plugin], Point.PERMIT: [plugin]}, {})
        assert profile.all_plugins() == (plugin,)

    def test_a_plugin_takes_part_only_where_it_is_listed(self) -> None:
        profile = Profile("p", {Point.PRE_ENQUEUE: [make_plugin(Child)]}, {})
        assert profile.plugins[Point.PERMIT] == ()
