"""The phases of Volcano's Jobs: what their controller does next.

`plan` compares a Job with its pods and its PodGroup. It returns the new status, the pods to create and to
delete, and what becomes of the PodGroup:

    Pending ──► Running ──► Completing ──► Completed       by policies, or when all pods have ended
       ▲           │    ──► Terminating ──► Terminated
       │           │    ──► Aborting ──► Aborted ─┐
       │           ▼                              │ ResumeJob
       └─────── Restarting ◄──────────────────────┘  ──► Failed after maxRetry

Policies map events (PodFailed, PodEvicted, TaskCompleted, …) to actions. Volcano's controller reacts to each
event when it is delivered. Here events are read from the state of the pods, so nothing is lost in a restart;
only an eviction leaves no trace, and is passed in. A pod that was created before the last restart, or that
the controller itself deletes, causes no events.

https://volcano.sh/en/docs/vcjob/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.pods import is_ready
from bayplan.controllers.volcano.objects import OUT_OF_SYNC, pod_name, task_of, version_of
from bayplan.controllers.volcano.spec import (
    ABORT_JOB,
    ANY_EVENT,
    COMPLETE_JOB,
    POD_FAILED,
    POD_PENDING,
    RESTART_JOB,
    RESTART_POD,
    RESTART_TASK,
    TASK_COMPLETED,
    TASK_FAILED,
    TERMINATE_JOB,
    UNKNOWN,
    JobSpec,
    Policy,
    TaskSpec,
)

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
COMPLETING, COMPLETED = "Completing", "Completed"
TERMINATING, TERMINATED = "Terminating", "Terminated"
ABORTING, ABORTED, FAILED = "Aborting", "Aborted", "Failed"
ENDING: Final = {COMPLETING: COMPLETED, TERMINATING: TERMINATED, ABORTING: ABORTED}
FINISHED: Final = (COMPLETED, TERMINATED, FAILED)

RESUME_JOB: Final = "ResumeJob"
"""Users issue it as a Command; a policy cannot."""
ENDS: Final = {ABORT_JOB: ABORTING, TERMINATE_JOB: TERMINATING, COMPLETE_JOB: COMPLETING}
_ENDED: Final = ("Succeeded", "Failed")


# Events and policies


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that a policy may react to."""

    event: str
    since: float
    """When it happened, or began."""
    task: str = ""
    pod: str = ""
    exit_code: int = 0


def occurrences(
    spec: JobSpec, version: int, pods: Collection[Pod], group_phase: str = "", now: float = 0.0
) -> Iterator[Occurrence]:
    """The events that follow from the state of the pods and the PodGroup. Evictions leave no trace."""
    # job_controller_handler.go: updatePod, updatePodGroup; cache.go: TaskCompleted, TaskFailed
    current = [
        pod for pod in pods if version_of(pod) == version and OUT_OF_SYNC not in pod.metadata.annotations
    ]
    for pod in current:
        task = task_of(pod)
        if pod.status.phase == "Failed":
            yield Occurrence(POD_FAILED, _since(pod), task, pod.name, _exit_code(pod))
        elif pod.status.phase == "Pending" and not pod.is_terminating:
            created = pod.metadata.creation_timestamp
            yield Occurrence(POD_PENDING, 0.0 if created is None else created.timestamp(), task, pod.name)
    for each in spec.tasks:
        own = [pod for pod in current if task_of(pod) == each.name]
        done = [pod for pod in own if pod.status.phase == "Succeeded"]
        if each.replicas and len(done) >= each.replicas:
            yield Occurrence(TASK_COMPLETED, max(map(_since, done)), each.name)
        restarts = sum(map(_restarts, own))
        if each.replicas and each.max_retry >= 0 and restarts >= each.max_retry:
            yield Occurrence(TASK_FAILED, max(map(_since, own)), each.name)
    if group_phase == "Unknown":
        yield Occurrence(UNKNOWN, now)


def _since(pod: Pod) -> float:
    """When the state of a pod changed last, as far as its conditions show."""
    times = [one.last_transition_time for one in pod.status.conditions if one.last_transition_time]
    return max((time.timestamp() for time in times), default=0.0)


def _exit_code(pod: Pod) -> int:
    statuses = pod.status.container_statuses
    state = statuses[0].state if statuses else None
    return 0 if state is None or state.terminated is None else state.terminated.exit_code


