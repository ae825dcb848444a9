"""What is recorded of attempts: a pod is bound once it is bound, and not when a node was found for it."""

from __future__ import annotations

import pytest

from bayplan.api.pod import Pod
from bayplan.embedded.up.report import MAX_OUTCOMES, Outcome, Outcomes, State, why_there
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.testing.builders import make_node, make_pod


def _core() -> SchedulingCore:
    core = SchedulingCore()
    for name in ("a", "b"):
        core.cluster.set_node(make_node(name, cpu="2"))
    core.cluster.set_node(make_node("ssd", cpu="2", labels={"disk": "ssd"}))
    core.cluster.add_pod(make_pod("old", cpu="2", uid="old"), "ssd")
    return core


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(make_pod("p", cpu="1"), "best of 2 feasible nodes", id="one of several"),
        pytest.param(
            make_pod("p", node_selector={"disk": "ssd"}), "the only feasible node", id="one that fits"
        ),
    ],
)
def test_why_a_node_was_chosen(pod: Pod, reason: str) -> None:
    assert why_there(_core().decide(pod)) == reason


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(
            make_pod("p", cpu="9"),
            "0/3 nodes are available: 3 Insufficient cpu. preemption: "
            "0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            id="the whole message",
        ),
        pytest.param(
            make_pod("p", cpu="1", priority=10, node_selector={"disk": "ssd"}),
            "preempting default/old on ssd. 0/3 nodes are available: 1 Insufficient cpu, "
            "2 node(s) didn't match Pod's node affinity/selector. "
            "preemption: found a potential placement for pod on node ssd, preempting 1 victims",
            id="a preemption",
        ),
    ],
)
def test_an_unschedulable_pod(pod: Pod, reason: str) -> None:
    outcomes = Outcomes(clock=lambda: 7.0)
    outcomes.decided(_core().decide(pod))
    assert outcomes.get(pod.uid) == Outcome(pod.key, pod.uid, State.UNSCHEDULABLE, "", reason, 7.0, 1)


POD = make_pod("p", cpu="1", uid="u")


@pytest.mark.parametrize(
    ("progress", "state", "node", "reason"),
    [
        pytest.param(
            BindingProgress(POD, "a", BindingStep.BOUND),
            State.BOUND,
            "a",
            "best of 2 feasible nodes",
            id="bound",
        ),
        pytest.param(
            BindingProgress(POD, "a", BindingStep.WAITING, "Permit", ("X", "Y")),
            State.WAITING,
            "a",
            "held by X, Y",
            id="held at Permit",
        ),
        pytest.param(
            BindingProgress(POD, "a", BindingStep.REJECTED, "Permit", ("X",), "no quota"),
            State.REJECTED,
            "a",
            "Permit plugin X: no quota",
            id="rejected at Permit",
        ),
        pytest.param(
            BindingProgress(POD, "a", BindingStep.REJECTED, "Permit", ("",), "removed"),
            State.REJECTED,
            "a",
            "Permit: removed",
            id="rejected by no plugin",
        ),
        pytest.param(
            BindingProgress(POD, "a", BindingStep.FAILED, "Bind", (), "the server is down"),
            State.ERROR,
            "a",
            "the server is down",
            id="an error at bind",
        ),
    ],
)
def test_after_a_node_was_found(progress: BindingProgress, state: State, node: str, reason: str) -> None:
    outcomes = Outcomes()
    outcomes.decided(_core().decide(POD))
    assert outcomes.get("u") is None
    assert outcomes.is_binding_for_the_first_time()
    outcomes.progressed(progress)
    outcome = outcomes.get("u")
    assert outcome is not None
    assert (outcome.state, outcome.node, outcome.reason) == (state, node, reason)
    assert outcomes.is_binding_for_the_first_time() == (state is State.WAITING)


def test_attempts_are_counted_and_reported() -> None:
    reported: list[Outcome] = []
    outcomes = Outcomes(reported.append)
    core = _core()
    for _ in range(2):
        outcomes.decided(core.decide(make_pod("q", cpu="9", uid="q")))
    outcomes.decided(core.decide(POD))
    outcomes.progressed(BindingProgress(POD, "a", BindingStep.BOUND))
    assert (outcomes.scheduled, outcomes.failed) == (1, 2)
    assert [(outcome.uid, outcome.failures) for outcome in reported] == [("q", 1), ("q", 2), ("u", 0)]


def test_only_so_many_are_kept() -> None:
    outcomes = Outcomes()
    for number in range(MAX_OUTCOMES + 2):
        outcomes.progressed(BindingProgress(make_pod("p", uid=str(number)), "a", BindingStep.BOUND))
    assert outcomes.get("1") is None
    assert outcomes.get("2") is not None
