"""Pods by what the scheduler made of them, identical ones in one row."""

from __future__ import annotations

from bayplan.api.meta import OwnerReference
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.embedded.up.report import Outcomes, Report, State, lines
from bayplan.embedded.up.screen import PlainLines
from bayplan.framework.status import Code, Status
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import Decision
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


def _member(name: str, node: str = "", group: str = "gang") -> Pod:
    return make_pod(name, uid=name, node=node, scheduling_group=PodSchedulingGroup(pod_group_name=group))


def test_a_group_is_one_row() -> None:
    outcomes = Outcomes(clock=lambda: 0.0)
    pods = [_member(f"m{number}") for number in range(4)]
    texts = [
        "pod group is unschedulable, too few",
        "pod group is unschedulable, too few",
        "0/3 fit",
        "too few",
    ]
    for pod, text in zip(pods, texts, strict=True):
        outcomes.decided(Decision(pod, Status(Code.UNSCHEDULABLE, (text,)), text))
    bound = [_member(f"b{number}", node=f"n{number}", group="other") for number in range(2)]
    waiting = [_member("w", group="new")]
    report = Report(outcomes, why_incomplete=lambda pod: "2 more must be created")
    assert _shown(report, [*pods, *bound, *waiting]) == {
        "Bound: 2 pods": ["group default/other: 2 pods  n0 n1"],
        "Unschedulable: 4 pods": [
            "group default/gang: 4 pods  3 of them: pod group is unschedulable, too few; 1 of them: 0/3 fit"
        ],
        "Not attempted yet: 1 pod": ["group default/new: 1 pod  2 more must be created"],
    }


def test_a_plain_line_of_a_group_waits_for_its_members() -> None:
    now = 0.0
    plain = PlainLines()
    outcomes = Outcomes(plain.add, clock=lambda: now)
    for number in (0, 0, 1, 2):
        now += 0.1
        pod = _member(f"m{number}")
        outcomes.progressed(BindingProgress(pod, f"n{number}", BindingStep.BOUND, "Bind", ()))
        assert plain.take(now) == []
    (line,) = plain.take(now + 1)
    assert "bound" in line
    assert "group default/gang: 3 pods" in line
    assert "n0 n1 n2" in line
    outcomes.progressed(BindingProgress(_member("late"), "n3", BindingStep.BOUND, "Bind", ()))
    (line,) = plain.take()
    assert "group default/gang: 1 pod" in line