def _restarts(pod: Pod) -> int:
    if pod.status.phase in _ENDED:
        return 0
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return sum(each.restart_count for each in statuses)


def matching_policy(spec: JobSpec, found: Occurrence) -> Policy | None:
    """The policy for something that happened: that of its task, else that of the job."""
    # job_controller_util.go: applyPolicies
    task = spec.task(found.task)
    for policy in (*(task.policies if task is not None else ()), *spec.policies):
        events = policy.all_events
        # A pod is pending from the start: only waiting for too long is worth an action.
        is_too_early = found.event == POD_PENDING and policy.timeout is None
        if (found.event in events or ANY_EVENT in events) and not is_too_early:
            return policy
        if policy.exit_code is not None and policy.exit_code == found.exit_code:
            return policy
    return None


@dataclass(frozen=True, slots=True)
class Action:
    """An action that a policy or a user requests."""

    name: str
    task: str = ""
    pod: str = ""


def due_action(spec: JobSpec, found: Iterable[Occurrence], now: float) -> tuple[Action | None, float | None]:
    """The action that is due; if none is, the seconds until the next one."""
    again: float | None = None
    for each in found:
        policy = matching_policy(spec, each)
        if policy is None:
            continue
        left = each.since + policy.delay - now if policy.delay else 0.0
        if left <= 0:
            return Action(policy.action, each.task, each.pod), None
        again = left if again is None else min(again, left)
    return None, again


# The state machine


@dataclass(slots=True)
class Plan:
    """What to do for a job."""

    status: Content
    action: str = ""
    """The action that is carried out."""
    create: list[tuple[TaskSpec, int]] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    keeps_group: bool = True
    """Whether the job has a PodGroup. A job that ends or restarts has none."""
    again: float | None = None
    """Seconds until something is due, even if nothing changes."""


def plan(
    job: Content,
    spec: JobSpec,
    pods: Collection[Pod],
    *,
    now: float,
    written: str,
    group_phase: str = "",
    evicted: Sequence[Occurrence] = (),
    command: str = "",
) -> Plan:
    """One step of a job.

    Args:
        now, written: the time, in seconds and as the API writes it.
        group_phase: of its PodGroup; empty if it has none, or if no scheduler has seen it.
        evicted: pods of the current version that were deleted by another client.
        command: an action that a user has issued.
    """
    status = dict(job.get("status") or {})
    phase = before = (status.get("state") or {}).get("phase") or ""
    version, retries = status.get("version", 0), status.get("retryCount", 0)
    phase = phase or PENDING
    result = Plan(status)

    action = Action(command) if command else None
    if action is None and phase in (PENDING, RUNNING):
        shown = occurrences(spec, version, pods, group_phase, now)
        action, result.again = due_action(spec, (*evicted, *shown), now)
    leaving: list[Pod] = []
    if action is not None and _applies(action.name, phase):
        result.action = action.name
        if action.name in (RESTART_TASK, RESTART_POD):
            leaving = [pod for pod in pods if _is_target(pod, action)]
            phase, retries = RESTARTING, retries + 1
        else:
            # The pods that ended stay if there will be no more, so that users can look at them.
            keeps_ended = action.name != RESTART_JOB or retries >= spec.max_retry - 1
            leaving = [pod for pod in pods if not (keeps_ended and pod.status.phase in _ENDED)]
            phase, version = ENDS.get(action.name, RESTARTING), version + 1
            retries += phase == RESTARTING
            result.keeps_group = False
        result.again = 0.0
    else:
        phase = _next_phase(spec, phase, retries, pods)
        if phase in ENDING or phase in FINISHED or phase == ABORTED:
            leaving = [pod for pod in pods if pod.status.phase not in _ENDED]
            result.keeps_group = False
        elif group_phase not in ("", PENDING):
            _scale(job, spec, pods, result, leaving)
    result.delete = [pod for pod in leaving if not pod.is_terminating]
    gone = {pod.uid for pod in leaving}
    counts = _counts([pod for pod in pods if pod.uid not in gone])
    counts["terminating"] = counts.get("terminating", 0) + len(gone)
    for name in ("pending", "running", "succeeded", "failed", "terminating", "unknown"):
        status[name] = counts.get(name) or None
    status["taskStatusCount"] = _task_counts([pod for pod in pods if pod.uid not in gone]) or None
    status["minAvailable"] = spec.min_available
    status["version"], status["retryCount"] = version or None, retries or None
    if phase != before:
        status["state"] = {"phase": phase, "lastTransitionTime": written}
        others = [one for one in status.get("conditions") or () if one.get("status") != phase]
        status["conditions"] = [*others, {"status": phase, "lastTransitionTime": written}]
    return result


