"""Answers about pods agree with the decisions, count every node once, and name their sources."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from bayplan.answers.explain.permit import PermitStatus
from bayplan.answers.explain.printing import print_node
from bayplan.answers.explain.questions import PodAnswer, PodQuestions, PodState, explain_node
from bayplan.answers.explain.remedies import amount_text
from bayplan.answers.explain.report import node_report, pod_report, result_report
from bayplan.answers.sources.files import read_scenario
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.warnings import Reason
from bayplan.api.meta import Condition, LabelSelector, Object
from bayplan.api.pod import Pod, PodAffinityTerm, PodResourceClaim
from bayplan.api.workloads import PodGroup, PodGroupSpec
from bayplan.errors import InputError
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.testing.builders import (
    make_container,
    make_device_class,
    make_device_request,
    make_namespace,
    make_node,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_storage_class,
)
from bayplan.testing.builders.pods import object_meta
from tests.recorded.compare import read_lines
from tests.recorded.test_vectors import FILES

QUEUE: dict[str, Any] = {"visible": False}
CLAIM = PodResourceClaim(name="gpu", resource_claim_name="c")


def make_questions(*objects: Object, **fields: Any) -> PodQuestions:
    return PodQuestions(LoadedCluster("test", objects, **fields))


def explain(name: str, *objects: Object, **fields: Any) -> PodAnswer:
    questions = make_questions(*objects, **fields)
    return questions.answer(questions.pod(f"default/{name}"))


@pytest.mark.parametrize("name", FILES)
def test_answers_agree_with_recorded_decisions(name: str) -> None:
    """Also: every node is counted once, as feasible or in one group of rejections."""
    release, path = FILES[name]
    for vector in list(read_lines(path))[::12]:
        case = read_scenario(vector["scenario"], release=release)
        questions = PodQuestions(case)
        for pod, expected in zip(case.pods or (), vector["expect"], strict=True):
            report = pod_report(case, questions.answer(pod), QUEUE)
            if report["state"] != "Pending":
                continue
            result, where = report["result"], (vector["scenario"]["name"], pod.key)
            if expected.get("error"):
                assert result["error"], where
                continue
            assert result["message"] == expected.get("fitErrorFull"), where
            assert set(result["feasibleNodes"]) == set(expected.get("feasible") or ()), where
            if expected.get("best") and not pod.status.nominated_node_name:
                assert result["node"] in expected["best"], where
            rejected = [node for group in result["rejections"] for node in group["nodes"]]
            assert all(group["count"] == len(group["nodes"]) for group in result["rejections"]), where
            counted = sorted((*rejected, *result["feasibleNodes"]))
            assert counted == sorted(
                questions.core.cluster.nodes.name[row] for row in questions.core.cluster.order
            )
            candidates = (expected.get("preemption") or {}).get("candidates")
            preemption = result["preemption"] or {"candidates": []}
            assert {one["node"] for one in preemption["candidates"]} == set(candidates or ()), where


# Assigned pods


def test_an_assigned_pod_is_compared_with_the_other_nodes() -> None:
    nodes = (make_node("full", cpu="4"), make_node("empty", cpu="4"))
    others = (make_pod("other", node="full", cpu="2"),)
    questions = make_questions(*nodes, *others, make_pod("p", node="full", cpu="1"))
    answer = questions.answer(questions.pod("default/p"))
    assert answer.state is PodState.ASSIGNED
    assert answer.explanation is not None
    assert answer.explanation.chosen == "empty"
    assert set(answer.explanation.feasible) == {"full", "empty"}
    assert [warning.reason for warning in answer.warnings] == ["ClusterChanged"]
    row = questions.core.cluster.nodes.row_of["full"]
    assert {pod.key for pod in questions.core.cluster.pods_on(row)} == {"default/other", "default/p"}


def test_a_node_that_would_be_rejected_now() -> None:
    answer = explain("p", make_node("n", unschedulable=True), make_pod("p", node="n"))
    assert answer.explanation is not None
    assert answer.explanation.node_status["n"].plugin == "NodeUnschedulable"


# Pods that are not evaluated


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (make_pod("p", scheduler_name="other"), 'schedulerName is "other", and no profile has that name'),
        (make_pod("p", phase="Succeeded"), "it has finished"),
        (make_pod("p", gates=["wait"]), "it is gated by SchedulingGates"),
        (make_pod("p", node="n", scheduler_name="other"), "it is assigned to n"),
    ],
)
def test_pods_that_are_not_evaluated(pod: Pod, reason: str) -> None:
    answer = explain("p", make_node("n"), pod)
    assert answer.state is PodState.SKIPPED
    assert answer.reason.startswith(reason)
    assert "result" not in pod_report(LoadedCluster("t", ()), answer, QUEUE)


def test_there_is_no_such_pod() -> None:
    with pytest.raises(InputError, match="Pod default/q: there is no such pod in test"):
        explain("q", make_node("n"))


# Groups


def member(name: str) -> Pod:
    return make_pod(name, labels={"scheduling.x-k8s.io/pod-group": "gang"})


GROUP = PodGroup(metadata=object_meta("PodGroup", "gang", "default"), spec=PodGroupSpec(min_member=2))


def test_a_gang_that_waits_at_permit_is_not_scheduled() -> None:
    questions = make_questions(make_node("n"), GROUP, member("a"), member("b"), plugins=(Coscheduling,))
    answer = questions.answer(questions.pod("default/a"))
    assert answer.explanation is not None
    assert answer.explanation.permit is not None
    assert answer.explanation.permit.status is PermitStatus.WAIT
    report = pod_report(questions.loaded, answer, QUEUE)["result"]["permit"]
    assert report == {
        "plugin": "Coscheduling",
        "status": "Wait",
        "message": 'waiting for more pods of pod group "gang"',
    }
    assert not list(questions.core.cluster.pods_on(questions.core.cluster.nodes.row_of["n"]))


def test_the_last_pod_of_a_gang_is_allowed() -> None:
    first = make_pod("a", node="n", labels={"scheduling.x-k8s.io/pod-group": "gang"})
    answer = explain("b", make_node("n"), GROUP, first, member("b"), plugins=(Coscheduling,))
    assert answer.explanation is not None
    assert (answer.explanation.chosen, answer.explanation.permit) == ("n", None)


def test_an_incomplete_gang() -> None:
    answer = explain("a", make_node("n"), GROUP, member("a"), plugins=(Coscheduling,))
    assert answer.reason == 'it is gated by Coscheduling (pod group "gang" has 1 of 2 pods that it needs)'


# What is missing


TEAM = PodAffinityTerm(
    label_selector=LabelSelector(match_labels={"app": "web"}),
    topology_key="zone",
    namespace_selector=LabelSelector(match_labels={"team": "red"}),
)
CLUSTER: list[Object] = [
    make_node("n", cpu="4", labels={"zone": "a"}),
    make_namespace("red", labels={"team": "red"}),
    make_pod("web", namespace="red", node="n", labels={"app": "web"}),
    make_pdb("budget", {"app": "low"}),
    make_pvc("data", volume="pv"),
    make_pv("pv", claim=make_pvc("data")),
    make_pvc("new", storage_class="fast"),
    make_storage_class("fast"),
    make_pod("low", node="n", cpu="3", labels={"app": "low"}),
    make_pod("bound", claims=["data"]),
    make_pod("unbound", claims=["new"]),
    make_pod("friend", affinity=make_pod_affinity(required=[TEAM])),
    make_pod("high", cpu="3", priority=10),
    make_pod("plain"),
]
PENDING = ("bound", "unbound", "friend", "high", "plain")


def answers(left_out: str) -> dict[str, tuple[Any, list[str]]]:
    kept = [item for item in CLUSTER if type(item).__name__ != left_out]
    questions = make_questions(*kept, listed=frozenset({"CSINode"}))
    found = {}
    for name in PENDING:
        answer = questions.answer(questions.pod(f"default/{name}"))
        report = pod_report(questions.loaded, answer, QUEUE)
        found[name] = (report["result"], [warning.object for warning in answer.warnings])
    return found


@pytest.mark.parametrize(
    ("kind", "concerned"),
    [
        (
            "PersistentVolumeClaim",
            {"bound": "… default/data", "unbound": "… default/new"},
        ),
        ("PersistentVolume", {"bound": "PersistentVolume pv"}),
        ("StorageClass", {"unbound": "StorageClass fast"}),
        ("PodDisruptionBudget", {"high": "poddisruptionbudgets"}),
        ("Namespace", {"friend": "namespaces"}),
    ],
)
def test_a_dump_without_a_kind_warns_by_name_and_changes_no_other_answer(
    kind: str, concerned: dict[str, str]
) -> None:
    whole, partial = answers(""), answers(kind)
    assert all(not warnings for _, warnings in whole.values())
    for name in PENDING:
        expected = concerned.get(name, "").replace("…", kind)
        assert partial[name][1] == ([expected] if expected else []), name
        if not expected:
            assert partial[name] == whole[name]


# Nodes


def test_a_node() -> None:
    questions = make_questions(
        make_node("n", cpu="4", memory="8Gi", taints=["a=b:NoSchedule"]),
        make_node("m", cpu="1"),
        make_pod("old", node="n", cpu="1500m", memory="1Gi"),
        make_pod("a", cpu="1"),
        make_pod("b", cpu="1"),
        make_pod("big", cpu="3"),
    )
    report = node_report(questions.loaded, explain_node(questions, "n"))
    assert report["taints"] == [{"key": "a", "value": "b", "effect": "NoSchedule"}]
    assert report["pods"] == [{"pod": "default/old", "priority": 0, "state": None}]
    none = {"nominated": "0", "releasing": "0"}
    assert report["resources"][:2] == [
        {"resource": "cpu", "allocatable": "4", "requested": "1.5", "free": "2.5", **none},
        {"resource": "memory", "allocatable": "8Gi", "requested": "1Gi", "free": "7Gi", **none},
    ]
    same, big = report["pendingPods"]
    assert (same["pods"], same["plugin"], same["chosenNode"]) == (
        ["default/a", "default/b"],
        "TaintToleration",
        "m",
    )
    assert (big["fits"], big["detail"], big["chosenNode"]) == (False, "a=b:NoSchedule", None)
    assert report["source"]["warnings"] == []
    with pytest.raises(InputError, match="Node x: there is no such node in test"):
        explain_node(questions, "x")


def test_what_is_reserved_on_a_node_and_what_will_become_free() -> None:
    questions = make_questions(
        make_node("n", cpu="4"),
        make_pod("gone", node="n", cpu="3", deleted=datetime(2026, 1, 1, tzinfo=UTC)),
        make_pod("slow", node="n", cpu="3", phase="Pending"),
        make_pod("soon", cpu="1", nominated_node="n", priority=9),
    )
    answer = explain_node(questions, "n")
    report = node_report(questions.loaded, answer)
    assert [(one["pod"], one["state"]) for one in report["pods"]] == [
        ("default/gone", "terminating"),
        ("default/slow", "not started"),
    ]
    assert report["nominatedPods"] == [{"pod": "default/soon", "priority": 9}]
    cpu = report["resources"][0]
    assert (cpu["free"], cpu["nominated"], cpu["releasing"]) == ("-2", "1", "3")
    console = Console(file=StringIO(), width=120)
    print_node(console, questions.loaded, answer)
    assert isinstance(console.file, StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["cpu", "4", "6", "0", "(2", "overcommitted)", "1", "3"] in lines
    assert ["default/slow", "0", "not", "started"] in lines
    assert ["default/soon", "9", "nominated"] in lines


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (-4539628424389459967, "-4539628424389459.967"),
        (1_234_567_500, "1234567.5"),
        (1500, "1.5"),
        (2000, "2"),
        (250, "250m"),
        (0, "0"),
    ],
)
def test_amounts_of_cpu(amount: int, expected: str) -> None:
    assert amount_text("cpu", amount) == expected


@pytest.mark.parametrize("several", [False, True], ids=["one container", "two containers"])
def test_requests_beyond_64_bits_are_exact(several: bool) -> None:
    amounts = [str(2**62)] * 2 if several else [str(2**63)]
    containers = [make_container(f"c{i}", cpu=each, memory=each) for i, each in enumerate(amounts)]
    answer = explain("p", make_node("n", cpu=4, memory="8Gi"), make_pod("p", containers=containers))
    text = str(pod_report(LoadedCluster("t", ()), answer, QUEUE))
    assert "requests 9223372036854775808 cpu; n has 4" in text
    assert "requests 8388608Ti memory; n has 8Gi" in text


def test_nominated_pods_in_reports() -> None:
    answer = explain(
        "p", make_node("n"), make_pod("soon", cpu="3", nominated_node="n", priority=9), make_pod("p", cpu="2")
    )
    assert answer.evaluated is not None
    (group,) = result_report(answer.evaluated)["rejections"]
    assert group["nominatedPods"] == [{"node": "n", "pods": ["default/soon"], "fitsWithout": True}]
    assert [(one["kind"], one["nodes"], one["free"]) for one in group["remedies"]] == [
        ("AddResource", ["n"], 1000)
    ]


def test_a_node_and_pods_that_are_not_evaluated() -> None:
    questions = make_questions(make_node("n"), *(make_pod(name, scheduler_name="mine") for name in "ab"))
    answer = explain_node(questions, "n")
    reason = 'schedulerName is "mine", and no profile has that name'
    assert node_report(questions.loaded, answer)["skippedPods"] == [{"count": 2, "reason": reason}]
    printed = StringIO()
    print_node(Console(file=printed, width=120), questions.loaded, answer)
    assert f"2 pending pods not evaluated: {reason}" in printed.getvalue()
    assert "no pod is pending" not in printed.getvalue()


def test_an_assigned_pod_of_another_scheduler() -> None:
    answer = explain("p", make_node("n"), make_pod("p", node="n", scheduler_name="mine"))
    assert answer.state is PodState.SKIPPED
    assert answer.reason == 'it is assigned to n, its schedulerName is "mine", and no profile has that name'


def test_what_is_missing_for_the_pending_pods_of_a_node() -> None:
    questions = make_questions(
        make_node("n"), make_pod("a", claims=["ghost"]), make_pod("b", resource_claims=(CLAIM,))
    )
    report = node_report(questions.loaded, explain_node(questions, "n"))
    missing = {one["object"] for one in report["source"]["warnings"]}
    assert {"PersistentVolumeClaim default/ghost"} <= missing
    # It is gated, and not by the cluster but by the dump.
    answer = questions.answer(questions.pod("default/b"))
    assert answer.state is PodState.SKIPPED
    assert "ResourceClaim default/c" in {warning.object for warning in answer.warnings}


def test_details_of_devices_on_a_node() -> None:
    claim = make_resource_claim("c", make_device_request("fast", "gpu"))
    questions = make_questions(
        make_node("n"), make_device_class("gpu"), claim, make_pod("a", resource_claims=(CLAIM,))
    )
    (pending,) = node_report(questions.loaded, explain_node(questions, "n"))["pendingPods"]
    assert pending["detail"] == (
        "claim default/c, request fast: 0 of 1 devices available: the node has no devices"
    )


def test_identical_pods_and_events() -> None:
    node = make_node("n", cpu="1")
    pods = [make_pod(name, cpu="2") for name in ("a", "b", "c")]
    answer = explain("a", node, *pods, make_pod("d", cpu="3"))
    assert answer.identical == ("default/b", "default/c")
    assert answer.events is not None
    assert "Node: Add, UpdateNodeAllocatable" in answer.events["NodeResourcesFit"]


def test_a_result_that_contradicts_the_pods_scheduler_is_no_fact() -> None:
    """The scheduler may have plugins that are not known here."""
    stored = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="not today")
    [warning] = explain("p", make_node("n"), make_pod("p", conditions=[stored])).warnings
    assert warning.reason is Reason.REPORTED_UNSCHEDULABLE
    assert 'its scheduler reported "not today"' in warning.message
    assert explain("p", make_node("n"), make_pod("p", cpu="99", conditions=[stored])).warnings == ()


def test_a_claim_that_can_never_be_created() -> None:
    """A gated pod in a cluster that is known to have no such template."""
    reference = PodResourceClaim(name="gpu", resource_claim_template_name="t")
    listed = frozenset(("ResourceClaimTemplate", "ResourceSlice"))
    pod = make_pod("p", resource_claims=(reference,))
    answer = explain("p", make_node("n"), pod, listed=listed)
    assert answer.reason.endswith("there is no ResourceClaimTemplate default/t")
    assert answer.warnings == ()
