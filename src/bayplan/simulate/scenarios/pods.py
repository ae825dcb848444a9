"""The pods of a simulation and their owners, which create pods and replace those that are evicted.

Owners do what the controllers of Kubernetes do (`bayplan.controllers`), as far as the number of pods is
concerned. A replacement is created as soon as a pod begins to terminate, and starts from the beginning: the
work of the pod is lost.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace

from bayplan.api import groups
from bayplan.api.meta import LabelSelector, Object, ObjectMeta, OwnerReference
from bayplan.api.pod import Pod, PodSchedulingGroup, PodStatus, ResourceRequirements
from bayplan.api.workloads import POD_GROUP_LABEL, LabelSelectorSpec, ReplicaSet
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.api.workloads import PodGroupSpec as CoschedulingSpec
from bayplan.controllers.pods import TEMPLATE_HASH, deletion_order
from bayplan.controllers.workloads import job_pods
from bayplan.simulate.scenarios.inputs import TraceRow

if TYPE_CHECKING:
    from bayplan.simulate.scenarios.world import World


class Outcome(StrEnum):
    """How a pod ended."""

    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    """Its node failed for longer than it tolerates."""
    NODE_REMOVED = "node-removed"
    DESCHEDULED = "descheduled"
    """By what runs beside the scheduler (`run.Companion`)."""
    DELETED = "deleted"
    """By its owner: scaled down, or its lifetime is over."""


class SimulatedPod:
    """One pod, from its arrival to its end. Times are seconds since the start."""

    __slots__ = (
        "arrived",
        "attempts",
        "ended",
        "is_terminating",
        "name",
        "namespace",
        "node_name",
        "outcome",
        "owner",
        "queue",
        "reason",
        "reason_since",
        "replaces",
        "run_seconds",
        "scheduled",
        "shape",
        "timer",
        "uid",
        "workload",
    )

    def __init__(self, workload: str, shape: int, owner: Owner, arrived: float, run_seconds: float | None):
        self.workload = workload
        self.shape = shape
        """The number of its resource requests (`figures.RequestMix`)."""
        self.owner = owner
        self.arrived = arrived
        self.run_seconds = run_seconds
        """None: it runs until the end of the simulation."""
        self.name = self.namespace = self.uid = self.node_name = ""
        self.queue = ""
        """The path of its capacity queue, if there are any (`queue_figures.py`)."""
        self.scheduled: float | None = None
        self.ended: float | None = None
        self.outcome: Outcome | None = None
        self.is_terminating = False
        self.attempts = 0
        self.reason = 0
        """The number of the reason why it waits (`figures.py`)."""
        self.reason_since = arrived
        self.timer: asyncio.TimerHandle | None = None
        self.replaces: SimulatedPod | None = None
        """The pod in whose place its owner created it."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def make_pod(template: Pod, name: str, labels: dict[str, str], owner: OwnerReference | None) -> Pod:
    """A pod of a template that has its defaults. Records are shared between pods."""
    meta = template.metadata
    return replace(
        template,
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels={**meta.labels, **labels} if labels else meta.labels,
            annotations=meta.annotations,
            owner_references=() if owner is None else (owner,),
        ),
    )


class TraceTemplates:
    """The pods of a trace: a template with other requests, one for each distinct combination."""

    def __init__(self, template: Pod) -> None:
        self._template = template
        self._made: dict[tuple[object, ...], Pod] = {}

    def of(self, row: TraceRow) -> Pod:
        key = row.requests, row.priority, row.annotations
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._make(row)
        return found

    def _make(self, row: TraceRow) -> Pod:
        spec = self._template.spec
        first, *others = spec.containers
        requests = {**first.resources.requests, **dict(row.requests)}
        limits = {name: amount for name, amount in first.resources.limits.items() if name not in requests}
        limits.update({name: amount for name, amount in requests.items() if "/" in name})
        first = replace(first, resources=ResourceRequirements(requests=requests, limits=limits))
        spec = replace(spec, containers=(first, *others))
        if row.priority is not None:
            spec = replace(spec, priority=row.priority)
        meta = self._template.metadata
        if row.annotations:
            meta = replace(meta, annotations={**meta.annotations, **dict(row.annotations)})
        return replace(self._template, metadata=meta, spec=spec)


JOB_LABEL: Final = "batch.kubernetes.io/job-name"


class Owner:
    """The owner of single pods: none is replaced."""

    __slots__ = ()

    def scheduled(self, pod: SimulatedPod) -> None:
        """A pod was bound."""

    def lost(self, pod: SimulatedPod) -> None:
        """A pod begins to terminate, or is gone, without having succeeded."""

    def succeeded(self, pod: SimulatedPod) -> None:
        """A pod has run to its end."""


NO_OWNER: Final = Owner()


class PodSet(Owner):
    """Common parts of owners: a template, labels, and numbered pods."""

    __slots__ = ("_labels", "_next", "_reference", "_template", "_world", "name", "pods", "workload")

    def __init__(self, world: World, workload: str, name: str, template: Pod) -> None:
        self._world = world
        self._template = template
        self._labels: dict[str, str] = {}
        self._reference: OwnerReference | None = None
        self._next = 0
        self.workload = workload
        self.name = name
        self.pods: dict[str, SimulatedPod] = {}
        """Its pods that are not terminating, by uid."""

    def _create(self, count: int, run_seconds: float | None, replaces: SimulatedPod | None = None) -> None:
        for _ in range(count):
            name = f"{self.name}-{self._next}"
            self._next += 1
            pod = self._world.create_pod(
                self._template,
                name,
                workload=self.workload,
                owner=self,
                labels=self._labels,
                reference=self._reference,
                run_seconds=run_seconds,
            )
            pod.replaces = replaces
            self.pods[pod.uid] = pod

    def lost(self, pod: SimulatedPod) -> None:
        if self.pods.pop(pod.uid, None) is not None:
            self._create(1, pod.run_seconds, pod)


