"""Jobs: as many successes as requested, or the reason of the failure."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import JOBS, PODS
from bayplan.embedded.server.subresources import evict
from tests.embedded.controllers.world import World, in_world, template


def job(world: World, seconds: float = 10, exit_code: int = 0, policy: str = "Never", **spec: Any) -> None:
    pod = template(restartPolicy=policy)
    notes = {"bayplan/run-seconds": str(seconds), "bayplan/exit-code": str(exit_code)}
    pod["metadata"] = {"annotations": notes}
    world.create(JOBS, "work", {"template": pod, **spec})


def status(world: World) -> Content:
    found: Content = world.get(JOBS, "work")["status"]
    return found


def conditions(world: World) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in status(world).get("conditions") or ()}


def active(world: World) -> int:
    return len([pod for pod in world.pods() if pod["status"]["phase"] == "Running"])


def test_a_job_runs_one_pod_to_its_end() -> None:
    async def test(world: World) -> None:
        job(world)
        await world.run_until_idle()
        await world.after(5)
        assert status(world)["active"] == 1
        assert status(world)["startTime"] == "2026-01-01T00:00:00Z"
        (pod,) = world.pods()
        assert pod["metadata"]["labels"]["job-name"] == "work"
        assert pod["metadata"]["generateName"] == "work-"
        await world.after(6)
        assert status(world)["succeeded"] == 1
        assert "active" not in status(world)
        assert status(world)["completionTime"] == "2026-01-01T00:00:10Z"
        assert conditions(world) == {
            "SuccessCriteriaMet": "CompletionsReached",
            "Complete": "CompletionsReached",
        }
        name = pod["metadata"]["name"]
        assert world.events("work") == [f"Created pod: {name}", "Job completed"]
        assert world.names(PODS) == [name]  # it stays, for its logs

    in_world(test)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_job_ends_without_annotations(policy: str) -> None:
    async def test(world: World) -> None:
        world.create(JOBS, "work", {"template": template(restartPolicy=policy), "completions": 2})
        await world.after(4)
        assert status(world)["active"] == 1
        await world.after(7)
        assert conditions(world)["Complete"] == "CompletionsReached"

    in_world(test)


def test_no_more_run_at_a_time_than_may_and_no_more_in_all_than_are_needed() -> None:
    async def test(world: World) -> None:
        job(world, completions=5, parallelism=2)
        seen = []
        for _ in range(4):
            await world.after(8)
            seen.append((active(world), status(world).get("succeeded", 0)))
        assert seen == [(2, 0), (2, 2), (1, 4), (0, 5)]
        assert len(world.names(PODS)) == 5

    in_world(test)


@pytest.mark.parametrize(
    ("limit", "pods", "policy"),
    [
        pytest.param(0, 1, "Never", id="no second try"),
        pytest.param(2, 3, "Never", id="two more tries"),
        pytest.param(2, 1, "OnFailure", id="started again on its node: no new pod, but the same limit"),
    ],
)
def test_failures_end_a_job_when_there_are_too_many(limit: int, pods: int, policy: str) -> None:
    async def test(world: World) -> None:
        job(world, seconds=1, exit_code=1, backoffLimit=limit, policy=policy)
        await world.after(100)
        assert conditions(world)["Failed"] == "BackoffLimitExceeded"
        if policy == "Never":
            assert (len(world.names(PODS)), status(world)["failed"]) == (pods, pods)
        assert world.events("work", "BackoffLimitExceeded") == ["Job has reached the specified backoff limit"]

    in_world(test)


def test_failed_pods_are_created_again_after_a_while_and_then_a_longer_one() -> None:
    async def test(world: World) -> None:
        job(world, seconds=1, exit_code=1, backoffLimit=5)
        made: list[int] = []
        for second in range(60):
            await world.run_until_idle()
            if len(world.names(PODS)) > len(made):
                made.append(second)
            await world.after(1)
        assert made == [0, 11, 32]

    in_world(test)


def test_a_job_that_takes_too_long_fails() -> None:
    async def test(world: World) -> None:
        job(world, seconds=1000, activeDeadlineSeconds=60)
        await world.after(59)
        assert active(world) == 1
        await world.after(2)
        assert conditions(world)["Failed"] == "DeadlineExceeded"
        assert world.pods() == []

    in_world(test)


def test_numbered_pods_each_succeed_once() -> None:
    async def test(world: World) -> None:
        job(world, completions=4, parallelism=3, completionMode="Indexed")
        await world.after(5)
        names = sorted(pod["metadata"]["generateName"] for pod in world.pods())
        assert names == ["work-0-", "work-1-", "work-2-"]
        (variable,) = world.pods()[0]["spec"]["containers"][0]["env"]
        assert variable["name"] == "JOB_COMPLETION_INDEX"
        await world.after(6)
        assert status(world)["completedIndexes"] == "0-2"
        await world.after(10)
        assert status(world)["completedIndexes"] == "0-3"
        assert "Complete" in conditions(world)

    in_world(test)


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    async def test(world: World) -> None:
        job(world, parallelism=2, completions=2)
        await world.after(2)
        world.change(JOBS, "work", spec={"suspend": True})
        await world.run_until_idle()
        assert (world.pods(), conditions(world)) == ([], {"Suspended": "JobSuspended"})
        world.change(JOBS, "work", spec={"suspend": False})
        await world.after(60)
        assert "Complete" in conditions(world)
        assert status(world)["succeeded"] == 2

    in_world(test)


def test_a_finished_job_is_deleted_after_its_time_to_live_with_its_pods() -> None:
    async def test(world: World) -> None:
        job(world, ttlSecondsAfterFinished=30)
        await world.after(38)
        assert world.names(JOBS) == ["work"]
        await world.after(5)
        assert (world.names(JOBS), world.names(PODS)) == ([], [])

    in_world(test)


def test_a_pod_that_is_deleted_is_a_failure_and_replaced() -> None:
    async def test(world: World) -> None:
        job(world, seconds=5)
        await world.after(1)
        (pod,) = world.names(PODS)
        world.api.delete(PODS, pod, "default")
        await world.after(50)
        assert (status(world)["failed"], status(world)["succeeded"]) == (1, 1)
        assert pod not in world.names(PODS)

    in_world(test)


@pytest.mark.parametrize("runs", [True, False])
def test_the_pods_of_a_deleted_job_are_deleted(runs: bool) -> None:
    async def test(world: World) -> None:
        job(world, seconds=1000 if runs else 1)
        await world.after(10)
        world.api.delete(JOBS, "work", "default")
        await world.after(40)
        assert (world.names(JOBS), world.names(PODS)) == ([], [])

    in_world(test)


def test_more_pods_than_are_made_at_once_are_all_made() -> None:
    async def test(world: World) -> None:
        job(world, completions=250, parallelism=250, completionMode="Indexed")
        await world.after(30)
        assert status(world)["completedIndexes"] == "0-249"
        assert len(world.names(PODS)) == 250

    in_world(test)


@pytest.mark.parametrize("text", ["0-99999999999999999999", "0-2000000000", "x,,3-", "-1", "9" * 5000])
def test_completed_indexes_of_another_writer(text: str) -> None:
    """Clients can write a status; it must neither stop the job nor fill the memory."""

    async def test(world: World) -> None:
        job(world, completions=2_000_000_000, parallelism=3, completionMode="Indexed")
        await world.run_until_idle()
        world.api.patch(JOBS, "work", "default", {"status": {"completedIndexes": text}}, subresource="status")
        for pod in world.pods():
            notes = {"batch.kubernetes.io/job-completion-index": text}
            world.api.patch(PODS, pod["metadata"]["name"], "default", {"metadata": {"annotations": notes}})
        await world.after(15)
        assert active(world) == 3

    in_world(test)


EXIT_42 = {"operator": "In", "values": [42]}
TARGET = [{"type": "DisruptionTarget"}]


@pytest.mark.parametrize(
    ("action", "expected", "failed"),
    [
        ("FailJob", {"FailureTarget": "PodFailurePolicy", "Failed": "PodFailurePolicy"}, 1),
        ("Count", {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}, 2),
    ],
)
def test_an_exit_code_decides(action: str, expected: dict[str, str], failed: int) -> None:
    async def test(world: World) -> None:
        rules = [{"action": action, "onExitCodes": EXIT_42}]
        job(world, exit_code=42, backoffLimit=1, podFailurePolicy={"rules": rules})
        await world.after(60)
        assert (conditions(world), status(world)["failed"]) == (expected, failed)

    in_world(test)


def test_the_message_of_a_failed_job_names_the_rule() -> None:
    async def test(world: World) -> None:
        rules = [
            {"action": "Ignore", "onPodConditions": TARGET},
            {"action": "FailJob", "onExitCodes": EXIT_42},
        ]
        job(world, exit_code=42, podFailurePolicy={"rules": rules})
        await world.after(15)
        (pod,) = world.pods()
        (message,) = {each["message"] for each in status(world)["conditions"]}
        name = f"default/{pod['metadata']['name']}"
        container = pod["spec"]["containers"][0]["name"]
        assert message == (
            f"Container {container} for pod {name} failed with exit code 42 matching FailJob rule at index 1"
        )

    in_world(test)


def test_evictions_can_be_ignored() -> None:
    """A pod that is evicted is not counted, and is replaced when it has ended."""

    async def test(world: World) -> None:
        rules = [{"action": "Ignore", "onPodConditions": TARGET}]
        job(world, seconds=20, backoffLimit=0, podFailurePolicy={"rules": rules})
        await world.after(5)
        (pod,) = world.pods()
        evict(world.api, pod["metadata"]["name"], "default", DeleteOptions())
        await world.after(40)
        assert (status(world)["succeeded"], status(world).get("failed")) == (1, None)
        assert conditions(world)["Complete"] == "CompletionsReached"

    in_world(test)


@pytest.mark.parametrize(
    ("rule", "completed"),
    [
        pytest.param({"succeededCount": 2}, "0-1", id="as many as the rule asks for"),
        pytest.param({"succeededIndexes": "1"}, "0-1", id="the index that the rule names"),
        pytest.param({"succeededIndexes": "0-3", "succeededCount": 2}, "0-1", id="some of these indexes"),
    ],
)
def test_a_success_policy_ends_a_job_early(rule: Content, completed: str) -> None:
    async def test(world: World) -> None:
        spec: dict[str, Any] = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
        job(world, seconds=5, successPolicy={"rules": [{"succeededCount": 4}, rule]}, **spec)
        await world.after(9)
        assert conditions(world) == {"SuccessCriteriaMet": "SuccessPolicy", "Complete": "SuccessPolicy"}
        assert status(world)["completedIndexes"] == completed
        assert {each["message"] for each in status(world)["conditions"]} == {"Matched rules at index 1"}

    in_world(test)


@pytest.mark.parametrize(
    ("spec", "reason", "failed", "indexes"),
    [
        pytest.param({"backoffLimitPerIndex": 1}, "FailedIndexes", 4, "0-1", id="each index twice"),
        pytest.param({"backoffLimitPerIndex": 0}, "FailedIndexes", 2, "0-1", id="each index once"),
        pytest.param(
            {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0, "parallelism": 1},
            "MaxFailedIndexesExceeded",
            1,
            "0",
            id="too many indexes",
        ),
        pytest.param(
            {
                "backoffLimitPerIndex": 5,
                "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": EXIT_42}]},
            },
            "FailedIndexes",
            2,
            "0-1",
            id="a rule fails the index at once",
        ),
    ],
)
def test_indexes_fail(spec: Content, reason: str, failed: int, indexes: str) -> None:
    async def test(world: World) -> None:
        job(world, exit_code=42, **{"completionMode": "Indexed", "completions": 2, "parallelism": 2, **spec})
        await world.after(200)
        assert conditions(world) == {"FailureTarget": reason, "Failed": reason}
        assert (status(world)["failed"], status(world)["failedIndexes"]) == (failed, indexes)

    in_world(test)
