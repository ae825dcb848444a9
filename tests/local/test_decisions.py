"""Decisions in a few words."""

from __future__ import annotations

import pytest

from bayplan.api.pod import Pod
from bayplan.local.decisions import Decisions, Line, in_words
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import make_node, make_pod


def _core() -> SchedulingCore:
    core = SchedulingCore()
    for name in ("a", "b"):
        core.cluster.set_node(make_node(name, cpu="2"))
    core.cluster.set_node(make_node("ssd", cpu="2", labels={"disk": "ssd"}))
    core.cluster.add_pod(make_pod("old", cpu="2", uid="old"), "ssd")
    return core


@pytest.mark.parametrize(
    ("pod", "line"),
    [
        pytest.param(
            make_pod("p", cpu="1"), Line("default/p", "a", "best of 2 that fit"), id="one of several"
        ),
        pytest.param(
            make_pod("p", node_selector={"disk": "ssd"}),
            Line("default/p", "ssd", "the only node that fits"),
            id="one that fits",
        ),
        pytest.param(
            make_pod("p", cpu="1", priority=10, node_selector={"disk": "ssd"}),
            Line("default/p", "", "evicts default/old from ssd"),
            id="somebody has to go",
        ),
    ],
)
def test_a_decision_in_words(pod: Pod, line: Line) -> None:
    assert in_words(_core().decide(pod)) == line


def test_a_pod_that_fits_nowhere_is_told_why() -> None:
    line = in_words(_core().decide(make_pod("p", cpu="9")))
    assert line.node == ""
    assert line.why.startswith("3 Insufficient cpu. ")


def test_decisions_are_counted_and_told() -> None:
    told: list[Line] = []
    decisions = Decisions(told.append)
    core = _core()
    for pod in (make_pod("p", cpu="1"), make_pod("q", cpu="9")):
        decisions.decided(core.decide(pod))
    assert (decisions.placed, decisions.refused) == (1, 1)
    assert told == list(decisions.latest)