class Controlled(PodSet):
    """The controller of one pod of the cluster's files. It only replaces the pod."""

    __slots__ = ()

    def __init__(self, world: World, workload: str, pod: Pod) -> None:
        template = replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())
        super().__init__(world, workload, pod.name, template)
        self._reference = pod.metadata.controller()

    def owns(self, pod: SimulatedPod) -> None:
        self.pods[pod.uid] = pod

    def succeeded(self, pod: SimulatedPod) -> None:
        raise AssertionError("pods of files run until the end")


class Job(PodSet):
    """Runs pods until enough of them have succeeded, some at a time."""

    __slots__ = ("_run_seconds", "_spec", "_succeeded")

    def __init__(
        self,
        world: World,
        workload: str,
        name: str,
        template: Pod,
        *,
        completions: int,
        parallelism: int,
        run_seconds: list[float | None],
    ) -> None:
        super().__init__(world, workload, name, template)
        self._labels = {JOB_LABEL: name}
        self._reference = OwnerReference(
            api_version="batch/v1", kind="Job", name=name, uid=world.new_uid("job", name), controller=True
        )
        self._run_seconds = run_seconds
        """The run times of the pods that have yet to be created, the next one last."""
        self._spec = {"parallelism": parallelism, "completions": completions}
        self._succeeded = 0
        self._create_missing()

    def succeeded(self, pod: SimulatedPod) -> None:
        del self.pods[pod.uid]
        self._succeeded += 1
        self._create_missing()

    def _create_missing(self) -> None:
        for _ in range(job_pods(self._spec, succeeded=self._succeeded) - len(self.pods)):
            self._create(1, self._run_seconds.pop())


class Gang(PodSet):
    """Pods that run together or not at all: a PodGroup of Coscheduling and its members."""

    __slots__ = ("_namespace",)
    _kind: ClassVar[type[Object]] = CoschedulingPodGroup

    def __init__(
        self,
        world: World,
        workload: str,
        name: str,
        template: Pod,
        *,
        size: int,
        min_member: int,
        run_seconds: float | None,
    ) -> None:
        super().__init__(world, workload, name, template)
        self._namespace = template.namespace
        world.store.create(self._made(min_member))
        self._create(size, run_seconds)

    def _made(self, min_member: int) -> Object:
        """The PodGroup, which its pods will name."""
        self._labels = {POD_GROUP_LABEL: self.name}
        meta = ObjectMeta(name=self.name, namespace=self._namespace)
        return CoschedulingPodGroup(metadata=meta, spec=CoschedulingSpec(min_member=min_member))

    def succeeded(self, pod: SimulatedPod) -> None:
        del self.pods[pod.uid]
        if not self.pods:
            self._world.store.delete(self._kind, self.name, self._namespace)


class PodGroup(Gang):
    """The same with a PodGroup of Kubernetes."""

    __slots__ = ()
    _kind: ClassVar[type[Object]] = groups.PodGroup

    def _made(self, min_member: int) -> Object:
        named = PodSchedulingGroup(pod_group_name=self.name)
        self._template = replace(self._template, spec=replace(self._template.spec, scheduling_group=named))
        policy = groups.PodGroupSchedulingPolicy(gang=groups.GangSchedulingPolicy(min_count=min_member))
        return groups.PodGroup(
            metadata=ObjectMeta(name=self.name, namespace=self._namespace),
            spec=groups.PodGroupSpec(scheduling_policy=policy, priority=self._template.priority),
        )


class Deployment(PodSet):
    """Keeps a number of pods running. Its ReplicaSet exists, because spreading reads it."""

    __slots__ = ("_is_over", "_namespace")

    def __init__(self, world: World, workload: str, name: str, template: Pod, *, replicas: int) -> None:
        super().__init__(world, workload, name, template)
        self._namespace = template.namespace
        self._is_over = False
        self._labels = {TEMPLATE_HASH: name}
        labels = {**template.labels, **self._labels}
        made = world.store.create(
            ReplicaSet(
                metadata=ObjectMeta(name=name, namespace=self._namespace, labels=labels),
                spec=LabelSelectorSpec(selector=LabelSelector(match_labels=labels)),
            )
        )
        self._reference = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=name, uid=made.uid, controller=True
        )
        self._create(replicas, None)

    def scale(self, replicas: int) -> None:
        """Creates pods, or deletes some, in the order of a ReplicaSet."""
        if self._is_over:
            return
        surplus = len(self.pods) - replicas
        if surplus <= 0:
            self._create(-surplus, None)
            return
        stored = [self._world.store.get(Pod, pod.name, pod.namespace) for pod in self.pods.values()]
        for pod in deletion_order(stored)[:surplus]:
            self._world.delete_pod(self.pods.pop(pod.uid), Outcome.DELETED)

    def end(self) -> None:
        """Its lifetime is over: it is deleted with its pods."""
        if not self._is_over:
            self.scale(0)
            self._is_over = True
            self._world.store.delete(ReplicaSet, self.name, self._namespace)
