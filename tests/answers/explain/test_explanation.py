"""An explanation has what the engine does, and more: every filter, every score, every candidate."""

from __future__ import annotations

import pytest

from bayplan.answers.explain.explanation import Candidate, explain
from bayplan.framework.outcome import FilterOutcome
from bayplan.framework.state import CycleState
from bayplan.plugin import Pod
from bayplan.preemption.plugin import PreemptionPlugin
from bayplan.preemption.victims import MayEvict
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing import BUILTIN_PLUGINS
from bayplan.testing.builders import make_node, make_pdb, make_pod

from .evaluating import evaluate


def test_every_filter_evaluates_every_node() -> None:
    """Also where an earlier one has rejected the node already; the first reason counts for the node."""
    node = make_node("n", cpu="1", taints=["a:NoSchedule"], unschedulable=True)
    found = evaluate(make_pod(cpu="2"), node).explanation
    assert set(found.filters) == {"NodeUnschedulable", "TaintToleration", "NodeResourcesFit"}
    assert found.node_status["n"].plugin == "NodeUnschedulable"


def test_scores_add_up() -> None:
    found = evaluate(make_pod(cpu="1"), make_node("a"), make_node("b", cpu="8")).explanation
    for name in ("a", "b"):
        assert found.total[name] == sum(s.weight * s.normalized[name] for s in found.scores.values())
    assert (found.best, found.chosen) == (("b",), "b")


def test_scores_are_given_where_one_node_fits() -> None:
    found = evaluate(make_pod(cpu="1"), make_node("a")).explanation
    assert set(found.scores["NodeResourcesFit"].normalized) == {"a"}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p"), id="equally good nodes"),
        pytest.param(make_pod("p", cpu="6"), id="one fits"),
        pytest.param(make_pod("p", nominated_node="n3"), id="a nominated node before better ones"),
        pytest.param(make_pod("p", cpu="6", nominated_node="n3"), id="a nominated node that does not fit"),
    ],
)
def test_the_chosen_node_is_the_scheduler_s(pod: Pod) -> None:
    nodes = [make_node(f"n{i}", cpu="8" if i == 7 else "4") for i in range(12)]
    core = SchedulingCore()
    core.load(nodes)
    assert evaluate(pod, nodes).explanation.chosen == core.decide(pod).node_name


def test_candidates_are_in_the_order_of_their_cost() -> None:
    """Budgets first, then the most important victim, then how many there are."""
    victims = [
        make_pod("guarded", cpu="4", node="a", priority=0, labels={"app": "guarded"}),
        make_pod("dear", cpu="4", node="b", priority=5),
        make_pod("cheap-1", cpu="2", node="c", priority=0),
        make_pod("cheap-2", cpu="2", node="c", priority=0),
        make_pod("cheap-3", cpu="4", node="d", priority=0),
    ]
    nodes = [make_node(name) for name in "abcd"]
    found = evaluate(
        make_pod(cpu="3", priority=10), nodes, victims, make_pdb("pdb", {"app": "guarded"})
    ).explanation
    assert found.preemption is not None
    assert found.preemption.nominated_node == "d"
    assert list(found.preemption.candidates.items()) == [
        ("d", Candidate(("default/cheap-3",), (0,), 0)),
        ("c", Candidate(("default/cheap-1", "default/cheap-2"), (0, 0), 0)),
        ("b", Candidate(("default/dear",), (5,), 0)),
        ("a", Candidate(("default/guarded",), (0,), 1)),
    ]


class SparesLabelled(PreemptionPlugin):
    """Evicts pods of any priority that are not labelled."""

    def may_evict(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> MayEvict:
        return lambda row, pods: [each for each in pods if not each.labels]


def test_candidates_are_those_of_the_plugin_s_own_rule() -> None:
    """And not pods of lower priority, which another rule may spare."""
    others = [plugin for plugin in BUILTIN_PLUGINS if plugin.__name__ != "DefaultPreemption"]
    core = SchedulingCore(plugins=[*others, SparesLabelled])
    core.load(
        [
            make_node("a"),
            make_node("b"),
            make_pod("spared", cpu="4", node="a", priority=0, labels={"app": "x"}),
            make_pod("other", cpu="4", node="b", priority=20),
        ]
    )
    pod = make_pod(cpu="3", priority=10)
    found = explain(core.frameworks[pod.spec.scheduler_name], pod)
    assert found.preemption is not None
    assert found.preemption.candidates == {"b": Candidate(("default/other",), (20,), 0)}


def test_an_empty_cluster() -> None:
    assert evaluate(make_pod()).explanation.error == "no nodes available to schedule pods"


def test_explaining_changes_nothing() -> None:
    """A second explanation is the same."""
    nodes = [make_node(f"n{i}", cpu=str(1 + i % 3)) for i in range(9)]
    core = SchedulingCore()
    core.load(nodes)
    pod = make_pod(cpu="2")
    first = evaluate(pod, nodes).explanation
    core.decide(pod)
    assert evaluate(pod, nodes).explanation == first
