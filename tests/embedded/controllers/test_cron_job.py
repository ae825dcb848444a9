"""CronJobs start Jobs."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.embedded.server.kinds import CRON_JOBS, JOBS
from bayplan.embedded.server.statuses import StatusError
from tests.embedded.controllers.world import World, in_world, template


def cron_job(world: World, schedule: str = "*/5 * * * *", seconds: int = 5, **spec: Any) -> None:
    pod = template(restartPolicy="Never")
    pod["metadata"] = {"annotations": {"bayplan/run-seconds": str(seconds)}}
    jobs = {"metadata": {"labels": {"app": "work"}}, "spec": {"template": pod}}
    world.create(CRON_JOBS, "work", {"schedule": schedule, "jobTemplate": jobs, **spec})


def test_a_job_is_started_when_it_is_due() -> None:
    async def test(world: World) -> None:
        cron_job(world)
        await world.after(299)
        assert world.names(JOBS) == []
        await world.after(3)
        (job,) = world.api.list(JOBS)
        assert job["metadata"]["labels"]["app"] == "work"
        assert job["metadata"]["ownerReferences"][0]["name"] == "work"
        status = world.get(CRON_JOBS, "work")["status"]
        assert status["lastScheduleTime"] == "2026-01-01T00:05:00Z"
        assert [active["name"] for active in status["active"]] == [job["metadata"]["name"]]
        await world.after(10)
        status = world.get(CRON_JOBS, "work")["status"]
        assert "active" not in status
        assert status["lastSuccessfulTime"].startswith("2026-01-01T00:05:")

    in_world(test)


def test_old_jobs_are_deleted() -> None:
    async def test(world: World) -> None:
        cron_job(world, "* * * * *", successfulJobsHistoryLimit=2)
        await world.after(60 * 6 + 30)
        assert len(world.names(JOBS)) == 2

    in_world(test)


@pytest.mark.parametrize(("policy", "jobs"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_jobs_that_are_still_running(policy: str, jobs: int) -> None:
    async def test(world: World) -> None:
        cron_job(world, "* * * * *", seconds=600, concurrencyPolicy=policy)
        await world.after(200)
        assert len(world.names(JOBS)) == jobs

    in_world(test)


def test_a_suspended_one_starts_none() -> None:
    async def test(world: World) -> None:
        cron_job(world, suspend=True)
        await world.after(600)
        assert world.names(JOBS) == []

    in_world(test)


def test_a_schedule_that_cannot_be_read_is_rejected() -> None:
    async def test(world: World) -> None:
        with pytest.raises(StatusError, match=r'spec\.schedule: Invalid value: "often"'):
            cron_job(world, "often")

    in_world(test)
