"""Values that the parts of a scheduler share."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.pod import Pod
from bayplan.dra.budget import SearchClock, StepClock
from bayplan.framework.binders import ClaimBinder, VolumeBinder
from bayplan.framework.plugin_api import WaitingPodView
from bayplan.metrics import Metrics
from bayplan.runtime.failure_log import FailureLog
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.recorder import EventRecorder
from bayplan.scheduler.tasks import Tasks
from bayplan.scheduler.waiting import PreBinding, WaitingPods
from bayplan.scheduling_queue.queue import SchedulingQueue
from bayplan.scheduling_queue.waiting import MAX_IN_UNSCHEDULABLE_SECONDS
from bayplan.state.cache import Cache
from bayplan.state.cluster import Cluster
from bayplan.state.groups import Group

if TYPE_CHECKING:
    from bayplan.scheduler.group_dialects import ForeignGroups


def wall_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Seconds since the epoch: by the loop's clock if it has one (virtual time), else the system clock."""
    return getattr(loop, "wall_time", time.time)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How a scheduler runs, whatever its configuration is."""

    seed: int = 0
    """Of the random generators, so that runs can be repeated."""
    cache: bool = True
    """Whether results are cached between pods; otherwise every attempt computes everything."""
    eager: bool = True
    """Whether bindings run as far as possible before they become tasks (`tasks.py`)."""
    max_in_unschedulable: float = MAX_IN_UNSCHEDULABLE_SECONDS
    """Seconds after which an unschedulable pod is tried again without an event."""
    search_clock: SearchClock | None = None
    """Limits long searches. A live scheduler has `ElapsedTime`; None: steps are counted, so that decisions do
    not depend on the machine."""


DEFAULT_SETTINGS: Final = LoopSettings()


class PodLister(Protocol):
    """Finds pods, pending ones too, in the latest version known."""

    def get(self, name: str, namespace: str = "") -> Pod | None: ...

    def with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]: ...


class LatestPods:
    """The pods as they are known now, from the informer or whatever replaces it."""

    lister: PodLister
    """Set once the informers exist, which need the other parts."""

    def latest(self, pod: Pod) -> Pod | None:
        """The latest known version of the pod with this namespace and name."""
        return self.lister.get(pod.name, pod.namespace)


@dataclass(slots=True)
class Context:
    """The parts, assembled by `Scheduler`."""

    api: ClusterAPI
    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    """Seconds since the epoch."""
    cluster: Cluster
    cache: Cache
    queue: SchedulingQueue
    pods: LatestPods
    recorder: EventRecorder
    metrics: Metrics
    stopwatch: Callable[[], float]
    """Seconds, for measured durations only: always 0 if nothing is measured."""
    tasks: Tasks
    between_cycles: Callable[[Callable[[], None]], None]
    """Runs a function now or, if a cycle waits for an extender, after that cycle."""
    wake: Callable[[], None]
    """Call this after changing the queue outside the loop, which may be asleep."""
    rng: random.Random
    failures: FailureLog
    """Where failing plugins are reported."""
    observers: Observers
    waiting: WaitingPods = field(default_factory=WaitingPods)
    pre_binding: dict[str, PreBinding] = field(default_factory=dict)
    preemptors: dict[str, Pod | Group] = field(default_factory=dict)
    """Pods and groups to activate when the binding of a victim is reverted, by the uid of the victim."""
    dialects: list[ForeignGroups] = field(default_factory=list)
    """Pod groups of other schedulers."""


class SchedulerHandle:
    """The handle of a running scheduler (`framework.plugin_api.Handle`)."""

    def __init__(
        self,
        api: ClusterAPI,
        cluster: Cluster,
        now: Callable[[], float],
        seed: int,
        search_clock: SearchClock | None = None,
    ) -> None:
        self.api = api
        self.cluster = cluster
        self.release = cluster.release
        self.log = logging.getLogger("bayplan.plugin")
        self.random = random.Random(seed)
        self.search_clock: SearchClock = StepClock() if search_clock is None else search_clock
        self.bind = api.bind
        self.is_preempting: Callable[[str], bool] = lambda uid: False
        self._now = now
        self._context: Context | None = None
        self._volumes: VolumeBinder | None = None
        self._claims: ClaimBinder | None = None

    def connect(self, context: Context, volumes: VolumeBinder, claims: ClaimBinder) -> None:
        """Called once all parts exist, after the plugins have been created."""
        self._context = context
        self._volumes = volumes
        self._claims = claims
        nominations = context.queue.nominations
        preemptions = nominations.preemptions
        self.is_preempting = lambda uid: uid in preemptions and nominations.is_preempting(uid)

    @property
    def context(self) -> Context:
        assert self._context is not None, "plugins are called only after the scheduler is assembled"
        return self._context

    @property
    def volumes(self) -> VolumeBinder:
        """Binds the volumes of pods (`framework.binders.BindsVolumes`)."""
        assert self._volumes is not None, "plugins are called only after the scheduler is assembled"
        return self._volumes

    @property
    def claims(self) -> ClaimBinder:
        """Writes the ResourceClaims of pods (`framework.binders.BindsClaims`)."""
        assert self._claims is not None, "plugins are called only after the scheduler is assembled"
        return self._claims

    def now(self) -> float:
        return self._now()

    def waiting_pods(self) -> Iterator[WaitingPodView]:
        return iter(self.context.waiting)

    def waiting_pod(self, uid: str) -> WaitingPodView | None:
        return self.context.waiting.get(uid)

    def activate(self, pods: Iterable[Pod]) -> None:
        self.context.queue.activate(pods)
        self.context.wake()

    def pods_with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        return self.context.pods.lister.with_label(namespace, key, value)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.context.loop.call_later(seconds, self.context.between_cycles, callback)
