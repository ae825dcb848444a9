"""The short text about a failing plugin."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from bayplan.errors import QuantityError
from bayplan.framework.status import describe, traceback_of, wrong_result
from bayplan.plugin import CycleState, NodePlugin, Pod, Reject, unschedulable
from bayplan.plugin.objects import parse_quantity
from bayplan.runtime import calls
from bayplan.runtime.calls import AttemptError
from bayplan.scheduler.core import SchedulingCore
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node, make_pod


def helper(text: str) -> Any:
    return json.loads(text)


class Breaks(NodePlugin):
    def filter_node(self, state: CycleState, pod: Pod, node: object) -> None:
        helper(pod.annotations["rule"])


def failing(error: Exception | None = None, **annotations: str) -> AttemptError:
    core = SchedulingCore(plugins=[Breaks])
    core.load([make_node("n")])
    with pytest.raises(AttemptError) as raised:
        core.frameworks["default-scheduler"].find(make_pod("p", annotations=annotations))
    return raised.value


def test_the_innermost_line_of_the_plugin_is_named() -> None:
    """Not that of the library in which it was raised, and not that of the scheduler."""
    error = failing(rule="{")
    assert str(error).startswith('running "Breaks" filter plugin: JSONDecodeError: Expecting property name')
    assert str(error).endswith(f"(test_failures.py:{helper.__code__.co_firstlineno + 1}, in helper)")
    assert "json/decoder.py" in error.traceback
    assert "in filter_node" in error.traceback


def test_errors_of_bayplan_raised_through_a_plugin_are_located_too() -> None:
    with pytest.raises(QuantityError) as raised:
        parse_quantity("x")
    assert "QuantityError: " in describe(raised.value)
    assert "(test_failures.py:" in describe(raised.value)
    assert traceback_of(raised.value)


def test_texts_are_one_line_and_short() -> None:
    text = describe(ValueError("a\nb\n" + "c" * 1000))
    assert text.startswith("ValueError: a b ccc")
    assert len(text) < 400


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "filter returned None; x"),
        (False, "filter returned False; x"),
        ("a" * 100, f"filter returned '{'a' * 59}…; x"),
        (np.array([True]), "filter returned array([ True]) (ndarray); x"),
    ],
)
def test_wrong_results(value: object, text: str) -> None:
    assert str(wrong_result("filter", value, "x")) == text


def test_a_coroutine() -> None:
    async def permit() -> None:
        await asyncio.sleep(0)

    text = "permit returned a coroutine; define it with def, not async def"
    assert str(wrong_result("permit", permit(), "x")) == text


def test_a_value_that_cannot_be_shown() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "<Odd whose repr raises RuntimeError> (Odd)" in str(wrong_result("filter", Odd(), "x"))


# Plugins that write to what they were given


@pytest.mark.parametrize("rows", [None, np.array([0, 1])], ids=["all rows", "some rows"])
def test_columns_are_read_only(rows: Any) -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.set_node(make_node(name))
    from bayplan.state.view import NodeColumns

    nodes = NodeColumns(cluster, rows)
    for column in (nodes.pod_count, nodes.allocatable("cpu"), nodes.label("zone").ids, nodes.unschedulable):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_scores_cannot_be_changed_in_place() -> None:
    class InPlace(NodePlugin):
        def score_node(self, state: CycleState, pod: Pod, node: object) -> int:
            return 7

        def normalize(self, state: object, pod: Pod, nodes: object, scores: Any) -> Any:
            scores *= 2
            return scores

    core = SchedulingCore(plugins=[InPlace])
    core.load([make_node("a"), make_node("b")])
    message = core.decide(make_pod("p")).message
    problem = "ValueError: output array is read-only: the array is shared, change a copy (test_failures.py:"
    assert f'plugin "InPlace" failed with: {problem}' in message


def test_a_reason_that_is_no_text() -> None:
    class Odd(NodePlugin):
        def filter(self, state: object, pod: Pod, nodes: Any) -> Any:
            yield Reject(True, unschedulable(None))  # type: ignore[arg-type]  # what is tested

    core = SchedulingCore(plugins=[Odd])
    core.load([make_node("a"), make_node("b")])
    decision = core.decide(make_pod("p"))
    assert "the reason of a Reject must be a string" in decision.message
    assert calls.AttemptError("x").traceback == ""