def _applies(action: str, phase: str) -> bool:
    if action == RESUME_JOB:
        return phase in (ABORTING, ABORTED)
    return phase in (PENDING, RUNNING)


def _is_target(pod: Pod, action: Action) -> bool:
    if task_of(pod) != action.task or OUT_OF_SYNC in pod.metadata.annotations:
        return False
    return action.name == RESTART_TASK or pod.name == action.pod


def _next_phase(spec: JobSpec, phase: str, retries: int, pods: Collection[Pod]) -> str:
    """The phase of a job with these pods, without an action."""
    # state/*.go
    counts = _counts(pods)
    alive = sum(counts.get(name, 0) for name in ("terminating", "pending", "running", "unknown"))
    succeeded, failed = counts.get("succeeded", 0), counts.get("failed", 0)
    if phase in ENDING:
        return phase if alive else ENDING[phase]
    if phase == RESTARTING:
        if retries >= spec.max_retry:
            return FAILED
        return PENDING if spec.replicas - counts.get("terminating", 0) >= spec.min_available else phase
    if phase == PENDING:
        return RUNNING if spec.min_available <= counts.get("running", 0) + succeeded + failed else phase
    if phase != RUNNING or not spec.replicas:
        return phase
    if spec.min_success is not None and succeeded >= spec.min_success:
        return COMPLETED
    if succeeded + failed == spec.replicas:
        return COMPLETED if _has_succeeded(spec, succeeded, pods) else FAILED
    return PENDING if counts.get("pending", 0) > spec.replicas - spec.min_available else phase


def _has_succeeded(spec: JobSpec, succeeded: int, pods: Collection[Pod]) -> bool:
    """Whether a job succeeded whose pods have all ended."""
    if spec.min_available >= sum(task.minimum for task in spec.tasks):
        done = Counter(task_of(pod) for pod in pods if pod.status.phase == "Succeeded")
        if any(done[task.name] < task.minimum for task in spec.tasks):
            return False
    return spec.min_success is None and succeeded >= spec.min_available


def _counts(pods: Iterable[Pod]) -> Counter[str]:
    """Pods by phase, in lower case; `terminating` for those that are being deleted."""
    known = ("Pending", "Running", *_ENDED)
    return Counter(
        "terminating"
        if pod.is_terminating
        else (pod.status.phase if pod.status.phase in known else UNKNOWN).lower()
        for pod in pods
    )


def _task_counts(pods: Iterable[Pod]) -> dict[str, Content]:
    found: dict[str, Counter[str]] = {}
    for pod in pods:
        if not pod.is_terminating:
            found.setdefault(task_of(pod), Counter())[pod.status.phase or UNKNOWN] += 1
    return {task: {"phase": dict(counts)} for task, counts in sorted(found.items())}


def _scale(job: Content, spec: JobSpec, pods: Collection[Pod], result: Plan, leaving: list[Pod]) -> None:
    """Adds the pods that are missing to the plan, and those that are too many to the ones that leave."""
    existing = {pod.name: pod for pod in pods}
    wanted = set()
    for task in spec.tasks:
        names = [pod_name(job, task, index) for index in range(task.replicas)]
        wanted.update(names)
        missing = [index for index, name in enumerate(names) if name not in existing]
        if missing and _may_start(spec, task, pods):
            result.create += [(task, index) for index in missing]
    leaving += [pod for pod in pods if pod.name not in wanted or OUT_OF_SYNC in pod.metadata.annotations]


def _may_start(spec: JobSpec, task: TaskSpec, pods: Collection[Pod]) -> bool:
    """Whether the tasks that a task depends on have as many ready pods as their minimum."""
    # job_controller_actions.go: waitDependsOnTaskMeetCondition
    if task.depends_on is None:
        return True
    ready = Counter(
        task_of(pod)
        for pod in pods
        if pod.status.phase == "Succeeded" or (pod.status.phase == "Running" and is_ready(pod))
    )
    started = [ready[each.name] >= each.minimum for each in spec.tasks if each.name in task.depends_on.name]
    if task.depends_on.iteration == "any" and len(started) > 1:
        return any(started)
    return all(started)
