"""What a Job of Volcano asks for: its spec with the defaults and checks of Volcano's webhooks.

`not_supported` lists parts of the spec that have no effect. `jobs.py` has the phases of a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from bayplan.api.meta import Content, Int32, Record
from bayplan.framework.args import Duration

JOB: Final = ("jobs", "Job", "batch.volcano.sh", "v1alpha1")
"""The kind: its resource, name, group and version."""

RESTART_JOB, RESTART_TASK, RESTART_POD = "RestartJob", "RestartTask", "RestartPod"
ABORT_JOB, TERMINATE_JOB, COMPLETE_JOB = "AbortJob", "TerminateJob", "CompleteJob"
ACTIONS: Final = (RESTART_JOB, RESTART_TASK, RESTART_POD, ABORT_JOB, TERMINATE_JOB, COMPLETE_JOB)

POD_FAILED, POD_EVICTED, POD_PENDING = "PodFailed", "PodEvicted", "PodPending"
TASK_COMPLETED, TASK_FAILED, UNKNOWN, ANY_EVENT = "TaskCompleted", "TaskFailed", "Unknown", "*"
EVENTS: Final = (POD_FAILED, POD_EVICTED, POD_PENDING, TASK_COMPLETED, TASK_FAILED, UNKNOWN, ANY_EVENT)

ENV_PLUGIN, SVC_PLUGIN = "env", "svc"
DEFAULT_MAX_RETRY: Final = 3


class InvalidJobError(ValueError):
    """A job that Volcano's webhook would reject."""


class Policy(Record, frozen=True):
    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: Int32 | None = None
    timeout: str | None = None

    @property
    def all_events(self) -> tuple[str, ...]:
        return (*self.events, *((self.event,) if self.event else ()))

    @property
    def delay(self) -> float:
        """Seconds between the event and the action."""
        return 0.0 if self.timeout is None else Duration.parse(self.timeout).seconds


class DependsOn(Record, frozen=True):
    name: tuple[str, ...] = ()
    iteration: str = ""


class TaskSpec(Record, frozen=True):
    name: str = ""
    replicas: Int32 = 0
    min_available: Int32 | None = None
    template: dict[str, Any] = {}
    policies: tuple[Policy, ...] = ()
    max_retry: Int32 = 0
    depends_on: DependsOn | None = None
    topology_policy: str = ""
    partition_policy: dict[str, Any] | None = None

    @property
    def minimum(self) -> int:
        return self.replicas if self.min_available is None else self.min_available


class JobSpec(Record, frozen=True):
    scheduler_name: str = ""
    min_available: Int32 = 0
    tasks: tuple[TaskSpec, ...] = ()
    policies: tuple[Policy, ...] = ()
    plugins: dict[str, tuple[str, ...] | None] = {}
    queue: str = ""
    max_retry: Int32 = 0
    ttl_seconds_after_finished: Int32 | None = None
    priority_class_name: str = ""
    min_success: Int32 | None = None
    volumes: tuple[dict[str, Any], ...] = ()
    network_topology: dict[str, Any] | None = None

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    def task(self, name: str) -> TaskSpec | None:
        return next((task for task in self.tasks if task.name == name), None)


def read_spec(job: Content) -> JobSpec:
    """The spec with the defaults of Volcano's webhook.

    Raises:
        InvalidJobError: the webhook would reject it.
    """
    try:
        spec = msgspec.convert(job.get("spec") or {}, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidJobError(str(error)) from error
    replace = msgspec.structs.replace
    tasks = tuple(
        replace(task, name=task.name or f"default{number}", max_retry=task.max_retry or DEFAULT_MAX_RETRY)
        for number, task in enumerate(spec.tasks)
    )
    spec = replace(
        spec,
        tasks=tasks,
        queue=spec.queue or "default",
        scheduler_name=spec.scheduler_name or "volcano",
        max_retry=spec.max_retry or DEFAULT_MAX_RETRY,
        min_available=spec.min_available or sum(task.minimum for task in tasks),
    )
    problems = list(_problems(spec))
    if problems:
        raise InvalidJobError("; ".join(problems))
    return spec


def _problems(spec: JobSpec) -> Iterator[str]:
    # admit_job.go: validateJobCreate
    if not spec.tasks:
        yield "No task specified in job spec"
    if any(number < 0 for number in (spec.min_available, spec.max_retry, *(t.replicas for t in spec.tasks))):
        yield "'minAvailable', 'maxRetry' and 'replicas' must be >= 0"
    if spec.replicas < spec.min_available:
        yield "job 'minAvailable' should not be greater than total replicas in tasks"
    for name, count in Counter(task.name for task in spec.tasks).items():
        if count > 1:
            yield f"duplicated task name {name}"
    for task in spec.tasks:
        if task.minimum > task.replicas:
            yield f"'minAvailable' is greater than 'replicas' in task: {task.name}"
        if not isinstance(task.template.get("spec"), dict):
            yield f"task {task.name} has no pod template"
        yield from _policy_problems(task.policies)
    yield from _policy_problems(spec.policies)
    yield from _dependency_problems(spec)


def _policy_problems(policies: Iterable[Policy]) -> Iterator[str]:
    for policy in policies:
        for event in policy.all_events:
            if event not in EVENTS:
                yield f"invalid policy event {event}, valid events are {', '.join(EVENTS)}"
        if policy.action not in ACTIONS:
            yield f"invalid policy action {policy.action}, valid actions are {', '.join(ACTIONS)}"
        if policy.timeout is not None:
            try:
                Duration.parse(policy.timeout)
            except ValueError as error:
                yield f"invalid policy timeout: {error}"


def _dependency_problems(spec: JobSpec) -> Iterator[str]:
    needs = {task.name: set(task.depends_on.name) if task.depends_on else set() for task in spec.tasks}
    for name, others in needs.items():
        if missing := sorted(others - set(needs)):
            yield f"task {name} depends on {missing[0]}, which is not a task of the job"
            return
    while free := {name for name, others in needs.items() if not others & set(needs)}:
        needs = {name: others for name, others in needs.items() if name not in free}
    if needs:
        yield "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"


def not_supported(spec: JobSpec) -> list[str]:
    """The unsupported parts of the job, each in a few words."""
    found = []
    for plugin in sorted(spec.plugins):
        if plugin == SVC_PLUGIN:
            found.append("plugin svc: no Service, NetworkPolicy and files in /etc/volcano")
        elif plugin != ENV_PLUGIN:
            found.append(f"plugin {plugin}")
    return found + not_evaluated(spec)


def not_evaluated(spec: JobSpec) -> list[str]:
    """The unsupported parts that may decide where its pods run."""
    found = []
    if spec.volumes:
        found.append("volumes")
    if spec.network_topology is not None:
        found.append("networkTopology")
    if any(task.partition_policy is not None for task in spec.tasks):
        found.append("partitionPolicy of tasks")
    if any(task.topology_policy not in ("", "none") for task in spec.tasks):
        found.append("topologyPolicy of tasks")
    return found
