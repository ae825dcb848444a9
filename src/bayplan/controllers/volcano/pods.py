"""The pods of a Job of Volcano, counted as they change.

A job is reconciled many times while its pods start. `JobPods` is updated with each pod that changes, so that
a reconcile takes time for what has changed, not for all pods of the job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from bayplan.api.pod import Pod
from bayplan.controllers.pods import is_ready
from bayplan.controllers.volcano.objects import OUT_OF_SYNC, task_of, version_of
from bayplan.controllers.volcano.spec import UNKNOWN, JobSpec, TaskSpec, pod_name

ENDED: Final = ("Succeeded", "Failed")
BEING_DELETED: Final = "terminating"
"""As the status of a job calls it."""
_KNOWN: Final = ("Pending", "Running", *ENDED)


class CurrentPods:
    """The pods of a task that cause events: those of one version that the controller did not delete."""

    __slots__ = ("by_phase", "restarts")

    def __init__(self) -> None:
        self.by_phase: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self.restarts = 0

    def all(self) -> Iterator[Pod]:
        for pods in self.by_phase.values():
            yield from pods.values()


class JobPods:
    """The pods of one job.

    Args:
        job: the name of the job.
    """

    def __init__(self, job: str, pods: Iterable[Pod] = ()) -> None:
        self._job = job
        self.by_name: dict[str, Pod] = {}
        self.counts: Counter[str] = Counter()
        """Pods by phase, in lower case; `terminating` for those that are being deleted."""
        self.task_counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By task: pods by phase, without those that are being deleted."""
        self.succeeded: Counter[str] = Counter()
        """By task."""
        self.started: Counter[str] = Counter()
        """By task: pods that are ready, or have succeeded."""
        self.active: dict[str, Pod] = {}
        """Pods that have not ended, and are not being deleted."""
        self.out_of_sync: dict[str, Pod] = {}
        self._current: defaultdict[tuple[str, int], CurrentPods] = defaultdict(CurrentPods)
        self._complete: dict[str, int] = {}
        """By task: all pods with a lower index exist."""
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        """Adds a pod, or replaces the one of this name."""
        if pod.name in self.by_name:
            self._count(self.by_name[pod.name], -1)
        self.by_name[pod.name] = pod
        self._count(pod, 1)

    def remove(self, name: str) -> None:
        pod = self.by_name.pop(name, None)
        if pod is None:
            return
        self._count(pod, -1)
        index = name.rpartition("-")[2]
        if index.isdecimal():
            self._complete = {task: min(known, int(index)) for task, known in self._complete.items()}

    def _count(self, pod: Pod, sign: int) -> None:
        task, phase = task_of(pod), pod.status.phase
        self.counts[state_of(pod)] += sign
        if not pod.is_terminating:
            self.task_counts[task][phase or UNKNOWN] += sign
        self.succeeded[task] += sign * (phase == "Succeeded")
        self.started[task] += sign * (phase == "Succeeded" or (phase == "Running" and is_ready(pod)))
        _keep(self.active, pod, kept=sign > 0 and phase not in ENDED and not pod.is_terminating)
        is_ours = OUT_OF_SYNC in pod.metadata.annotations
        _keep(self.out_of_sync, pod, kept=sign > 0 and is_ours)
        if not is_ours:
            current = self._current[task, version_of(pod)]
            current.restarts += sign * _restarts(pod)
            _keep(current.by_phase[phase], pod, kept=sign > 0)

    def current(self, task: str, version: int) -> CurrentPods:
        """The pods of a task that cause events."""
        return self._current.get((task, version)) or CurrentPods()

    def missing(self, task: TaskSpec) -> Iterator[int]:
        """The indexes of a task that have no pod."""
        for index in range(self._first_missing(task), task.replicas):
            if pod_name(self._job, task, index) not in self.by_name:
                yield index

    def _first_missing(self, task: TaskSpec) -> int:
        index = min(self._complete.get(task.name, 0), task.replicas)
        while index < task.replicas and pod_name(self._job, task, index) in self.by_name:
            index += 1
        self._complete[task.name] = index
        return index

    def surplus(self, spec: JobSpec) -> list[Pod]:
        """The pods that no task asks for, and those that the controller has begun to delete."""
        if sum(self._first_missing(task) for task in spec.tasks) == len(self.by_name):
            return list(self.out_of_sync.values())
        wanted = {pod_name(self._job, task, index) for task in spec.tasks for index in range(task.replicas)}
        wanted -= self.out_of_sync.keys()
        return [pod for name, pod in self.by_name.items() if name not in wanted]


def state_of(pod: Pod) -> str:
    """As the status of a job counts the pod."""
    if pod.is_terminating:
        return BEING_DELETED
    return (pod.status.phase if pod.status.phase in _KNOWN else UNKNOWN).lower()


def _keep(index: dict[str, Pod], pod: Pod, *, kept: bool) -> None:
    if kept:
        index[pod.name] = pod
    else:
        index.pop(pod.name, None)


def _restarts(pod: Pod) -> int:
    if pod.status.phase in ENDED:
        return 0
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return sum(each.restart_count for each in statuses)
