"""CronJobs: a Job at each time of their schedule, and the old Jobs are deleted.

`bayplan.cron` says when they are due. If several times were missed, the last one counts.

https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar, Final

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.controllers.pods import has_condition, is_controlled_by, pod_from
from bayplan.cron import Schedule, ScheduleError, last_due, parse_schedule
from bayplan.embedded.controllers.cluster import ObjectChange, owner_references
from bayplan.embedded.controllers.controller import Controller, KeyMapper, own_key, write_status
from bayplan.embedded.controllers.job import is_finished
from bayplan.embedded.server.deletion import BACKGROUND, DeleteOptions
from bayplan.embedded.server.kinds import CRON_JOBS, JOBS, Resource
from bayplan.errors import NotFoundError

SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobs(Controller):
    """Reconciles CronJobs."""

    name: ClassVar = "cronjob-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {CRON_JOBS: own_key, JOBS: self._job}

    def _job(self, change: ObjectChange) -> Iterable[str]:
        document = change.after or change.before
        assert document is not None
        namespace = change.key.partition("/")[0]
        owners = (owner for owner in owner_references(document) if owner.controller)
        return [f"{namespace}/{owner.name}" for owner in owners if owner.kind == CRON_JOBS.kind]

    def reconcile(self, key: str) -> float | None:
        cron = self.cluster.find(CRON_JOBS, key)
        if cron is None or "deletionTimestamp" in cron["metadata"]:
            return None
        spec, now = cron["spec"], self.api.time()
        jobs = [
            job for job in self.cluster.owned(JOBS, cron["metadata"]["uid"]) if is_controlled_by(job, cron)
        ]
        self._delete_old(spec, jobs)
        status = dict(cron.get("status") or {})
        done = [job["status"]["completionTime"] for job in jobs if has_condition(job, "Complete")]
        if done:
            status["lastSuccessfulTime"] = max([*done, status.get("lastSuccessfulTime", "")])
        again = None
        try:
            schedule = parse_schedule(spec["schedule"], spec.get("timeZone") or "")
        except ScheduleError as error:
            message = f'unparseable schedule: "{spec["schedule"]}" : {error}'
            self.events.warning(cron, "UnparseableSchedule", message)
        else:
            if not spec.get("suspend"):
                self._start_due(cron, schedule, [job for job in jobs if not is_finished(job)], status, now)
                following = schedule.after(now)
                again = None if following is None else following - now
        self.cluster.sync()
        jobs = self.cluster.owned(JOBS, cron["metadata"]["uid"])
        status["active"] = [_reference(job) for job in jobs if not is_finished(job)]
        write_status(self.api, CRON_JOBS, cron, status)
        return again

    def _start_due(
        self, cron: Content, schedule: Schedule, active: list[Content], status: Content, now: float
    ) -> None:
        spec, meta = cron["spec"], cron["metadata"]
        since = seconds_or_1970(status.get("lastScheduleTime") or meta["creationTimestamp"])
        due = last_due(schedule, since, now)
        if due is None:
            return
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and due + deadline < now:
            message = f"Missed scheduled time to start a job: {_written(due)}"
            self.events.warning(cron, "MissSchedule", message)
            return
        if active and spec.get("concurrencyPolicy") == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.events.normal(cron, "JobAlreadyActive", message)
            return
        if spec.get("concurrencyPolicy") == "Replace":
            for job in active:
                self._delete(job)
                self.events.normal(cron, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")
        name = f"{meta['name']}-{int(due) // 60}"
        if self.api.store.find(JOBS, JOBS.key(name, meta["namespace"])) is None:
            job = pod_from(spec["jobTemplate"], cron, name=name)
            job["metadata"].setdefault("annotations", {})[SCHEDULED_AT] = _written(due)
            self.api.create(JOBS, job, meta["namespace"])
            self.events.normal(cron, "SuccessfulCreate", f"Created job {name}")
        status["lastScheduleTime"] = _written(due)

    def _delete_old(self, spec: Content, jobs: list[Content]) -> None:
        limits = (
            ("Complete", spec.get("successfulJobsHistoryLimit", 3)),
            ("Failed", spec.get("failedJobsHistoryLimit", 1)),
        )
        for kind, limit in limits:
            ended = [job for job in jobs if has_condition(job, kind)]
            ended.sort(key=lambda job: (job.get("status") or {}).get("startTime") or "")
            for job in ended[: max(len(ended) - limit, 0)]:
                self._delete(job)

    def _delete(self, job: Content) -> None:
        meta = job["metadata"]
        with suppress(NotFoundError):
            options = DeleteOptions(uid=meta["uid"], propagation=BACKGROUND)
            self.api.delete(JOBS, meta["name"], meta["namespace"], options)


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reference(job: Content) -> Content:
    meta = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
