"""What becomes of Volcano's Jobs, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content, ObjectMeta
from bayplan.api.pod import ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus
from bayplan.controllers.volcano.jobs import Occurrence, due_action, occurrences, plan
from bayplan.controllers.volcano.objects import group_spec
from bayplan.controllers.volcano.pods import JobPods
from bayplan.controllers.volcano.spec import InvalidJobError, JobSpec, read_spec

TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def task(name: str = "w", replicas: int = 2, **more: Any) -> Content:
    return {"name": name, "replicas": replicas, "template": TEMPLATE, **more}


def spec_of(*tasks: Content, **more: Any) -> JobSpec:
    return read_spec({"spec": {"tasks": list(tasks or (task(),)), **more}})


def pod(phase: str, index: int = 0, name: str = "w", *, version: int = 0, exit_code: int = 0) -> Pod:
    annotations = {"volcano.sh/task-spec": name, "volcano.sh/job-version": str(version)}
    state = ContainerState(terminated=ContainerStateTerminated(exit_code=exit_code))
    return Pod(
        metadata=ObjectMeta(
            name=f"j-{name}-{index}", namespace="default", uid=f"{name}{index}", annotations=annotations
        ),
        status=PodStatus(phase=phase, container_statuses=(ContainerStatus(name="c", state=state),)),
    )


ABORT: Content = {"action": "AbortJob"}
RESTART: Content = {"action": "RestartJob"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({}, "No task specified in job spec", id="no tasks"),
        pytest.param({"tasks": [task(), task()]}, "duplicated task name w", id="two tasks with one name"),
        pytest.param({"tasks": [{"name": "w"}]}, "task w has no pod template", id="no template"),
        pytest.param({"tasks": "w"}, "Expected `array`, got `str`", id="not a list"),
        pytest.param(
            {"tasks": [task()], "policies": [{"event": "Rain", "action": "RestartJob"}]},
            "invalid policy event Rain",
            id="an unknown event",
        ),
        pytest.param(
            {"tasks": [task()], "policies": [{"event": "*", "action": "Dance"}]},
            "invalid policy action Dance",
            id="an unknown action",
        ),
        pytest.param(
            {"tasks": [task()], "policies": [{"event": "*", "action": "AbortJob", "timeout": "soon"}]},
            "invalid policy timeout: 'soon' is not a duration",
            id="a timeout that is no duration",
        ),
        pytest.param(
            {
                "tasks": [task()],
                "policies": [ABORT | {"event": "PodFailed"}, RESTART | {"event": "PodFailed"}],
            },
            "duplicate event PodFailed",
            id="an event with two policies",
        ),
        pytest.param(
            {"tasks": [task()], "policies": [ABORT | {"event": "*"}, RESTART | {"event": "PodFailed"}]},
            "no other policy should be here",
            id="any event, and another one",
        ),
        pytest.param(
            {"tasks": [task()], "policies": [ABORT | {"exitCode": 3}, RESTART | {"exitCode": 3}]},
            "duplicate exitCode 3",
            id="an exit code with two policies",
        ),
        pytest.param(
            {"tasks": [task()], "policies": [ABORT | {"exitCode": 0}]},
            "0 is not a valid error code",
            id="success as an error",
        ),
        pytest.param(
            {"tasks": [task(policies=[ABORT | {"exitCode": 3, "event": "*"}])]},
            "must not specify event and exitCode simultaneously",
            id="a policy for an event and an exit code",
        ),
        pytest.param(
            {"tasks": [task()], "policies": [ABORT]},
            "either event and exitCode should be specified",
            id="a policy for nothing",
        ),
        pytest.param(
            {"tasks": [task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})]},
            "doesn't form a directed acyclic graph",
            id="a cycle of dependencies",
        ),
    ],
)
def test_what_the_webhook_rejects(spec: Content, problem: str) -> None:
    with pytest.raises(InvalidJobError, match=problem):
        read_spec({"spec": spec})


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param(spec_of(task("a", 2), task("b", 3)), "5", id="all of them by default"),
        pytest.param(spec_of(task("a", 2), minAvailable=1), "1", id="fewer than the minima of tasks"),
        pytest.param(
            spec_of(task("a", 4, minAvailable=1), task("b", 4, minAvailable=1), minAvailable=3),
            "3",
            id="more than the minima of tasks",
        ),
    ],
)
def test_the_minimum_of_a_group(spec: JobSpec, cpu: str) -> None:
    assert group_spec(spec, {})["minResources"] == {"cpu": cpu}


RESTART = {"event": "PodFailed", "action": "RestartJob"}
ABORT = {"exitCode": 3, "action": "AbortJob"}


@pytest.mark.parametrize(
    ("spec", "pods", "action"),
    [
        pytest.param(spec_of(policies=[RESTART]), [pod("Failed")], "RestartJob", id="of the job"),
        pytest.param(
            spec_of(task(policies=[{"event": "PodFailed", "action": "AbortJob"}]), policies=[RESTART]),
            [pod("Failed")],
            "AbortJob",
            id="that of the task first",
        ),
        pytest.param(spec_of(policies=[ABORT]), [pod("Failed", exit_code=3)], "AbortJob", id="an exit code"),
        pytest.param(spec_of(policies=[ABORT]), [pod("Failed", exit_code=1)], None, id="another exit code"),
        pytest.param(
            spec_of(policies=[RESTART]), [pod("Failed", version=7)], None, id="a pod from before a restart"
        ),
        pytest.param(
            spec_of(policies=[{"event": "*", "action": "RestartJob"}]),
            [pod("Pending")],
            None,
            id="pending without a timeout",
        ),
        pytest.param(
            spec_of(policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]),
            [pod("Succeeded", 0), pod("Succeeded", 1)],
            "CompleteJob",
            id="all pods of a task",
        ),
    ],
)
def test_policies(spec: JobSpec, pods: list[Pod], action: str | None) -> None:
    found, _ = due_action(spec, occurrences(spec, 0, JobPods("j", pods)), now=0.0)
    assert (found.name if found is not None else None) == action


def test_a_timeout_delays_the_action() -> None:
    spec = spec_of(policies=[{"event": "PodEvicted", "action": "RestartJob", "timeout": "10m"}])
    assert due_action(spec, [Occurrence("PodEvicted", 100.0, "w")], now=400.0) == (None, 300.0)
    action, _ = due_action(spec, [Occurrence("PodEvicted", 100.0, "w")], now=700.0)
    assert action is not None


@pytest.mark.parametrize(
    ("phase", "spec", "pods", "after"),
    [
        ("Pending", spec_of(minAvailable=1), [pod("Running")], "Running"),
        ("Pending", spec_of(), [pod("Running")], "Pending"),
        ("Running", spec_of(), [pod("Running"), pod("Pending", 1)], "Pending"),
        ("Running", spec_of(), [pod("Succeeded"), pod("Succeeded", 1)], "Completed"),
        ("Running", spec_of(), [pod("Succeeded"), pod("Failed", 1)], "Failed"),
        ("Running", spec_of(minAvailable=1), [pod("Succeeded"), pod("Failed", 1)], "Completed"),
        ("Running", spec_of(minSuccess=1), [pod("Succeeded"), pod("Running", 1)], "Completed"),
        ("Running", spec_of(minSuccess=2, minAvailable=1), [pod("Succeeded"), pod("Failed", 1)], "Failed"),
        (
            "Running",
            spec_of(task("a", 1), task("b", 2, minAvailable=1), minAvailable=2),
            [pod("Failed", 0, "a"), pod("Succeeded", 0, "b"), pod("Succeeded", 1, "b")],
            "Failed",
        ),
        ("Completing", spec_of(), [pod("Succeeded"), pod("Running", 1)], "Completing"),
        ("Completing", spec_of(), [pod("Succeeded"), pod("Failed", 1)], "Completed"),
        ("Aborting", spec_of(), [], "Aborted"),
        ("Restarting", spec_of(), [], "Pending"),
        ("Completed", spec_of(), [], "Completed"),
    ],
)
def test_phases(phase: str, spec: JobSpec, pods: list[Pod], after: str) -> None:
    job = {"metadata": {"name": "j"}, "status": {"state": {"phase": phase}}}
    found = plan(job, spec, JobPods("j", pods), now=0.0, written="now", group_phase="Running")
    assert found.status["state"]["phase"] == after
