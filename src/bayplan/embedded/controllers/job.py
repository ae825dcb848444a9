"""Jobs: pods that run until enough of them have succeeded. Indexed jobs number their pods.

A finished pod is counted once: it carries a finalizer, which is taken away in the same step in which it is
counted, so neither a deletion in between nor a restart can make it count twice or not at all. The rules of
policies and of failed indexes are in `bayplan/controllers/jobs.py`. The backoff after failures is that of the
whole job, also where upstream has one for each index.

https://kubernetes.io/docs/concepts/workloads/controllers/job/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import dropwhile, islice
from typing import ClassVar, Final

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.jobs import (
    FAIL_INDEX,
    FAIL_JOB,
    IGNORE,
    failed_pod_action,
    index_failure,
    indexes_text,
    met_success_rule,
    parse_index,
    parse_indexes,
)
from bayplan.controllers.pods import find_condition, has_condition, is_active, pod_from
from bayplan.controllers.workloads import job_pods
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange, OwnedPods, uid_of
from bayplan.embedded.controllers.controller import counts, earliest, with_condition, write_status
from bayplan.embedded.controllers.pod_owner import PodOwner, pods_per_call
from bayplan.embedded.server.deletion import FOREGROUND, DeleteOptions
from bayplan.embedded.server.kinds import JOBS, PODS
from bayplan.errors import NotFoundError

TRACKING: Final = "batch.kubernetes.io/job-tracking"
_MAX_UNTRACKED: Final = 100
"""Pods per call that lose the finalizer; the rest follow in the next one, so that other tasks run."""
_BACKOFF_SECONDS: Final = 10.0
_MAX_BACKOFF: Final = 600.0


class Jobs(PodOwner):
    """Reconciles Jobs."""

    name: ClassVar = "job-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, JOBS)
        self._gone: dict[str, list[str]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """How many pods of a job failed in a row, and when the last one did."""

    def _workload(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None and change.before is not None:
            self._gone.setdefault(change.key, []).append(uid_of(change.before))
            self._failures.pop(change.key, None)
        return super()._workload(change)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        if (gone := self._gone.pop(key, None)) and (left := list(dropwhile(self._untrack_some, gone))):
            self._gone[key] = left
            return 0.0
        job = self.cluster.find(JOBS, key)
        if job is None:
            return None
        is_over = is_finished(job)
        if not is_over and "deletionTimestamp" not in job["metadata"]:
            return self._proceed(key, job)
        if not self._untrack_some(job["metadata"]["uid"]):
            return 0.0
        return self._delete_when_old(job) if is_over else None

    def _proceed(self, key: str, job: Content) -> float | None:
        spec, now = job["spec"], self.api.time()
        status = dict(job.get("status") or {})
        if not status.get("startTime") and not spec.get("suspend"):
            status["startTime"] = self.api.now()
        failure = self._count(key, job, status)
        self.cluster.sync()
        pods = self.pods_of(job)
        failure = failure or self._failure(job, status, pods)
        success = self._success(job, status, pods)
        again = self._deadline(spec, status)
        if failure is not None:
            self._delete_all(job, pods)
            self._finish(status, "Failed", *failure)
            self.events.warning(job, *failure)
        elif success is not None:
            self._delete_all(job, pods)
            self._finish(status, "Complete", *success)
            status["completionTime"] = self.api.now()
            self.events.normal(job, "Completed", "Job completed")
        elif spec.get("suspend"):
            self._suspend(job, status, pods)
        else:
            self._resume(job, status)
            again = earliest(again, self._scale(key, job, status, pods, now))
        self.cluster.sync()
        pods = self.cluster.pods.owned_by(job["metadata"]["uid"])
        status.pop("active", None)
        status.update(counts(active=pods.active), ready=pods.ready, terminating=pods.terminating)
        status["uncountedTerminatedPods"] = {}
        write_status(self.api, JOBS, job, status)
        return 0.0 if is_finished({"status": status}) else again

    # Counting

    def _count(self, key: str, job: Content, status: Content) -> tuple[str, str] | None:
        """Counts the pods that finished since the last reconcile. Returns why one of them fails the job."""
        spec, failure = job["spec"], None
        is_indexed = spec.get("completionMode") == "Indexed"
        done, failed_indexes = _completed(job, status), _failed_indexes(job, status)
        succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
        for pod in list(self.pods_of(job).pods.values()):
            content = self._newly_finished(spec, pod)
            if content is None:
                continue
            if pod.status.phase == "Succeeded":
                self._failures[key] = 0, self.api.time()
                if is_indexed:
                    done.add(_index_of(pod))
                else:
                    succeeded += 1
                continue
            matched = failed_pod_action(spec, content)
            if matched.action == FAIL_JOB and failure is None:
                failure = "PodFailurePolicy", matched.message
            if matched.action == IGNORE:
                continue
            failed += 1
            self._failures[key] = self._failures.get(key, (0, 0.0))[0] + 1, self.api.time()
            limit = spec.get("backoffLimitPerIndex")
            if limit is not None and (matched.action == FAIL_INDEX or _failure_count(pod) >= limit):
                failed_indexes.add(_index_of(pod))
        if is_indexed:
            done = {index for index in done if 0 <= index < spec["completions"]}
            status["completedIndexes"] = indexes_text(done) or None
            succeeded = len(done)
        if spec.get("backoffLimitPerIndex") is not None:
            status["failedIndexes"] = indexes_text(failed_indexes - done - {-1})
        status.update(counts(succeeded=succeeded, failed=failed))
        return failure

    def _newly_finished(self, spec: Content, pod: Pod) -> Content | None:
        """A pod that has to be counted now, which it is only once; None if it has not."""
        if is_active(pod):
            return None
        if spec.get("podReplacementPolicy") == "Failed" and not pod.is_finished and pod.spec.node_name:
            return None  # its kubelet writes how it ended
        return self._untracked(pod)

    def _untrack(self, pod: Pod) -> bool:
        """Removes our finalizer from a pod. Returns whether it was there."""
        return self._untracked(pod) is not None

    def _untracked(self, pod: Pod) -> Content | None:
        """A pod after our finalizer was removed from it; None if it did not have it."""
        document = self.api.store.find(PODS, pod.key)
        if document is None or TRACKING.encode() not in document.body:
            return None
        content = document.parse()
        finalizers = content["metadata"].get("finalizers") or ()
        if TRACKING not in finalizers:
            return None
        content["metadata"]["finalizers"] = [each for each in finalizers if each != TRACKING]
        self.api.update(PODS, content)
        return content

    def _untrack_some(self, uid: str) -> bool:
        """Removes our finalizer from pods of a job, some per call. Returns whether none is left."""
        found = map(self._untrack, list(self.cluster.pods.owned_by(uid).pods.values()))
        return sum(islice(filter(None, found), _MAX_UNTRACKED)) < _MAX_UNTRACKED

    # Effects of the counts

    def _success(self, job: Content, status: Content, pods: OwnedPods) -> tuple[str, str] | None:
        """Reason and message if the job has succeeded."""
        spec, succeeded = job["spec"], int(status.get("succeeded", 0))
        if (
            spec.get("successPolicy")
            and (rule := met_success_rule(spec, _completed(job, status))) is not None
        ):
            return "SuccessPolicy", f"Matched rules at index {rule}"
        if spec.get("completions") is None:
            is_complete = succeeded > 0 and pods.active == 0
        else:
            is_complete = succeeded >= int(spec["completions"])
        return ("CompletionsReached", "Reached expected number of succeeded pods") if is_complete else None

    def _failure(self, job: Content, status: Content, pods: OwnedPods) -> tuple[str, str] | None:
        spec = job["spec"]
        limit = spec["backoffLimit"]
        if status.get("failed", 0) > limit or self._restarted_too_often(spec, pods, limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left = self._deadline(spec, status)
        if left is not None and left <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        if spec.get("backoffLimitPerIndex") is not None:
            return index_failure(spec, _failed_indexes(job, status), status.get("succeeded", 0))
        return None

    def _restarted_too_often(self, spec: Content, pods: OwnedPods, limit: int) -> bool:
        """Containers that are started again on their node fail without a new pod."""
        if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = 0
        for pod in pods.all_active():
            content = self.cluster.find(PODS, pod.key) or {}
            for each in (content.get("status") or {}).get("containerStatuses") or ():
                restarts += each.get("restartCount", 0)
        return restarts > 0 if limit == 0 else restarts >= limit

    def _deadline(self, spec: Content, status: Content) -> float | None:
        """Seconds until the job has been active for too long."""
        seconds = spec.get("activeDeadlineSeconds")
        if seconds is None or not status.get("startTime") or spec.get("suspend"):
            return None
        return float(seconds_or_1970(status["startTime"]) + seconds - self.api.time())

    def _finish(self, status: Content, kind: str, reason: str, message: str) -> None:
        first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        for each in (first, kind):
            status["conditions"] = self._with(status, each, "True", reason, message)

    def _with(self, status: Content, kind: str, state: str, reason: str, message: str) -> list[Content]:
        now = self.api.now()
        conditions = status.get("conditions")
        return with_condition(conditions, kind, state, reason, message, now, lastProbeTime=now)

    def _suspend(self, job: Content, status: Content, pods: OwnedPods) -> None:
        self._delete_all(job, pods)
        status.pop("startTime", None)
        if not has_condition({"status": status}, "Suspended"):
            status["conditions"] = self._with(status, "Suspended", "True", "JobSuspended", "Job suspended")
            self.events.normal(job, "Suspended", "Job suspended")

    def _resume(self, job: Content, status: Content) -> None:
        if has_condition({"status": status}, "Suspended"):
            status["conditions"] = self._with(status, "Suspended", "False", "JobResumed", "Job resumed")
            self.events.normal(job, "Resumed", "Job resumed")

    def _delete_all(self, job: Content, pods: OwnedPods) -> None:
        for pod in pods.all_active():
            self._untrack(pod)
            self.delete_pod(job, pod)

    # Pods

    def _scale(self, key: str, job: Content, status: Content, pods: OwnedPods, now: float) -> float | None:
        """Creates or deletes pods. After failures it waits with exponential backoff; returns the delay."""
        spec = job["spec"]
        lost = _failed_indexes(job, status)
        over = status.get("succeeded", 0) + len(lost)
        wanted, busy = job_pods(spec, succeeded=over, active=pods.active), pods.active
        if spec.get("podReplacementPolicy") == "Failed":
            busy += pods.terminating
        for pod in pods.all_active()[: max(pods.active - wanted, 0)]:
            self._untrack(pod)
            self.delete_pod(job, pod)
        if wanted <= busy:
            return None
        failures, last = self._failures.get(key, (0, 0.0))
        if failures:
            left = last + min(_BACKOFF_SECONDS * 2.0 ** (failures - 1), _MAX_BACKOFF) - now
            if left > 0:
                return left
        missing = min(wanted - busy, pods_per_call(spec["template"]))
        indexes: list[int | None] = [None] * missing
        if spec.get("completionMode") == "Indexed":
            taken = {_index_of(pod) for pod in pods.all_active()}
            if spec.get("podReplacementPolicy") == "Failed":
                taken |= {_index_of(pod) for pod in pods.pods.values() if not pod.is_finished}
            taken |= lost | _completed(job, status)
            indexes = [*missing_indexes(spec["completions"], taken, missing)]
        earlier = _failure_counts(pods) if spec.get("backoffLimitPerIndex") is not None else None
        for index in indexes:
            new = pod_from(spec["template"], job)
            new["metadata"]["finalizers"] = [*new["metadata"].get("finalizers", ()), TRACKING]
            if index is not None:
                new = indexed_pod(new, job, index)
                if earlier is not None:
                    new["metadata"]["annotations"][FAILURE_COUNT] = str(earlier.get(index, 0))
            self.create_pod(job, new)
        return None if missing == wanted - busy else 0.0

    # The end

    def _delete_when_old(self, job: Content) -> float | None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or "deletionTimestamp" in job["metadata"]:
            return None
        finished = find_condition(job, "Complete") or find_condition(job, "Failed")
        assert finished is not None
        left = seconds_or_1970(finished["lastTransitionTime"]) + ttl - self.api.time()
        if left > 0:
            return float(left)
        meta = job["metadata"]
        with suppress(NotFoundError):
            options = DeleteOptions(uid=meta["uid"], propagation=FOREGROUND)
            self.api.delete(JOBS, meta["name"], meta["namespace"], options)
        return None


def is_finished(job: Content) -> bool:
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def _index_of(pod: Pod) -> int:
    """The index of a pod; -1 if somebody removed or changed its annotation."""
    index = parse_index(pod.annotations.get(COMPLETION_INDEX, ""))
    return -1 if index is None else index


def _completed(job: Content, status: Content) -> set[int]:
    return parse_indexes(status.get("completedIndexes") or "", job["spec"].get("completions") or 0)


def _failed_indexes(job: Content, status: Content) -> set[int]:
    return parse_indexes(status.get("failedIndexes") or "", job["spec"].get("completions") or 0)


def _failure_count(pod: Pod) -> int:
    """How many pods of the same index failed before this one."""
    return parse_index(pod.annotations.get(FAILURE_COUNT, "")) or 0


def _failure_counts(pods: OwnedPods) -> dict[int, int]:
    """How many pods of each index have failed, from the last one that did."""
    found: dict[int, int] = {}
    for pod in pods.pods.values():
        if pod.status.phase == "Failed":
            index = _index_of(pod)
            found[index] = max(found.get(index, 0), _failure_count(pod) + 1)
    return found


COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT: Final = "batch.kubernetes.io/job-index-failure-count"
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def missing_indexes(completions: int, taken: set[int], count: int) -> list[int]:
    """The lowest numbers for which there is no pod."""
    return list(islice((index for index in range(completions) if index not in taken), count))


def indexed_pod(pod: Content, job: Content, index: int) -> Content:
    """A job's pod with its number: as annotation, label, host name and variable."""
    meta, name = pod["metadata"], f"{job['metadata']['name']}-{index}"
    meta["generateName"] = f"{name}-"
    for field in ("annotations", "labels"):
        meta[field] = {**(meta.get(field) or {}), COMPLETION_INDEX: str(index)}
    spec = pod["spec"]
    spec.setdefault("hostname", name)
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    variable = {"name": _VARIABLE, "valueFrom": source}
    spec["containers"] = [
        {**container, "env": [*(container.get("env") or ()), variable]} for container in spec["containers"]
    ]
    return pod
