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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.volcano.objects import OUT_OF_SYNC, task_of
from bayplan.controllers.volcano.pods import BEING_DELETED, JobPods, state_of
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
    spec: JobSpec, version: int, pods: JobPods, group_phase: str = "", now: float = 0.0
) -> Iterator[Occurrence]:
    """The events that follow from the state of the pods and the PodGroup. Evictions leave no trace.

    Of the pods of a task that are pending, the one that has waited longest is enough.
    """
    # job_controller_handler.go: updatePod, updatePodGroup; cache.go: TaskCompleted, TaskFailed
    for task in spec.tasks:
        if not (task.policies or spec.policies):
            continue
        current = pods.current(task.name, version)
        for pod in current.by_phase["Failed"].values():
            yield Occurrence(POD_FAILED, _since(pod), task.name, pod.name, _exit_code(pod))
        if _has_policy(spec, POD_PENDING, task):
            waiting = (pod for pod in current.by_phase["Pending"].values() if not pod.is_terminating)
            if (oldest := min(waiting, key=_created, default=None)) is not None:
                yield Occurrence(POD_PENDING, _created(oldest), task.name, oldest.name)
        done = current.by_phase["Succeeded"]
        if task.replicas and len(done) >= task.replicas and _has_policy(spec, TASK_COMPLETED, task):
            yield Occurrence(TASK_COMPLETED, max(map(_since, done.values())), task.name)
        if task.replicas and 0 <= task.max_retry <= current.restarts and _has_policy(spec, TASK_FAILED, task):
            yield Occurrence(TASK_FAILED, max(map(_since, current.all())), task.name)
    if group_phase == "Unknown":
        yield Occurrence(UNKNOWN, now)


def _has_policy(spec: JobSpec, event: str, task: TaskSpec) -> bool:
    return matching_policy(spec, Occurrence(event, 0.0, task.name)) is not None


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()


def _since(pod: Pod) -> float:
    """When the state of a pod changed last, as far as its conditions show."""
    times = [one.last_transition_time for one in pod.status.conditions if one.last_transition_time]
    return max((time.timestamp() for time in times), default=0.0)


def _exit_code(pod: Pod) -> int:
    statuses = pod.status.container_statuses
    state = statuses[0].state if statuses else None
    return 0 if state is None or state.terminated is None else state.terminated.exit_code


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
    create: Iterable[tuple[TaskSpec, int]] = ()
    """The pods that are missing, by task and index."""
    delete: list[Pod] = field(default_factory=list)
    keeps_group: bool = True
    """Whether the job has a PodGroup. A job that ends or restarts has none."""
    again: float | None = None
    """Seconds until something is due, even if nothing changes."""


def plan(
    job: Content,
    spec: JobSpec,
    pods: JobPods,
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
    leaving: Iterable[Pod] = ()
    if action is not None and _applies(action.name, phase):
        result.action = action.name
        if action.name in (RESTART_TASK, RESTART_POD):
            leaving = [pod for pod in pods.by_name.values() if _is_target(pod, action)]
            phase, retries = RESTARTING, retries + 1
        else:
            # The pods that ended stay if there will be no more, so that users can look at them.
            keeps_ended = action.name != RESTART_JOB or retries >= spec.max_retry - 1
            leaving = (pods.active if keeps_ended else pods.by_name).values()
            phase, version = ENDS.get(action.name, RESTARTING), version + 1
            retries += phase == RESTARTING
            result.keeps_group = False
        result.again = 0.0
    else:
        phase = _next_phase(spec, phase, retries, pods)
        if phase in ENDING or phase in FINISHED or phase == ABORTED:
            leaving = pods.active.values()
            result.keeps_group = False
        elif group_phase not in ("", PENDING):
            result.create = missing_pods(spec, pods)
            leaving = pods.surplus(spec)
    result.delete = [pod for pod in leaving if not pod.is_terminating]
    _count(status, pods, result.delete)
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


def _next_phase(spec: JobSpec, phase: str, retries: int, pods: JobPods) -> str:
    """The phase of a job with these pods, without an action."""
    # state/*.go
    counts = pods.counts
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


def _has_succeeded(spec: JobSpec, succeeded: int, pods: JobPods) -> bool:
    """Whether a job succeeded whose pods have all ended."""
    needs_each_task = spec.min_available >= sum(task.minimum for task in spec.tasks)
    if needs_each_task and any(pods.succeeded[task.name] < task.minimum for task in spec.tasks):
        return False
    return spec.min_success is None and succeeded >= spec.min_available


def _count(status: Content, pods: JobPods, leaving: Iterable[Pod]) -> None:
    """Writes the numbers of pods into a status. Those that leave count as deleted."""
    gone = Counter(map(state_of, leaving))
    gone_by_task = Counter((task_of(pod), pod.status.phase or UNKNOWN) for pod in leaving)
    counts = pods.counts - gone
    counts[BEING_DELETED] += gone.total()
    for name in ("pending", "running", "succeeded", "failed", BEING_DELETED, "unknown"):
        status[name] = counts[name] or None
    tasks = {}
    for task, phases in sorted(pods.task_counts.items()):
        if left := {phase: rest for phase, n in phases.items() if (rest := n - gone_by_task[task, phase])}:
            tasks[task] = {"phase": left}
    status["taskStatusCount"] = tasks or None


def missing_pods(spec: JobSpec, pods: JobPods) -> Iterator[tuple[TaskSpec, int]]:
    """The pods to create, in order."""
    for task in spec.tasks:
        if may_start(spec, task, pods):
            for index in pods.missing(task):
                yield task, index


def may_start(spec: JobSpec, task: TaskSpec, pods: JobPods) -> bool:
    """Whether the tasks that a task depends on have as many ready pods as their minimum."""
    # job_controller_actions.go: waitDependsOnTaskMeetCondition
    if task.depends_on is None:
        return True
    needed = [each for each in spec.tasks if each.name in task.depends_on.name]
    started = [pods.started[each.name] >= each.minimum for each in needed]
    if task.depends_on.iteration == "any" and len(started) > 1:
        return any(started)
    return all(started)
