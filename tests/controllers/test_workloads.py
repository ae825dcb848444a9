"""The decisions of workload controllers, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from bayplan.api.meta import Condition, ObjectMeta
from bayplan.api.node import Node, NodeSpec, Taint
from bayplan.api.pod import Pod, PodSpec, PodStatus
from bayplan.controllers.pods import REVISION_HASH, deletion_order
from bayplan.controllers.workloads import (
    Bounds,
    Eligibility,
    Size,
    bounds,
    daemon_pod,
    daemon_rollout,
    daemon_steps,
    job_pods,
    roll,
    stateful_steps,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name: str, *, node: str = "n1", ready: bool = True, phase: str = "Running", **meta: Any) -> Pod:
    conditions = (Condition(type="Ready", status="True", last_transition_time=NOW),) if ready else ()
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", **meta),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase, conditions=conditions),
    )


@pytest.mark.parametrize(
    ("surge", "unavailable", "expected"),
    [
        pytest.param("25%", "25%", Bounds(10, 3, 2), id="surge is rounded up, unavailable down"),
        pytest.param(0, "5%", Bounds(10, 0, 1), id="one pod may be unavailable if both are zero"),
        pytest.param(1, 0, Bounds(10, 1, 0), id="absolute numbers"),
    ],
)
def test_bounds(surge: int | str, unavailable: int | str, expected: Bounds) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    assert bounds(10, {"type": "RollingUpdate", "rollingUpdate": rolling}) == expected


@pytest.mark.parametrize(
    ("limits", "available_at_once", "expected"),
    [
        pytest.param(
            Bounds(3, 1, 0),
            True,
            [{"new": 1}, {"old": 2}, {"new": 2}, {"old": 1}, {"new": 3}, {"old": 0}],
            id="surge: up, then down, one at a time",
        ),
        pytest.param(
            Bounds(3, 0, 1),
            True,
            [{"old": 2}, {"new": 1}, {"old": 1}, {"new": 2}, {"old": 0}, {"new": 3}],
            id="unavailable: down, then up",
        ),
        pytest.param(Bounds(3, 1, 0), False, [{"new": 1}], id="stalls while new pods are not available"),
    ],
)
def test_a_rollout_played_to_its_end(
    limits: Bounds, available_at_once: bool, expected: list[dict[str, int]]
) -> None:
    sizes = {"new": 0, "old": 3}
    steps = []
    while True:
        new = Size("new", sizes["new"], sizes["new"] if available_at_once else 0)
        step = roll(limits, new, [Size("old", sizes["old"], sizes["old"])])
        if not step:
            break
        steps.append(step)
        sizes |= step
    assert steps == expected


def stateful_set(**more: Any) -> dict[str, Any]:
    return {"replicas": 3, "updateStrategy": {"type": "RollingUpdate"}, **more}


NEW = {REVISION_HASH: "new"}
OLD = {REVISION_HASH: "old"}


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        pytest.param(stateful_set(), {}, ["create 0"], id="the first pod first"),
        pytest.param(
            stateful_set(podManagementPolicy="Parallel"), {}, ["create 0", "create 1", "create 2"],
            id="all at once if parallel",
        ),
        pytest.param(
            stateful_set(), {0: pod("web-0", ready=False)}, [], id="waits until the first is ready",
        ),
        pytest.param(
            stateful_set(minReadySeconds=30), {0: pod("web-0")}, ["wait 30"], id="waits for minReadySeconds",
        ),
        pytest.param(
            stateful_set(replicas=1), {0: pod("web-0", labels=NEW), 1: pod("web-1"), 2: pod("web-2")},
            ["delete web-2"], id="scales down from the last",
        ),
        pytest.param(
            stateful_set(replicas=2), {0: pod("web-0", labels=OLD), 1: pod("web-1", labels=OLD)},
            ["delete web-1"], id="updates from the last",
        ),
        pytest.param(
            stateful_set(
                replicas=2, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
            ),
            {0: pod("web-0", labels=OLD), 1: pod("web-1", labels=NEW)}, [], id="not below the partition",
        ),
        pytest.param(
            stateful_set(replicas=1), {0: pod("web-0", phase="Failed")}, ["delete web-0"],
            id="a failed pod is replaced",
        ),
    ],
)  # fmt: skip
def test_stateful_steps(spec: dict[str, Any], pods: dict[int, Pod], expected: list[str]) -> None:
    made = []
    for step in stateful_steps(spec, pods, "new", NOW.timestamp()):
        if step.delete is not None:
            made.append(f"delete {step.delete.name}")
        else:
            made.append(f"create {step.create}" if step.wait is None else f"wait {step.wait:g}")
    assert made == expected


def daemon_set(**template: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "uid": "u"},
        "spec": {"template": {"spec": template}, "updateStrategy": {"type": "RollingUpdate"}},
    }


def node(name: str, *taints: Taint, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(taints=taints))


@pytest.mark.parametrize(
    ("template", "on", "expected"),
    [
        pytest.param({}, node("n1"), (True, True), id="every node"),
        pytest.param({"nodeSelector": {"gpu": "yes"}}, node("n1"), (False, False), id="not selected"),
        pytest.param({"nodeSelector": {"gpu": "yes"}}, node("n1", gpu="yes"), (True, True), id="selected"),
        pytest.param({}, node("n1", Taint(key="a", effect="NoSchedule")), (False, True), id="may stay"),
        pytest.param({}, node("n1", Taint(key="a", effect="NoExecute")), (False, False), id="evicted"),
        pytest.param(
            {}, node("n1", Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")), (True, True),
            id="cordons are tolerated",
        ),
    ],
)  # fmt: skip
def test_eligible_nodes(template: dict[str, Any], on: Node, expected: tuple[bool, bool]) -> None:
    assert Eligibility(daemon_set(**template)).of(on) == expected


def test_daemon_pods_are_created_where_they_are_missing_and_deleted_where_they_should_not_be() -> None:
    eligible = {"n1": (True, True), "n2": (True, True), "n3": (False, False)}
    by_node = {"n2": [pod("a"), pod("b")], "n3": [pod("c")]}
    steps = list(daemon_steps(eligible, by_node))
    assert [step.create for step in steps if step.create] == ["n1"]
    assert [step.delete.name for step in steps if step.delete] == ["b", "c"]


def test_a_daemon_rollout_replaces_as_many_pods_as_may_be_unavailable() -> None:
    spec = daemon_set()["spec"]
    by_node = {"n1": [pod("a", labels=OLD)], "n2": [pod("b", labels=OLD)], "n3": [pod("c", labels=NEW)]}
    steps = daemon_rollout(spec, {"n1", "n2", "n3"}, by_node, "new", NOW.timestamp())
    assert [step.delete and step.delete.name for step in steps] == ["a"]


def test_a_daemon_pod_names_its_node() -> None:
    made = daemon_pod(daemon_set(tolerations=[]), "new", "n7")
    terms = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n7"]


@pytest.mark.parametrize(
    ("spec", "succeeded", "active", "expected"),
    [
        pytest.param({"parallelism": 3, "completions": 5}, 0, 0, 3, id="as many as may run at once"),
        pytest.param({"parallelism": 3, "completions": 5}, 4, 1, 1, id="no more than are left"),
        pytest.param({"parallelism": 3, "completions": 2}, 2, 0, 0, id="complete"),
        pytest.param({"parallelism": 3}, 0, 0, 3, id="a work queue"),
        pytest.param({"parallelism": 3}, 1, 2, 2, id="a work queue that is nearly empty"),
        pytest.param({"parallelism": 3, "completions": 5, "suspend": True}, 0, 0, 0, id="suspended"),
    ],
)
def test_pods_of_a_job(spec: dict[str, Any], succeeded: int, active: int, expected: int) -> None:
    assert job_pods(spec, succeeded=succeeded, active=active) == expected


@pytest.mark.parametrize(
    ("pods", "first"),
    [
        pytest.param([pod("a"), pod("b", node="")], "b", id="without a node"),
        pytest.param([pod("a"), pod("b", phase="Pending")], "b", id="not running"),
        pytest.param([pod("a"), pod("b", ready=False)], "b", id="not ready"),
        pytest.param(
            [pod("a"), pod("b", annotations={"controller.kubernetes.io/pod-deletion-cost": "-1"})], "b",
            id="cheaper to delete",
        ),
        pytest.param([pod("a"), pod("b", node="n2"), pod("c", node="n2")], "b", id="with neighbours"),
        pytest.param(
            [pod("a", creation_timestamp=NOW), pod("b", creation_timestamp=NOW.replace(year=2027))], "b",
            id="youngest",
        ),
    ],
)  # fmt: skip
def test_the_order_of_deletion(pods: Sequence[Pod], first: str) -> None:
    assert deletion_order(list(pods))[0].name == first
