"""Nodes with nominated pods of higher priority: filtered again only where something changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
import pytest

from bayplan.plugin import (
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    Plugin,
    Pod,
    Reject,
    unschedulable,
)
from bayplan.plugin.preemption import Hypothesis
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.runtime.framework import Framework
from bayplan.state.cluster import Cluster
from bayplan.state.view import HypotheticalNode
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin

from .profiles import found, make_framework, statuses

SUPPOSED = (Hypothesis, HypotheticalNode)
"""Nodes with other pods there, in columns or in plain numbers."""

FIRST = 10
"""The priority of nominated pods."""


class CountsHypotheticalRows(NodeResourcesFit):
    """Counts the rows that it evaluates with hypothetical pods."""

    name: ClassVar[str] = "Fit"
    rows = 0

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        if isinstance(nodes, SUPPOSED):
            self.rows += len(nodes)
        return super().filter(state, pod, nodes)


class LooksAtTheNodeOnly(Plugin):
    depends_on = Dependencies.of()

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        assert not isinstance(nodes, SUPPOSED), "its result does not depend on pods"
        return [Reject(nodes.unschedulable, unschedulable("closed"))]


class Indifferent(Plugin):
    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


def big(name: str, priority: int = FIRST) -> Pod:
    return make_pod(name, cpu=3, priority=priority)


def nominated() -> tuple[Framework, CountsHypotheticalRows]:
    """Six nodes with room for one big pod each, four with nominated pods, and a pod that has been tried."""
    fit = make_plugin(CountsHypotheticalRows)
    nodes = [make_node(f"n{number}", cpu=4) for number in range(6)]
    framework = make_framework(make_plugin(LooksAtTheNodeOnly), fit, make_plugin(Indifferent), nodes=nodes)
    for number in range(4):
        framework.cluster.nominate(big(f"first-{number}"), f"n{number}")
    assert found(framework, big("tried")).feasible == 2
    assert fit.rows == 4
    fit.rows = 0
    return framework, fit


@pytest.mark.parametrize(
    ("change", "filtered", "feasible"),
    [
        pytest.param(lambda cluster: None, 0, 2, id="nothing changed"),
        pytest.param(lambda cluster: cluster.nominate(big("new"), "n4"), 1, 1, id="a pod was nominated"),
        pytest.param(
            lambda cluster: cluster.nominate(big("new", FIRST - 1), "n4"), 0, 2, id="to one of lower priority"
        ),
        pytest.param(
            lambda cluster: cluster.remove_nomination(big("first-1").uid), 0, 3, id="one was removed"
        ),
        pytest.param(
            lambda cluster: cluster.nominate(big("first-1"), "n5"),
            1,
            2,
            id="one was nominated to another node",
        ),
        pytest.param(
            lambda cluster: cluster.set_node(make_node("n2", cpu=8)),
            1,
            3,
            id="a node with a nominated pod has grown",
        ),
        pytest.param(
            lambda cluster: cluster.set_node(make_node("n2", cpu=8, unschedulable=True)),
            0,
            2,
            id="it has grown and was closed",
        ),
        pytest.param(
            lambda cluster: cluster.remove_node("n2"), 0, 2, id="a node with a nominated pod was deleted"
        ),
        pytest.param(
            lambda cluster: cluster.add_pod(make_pod("small", cpu=1), "n3"), 1, 2, id="a pod was added there"
        ),
        pytest.param(
            lambda cluster: cluster.add_pod(big("x"), "n4"),
            0,
            1,
            id="a pod was added where no pod is nominated",
        ),
        pytest.param(lambda cluster: cluster.set_node(make_node("n6", cpu=4)), 4, 3, id="the table grew"),
    ],
)
def test_only_what_changed_is_evaluated_again(
    change: Callable[[Cluster], None], filtered: int, feasible: int
) -> None:
    framework, fit = nominated()
    change(framework.cluster)
    assert (found(framework, big("next")).feasible, fit.rows) == (feasible, filtered)


def test_a_pod_that_is_nominated_itself_may_have_it_and_others_may_not() -> None:
    framework, fit = nominated()
    mine = big("first-2")
    assert [found(framework, pod).feasible for pod in (mine, big("next"), mine)] == [3, 2, 3]
    assert fit.rows == 1, "its own node was filtered once, for the other"


def test_each_priority_has_its_own_nominated_pods() -> None:
    framework, _ = nominated()
    assert [found(framework, big("next", priority)).feasible for priority in (FIRST + 1, FIRST, 0)] == [
        6,
        2,
        2,
    ]


def test_a_plugin_that_raised_is_run_again() -> None:
    """A row whose filtering failed does not count as filtered."""

    class BreaksOnce(CountsHypotheticalRows):
        name: ClassVar[str] = "Fit"
        broken = True

        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
            if isinstance(nodes, SUPPOSED) and self.broken:
                self.broken = False
                raise RuntimeError("out of order")
            return super().filter(state, pod, nodes)

    framework = make_framework(
        make_plugin(BreaksOnce), make_plugin(Indifferent), nodes=[make_node("n", cpu=4)]
    )
    framework.cluster.nominate(big("first"), "n")
    with pytest.raises(Exception, match="out of order"):
        framework.find(big("next"))
    assert statuses(framework, big("next"))["n"].message == "Insufficient cpu"
