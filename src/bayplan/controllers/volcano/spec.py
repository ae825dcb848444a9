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

JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
"""Labels of pods."""
ENV, SVC, SSH = "env", "svc", "ssh"
PYTORCH, TENSORFLOW, MPI = "pytorch", "tensorflow", "mpi"
PLUGINS: Final = (ENV, SVC, SSH, PYTORCH, TENSORFLOW, MPI)
"""The plugins that are supported (`plugins.py`)."""
_NEED_SVC: Final = frozenset({PYTORCH, TENSORFLOW, MPI, "ray"})
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


class JobVolume(Record, frozen=True):
    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


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
    volumes: tuple[JobVolume, ...] = ()
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
        plugins=_with_needed(spec.plugins),
    )
    problems = list(_problems(spec))
    if problems:
        raise InvalidJobError("; ".join(problems))
    return spec


def _with_needed(plugins: dict[str, tuple[str, ...] | None]) -> dict[str, tuple[str, ...] | None]:
    """With the plugins that these need."""
    # mutate_job.go: patchDefaultPlugins
    found = dict(plugins)
    if _NEED_SVC & found.keys():
        found.setdefault(SVC, ())
    if MPI in found:
        found.setdefault(SSH, ())
    return found


def pod_name(job: str, task: TaskSpec, index: int) -> str:
    """The name of a pod of the job with this name."""
    return f"{job}-{task.name}-{index}"


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
    yield from _volume_problems(spec)
    yield from _dependency_problems(spec)


def _policy_problems(policies: Iterable[Policy]) -> Iterator[str]:
    # util.go: validatePolicies
    events: set[str] = set()
    exit_codes: set[int] = set()
    for policy in policies:
        own = dict.fromkeys(policy.all_events)
        if own and policy.exit_code is not None:
            yield "must not specify event and exitCode simultaneously"
        elif not own and policy.exit_code is None:
            yield "either event and exitCode should be specified"
        elif policy.exit_code == 0:
            yield "0 is not a valid error code"
        elif policy.exit_code in exit_codes:
            yield f"duplicate exitCode {policy.exit_code}"
        for event in own:
            if event not in EVENTS:
                yield f"invalid policy event {event}, valid events are {', '.join(EVENTS)}"
            elif event in events:
                yield f"duplicate event {event}  across different policy"
        events.update(own)
        if policy.exit_code is not None:
            exit_codes.add(policy.exit_code)
        if policy.action not in ACTIONS:
            yield f"invalid policy action {policy.action}, valid actions are {', '.join(ACTIONS)}"
        if policy.timeout is not None:
            try:
                Duration.parse(policy.timeout)
            except ValueError as error:
                yield f"invalid policy timeout: {error}"
    if ANY_EVENT in events and len(events) > 1:
        yield "if there's * here, no other policy should be here"


def _volume_problems(spec: JobSpec) -> Iterator[str]:
    # admit_job.go: validateIO
    paths = Counter(volume.mount_path for volume in spec.volumes)
    for path, count in paths.items():
        if not path:
            yield "mountPath is required"
        elif count > 1:
            yield f"duplicated mountPath: {path}"
    for volume in spec.volumes:
        if not volume.volume_claim_name and volume.volume_claim is None:
            yield "either VolumeClaim or VolumeClaimName must be specified"
        elif volume.volume_claim_name and volume.volume_claim is not None:
            yield "conflict: If you want to use an existing PVC, just specify VolumeClaimName"


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
    return [f"plugin {name}" for name in sorted(spec.plugins) if name not in PLUGINS] + not_evaluated(spec)


def not_evaluated(spec: JobSpec) -> list[str]:
    """The unsupported parts that may decide where its pods run."""
    found = []
    if spec.network_topology is not None:
        found.append("networkTopology")
    if any(task.partition_policy is not None for task in spec.tasks):
        found.append("partitionPolicy of tasks")
    if any(task.topology_policy not in ("", "none") for task in spec.tasks):
        found.append("topologyPolicy of tasks")
    return found
