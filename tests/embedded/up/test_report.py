"""Pods by what the scheduler made of them, identical ones in one row."""

from __future__ import annotations

from bayplan.api.meta import OwnerReference
from bayplan.api.pod import Pod
from bayplan.embedded.up.report import Outcomes, Report, State, lines
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.testing.builders import make_node, make_pod

INDENT_AND_CLOCK = len("  00:00:00  ")
LONG = "the quota of the team is used up, and " * 20


def _of(owner: str, name: str, node: str = "") -> Pod:
    reference = OwnerReference(kind="ReplicaSet", name=owner, uid=owner, controller=True)
    return make_pod(name, uid=name, owner=reference, node=node)


def _shown(report: Report, pods: list[Pod]) -> dict[str, list[str]]:
    return {
        section.title.plain: [line.plain[INDENT_AND_CLOCK:].rstrip() for line in lines(section)]
        for section in report.sections(pods)
    }


def test_states_are_kept_apart() -> None:
    """A node that was found is not where a pod is: only the API server's nodeName is."""
    outcomes = Outcomes(clock=lambda: 0.0)
    core = SchedulingCore()
    core.cluster.set_node(make_node("a", cpu="2"))
    found, huge = make_pod("found", uid="found"), make_pod("huge", uid="huge", cpu="9")
    held, rejected = make_pod("held", uid="held", cpu="1"), make_pod("rejected", uid="rejected", cpu="1m")
    for pod in (found, huge, held, rejected):
        outcomes.decided(core.decide(pod))
    outcomes.progressed(BindingProgress(held, "a", BindingStep.WAITING, "Permit", ("X",)))
    outcomes.progressed(BindingProgress(rejected, "a", BindingStep.REJECTED, "Permit", ("X",), LONG))
    pods = [
        make_pod("bound", uid="bound", node="a"),
        found,
        held,
        rejected,
        huge,
        make_pod("gated", uid="gated", gates=["x.example.com/y"]),
        make_pod("other", uid="other", scheduler_name="volcano"),
    ]
    assert _shown(Report(outcomes, ["default-scheduler"]), pods) == {
        "Bound: 1 pod": ["default/bound  a"],
        "Waiting at Permit: 1 pod": ["default/held  a  held by X"],
        "Rejected after a node was found: 1 pod": [f"default/rejected  a  Permit plugin X: {LONG}".rstrip()],
        "Unschedulable: 1 pod": [
            "default/huge  0/1 nodes are available: 1 Insufficient cpu. "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        ],
        "Not attempted yet: 3 pods": [
            "default/found",
            "default/gated  scheduling gates: x.example.com/y",
            "default/other  schedulerName is volcano",
        ],
    }


def test_identical_pods_share_a_row() -> None:
    outcomes = Outcomes()
    pods = [_of("web", f"web-{i}", node=f"n{i}") for i in range(5)]
    pods += [_of("db", "db-0", node="n0")]
    pods += [make_pod(f"bare-{i}", uid=f"bare-{i}", cpu="1", node="n7") for i in range(2)]
    pods += [make_pod("larger", uid="larger", cpu="2", node="n7")]
    assert _shown(Report(outcomes), pods) == {
        "Bound: 9 pods": [
            "default/bare-0 and 1 more  n7",
            "default/db-0               n0",
            "default/larger             n7",
            "default/web-0 and 4 more   n0 n1 n2 +2",
        ]
    }


def test_pods_of_one_controller_with_other_reasons_have_rows_of_their_own() -> None:
    outcomes = Outcomes()
    pods = [_of("web", f"web-{i}") for i in range(3)]
    for number, pod in enumerate(pods):
        reason = "full" if number else "closed"
        outcomes.progressed(BindingProgress(pod, "a", BindingStep.REJECTED, "Permit", ("X",), reason))
    (section,) = Report(outcomes).sections(pods)
    assert section.state is State.REJECTED
    assert sorted((row.pods, row.reason) for row in section.rows) == [
        ("default/web-0", "Permit plugin X: closed"),
        ("default/web-1 and 1 more", "Permit plugin X: full"),
    ]
