"""Runs the scheduler on a what-if cluster, in virtual time, until nothing more happens.

It is the scheduler of `bayplan run`: its queue with backoff and hints, its cycle, Reserve, Permit, preemption
and bindings. Only its surroundings differ: writes go to the state of the branch, and the controllers that
matter for scheduling are those of `controllers.py`. PreBind, Bind and PostBind of plugins that do not belong
to bayplan may write anywhere, so they are not run, and a warning names them (`Profiles`).

A run ends when every pod is bound, unschedulable or gated and nothing is in progress. Some pods never come to
rest: a group that cannot be completed is tried again and again. Then the run ends when no pod was bound or
evicted for `QUIET_SECONDS`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from bayplan.answers.sources.loaded import skip_reason
from bayplan.answers.sources.loading import extender_warnings
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif.controllers import Controllers, without_node
from bayplan.answers.whatif.outcomes import Outcome, Placement
from bayplan.answers.whatif.scaling import for_copy
from bayplan.answers.whatif.state import State
from bayplan.api.cluster_api import ClusterAPI, Event, EventSink
from bayplan.api.devices import DeviceClass
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.config import KubeSchedulerConfiguration
from bayplan.controllers.pods import is_recreated
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.default_binder import DefaultBinder
from bayplan.runtime.failure_log import FailureLog
from bayplan.runtime.profile import PointStep, Profile
from bayplan.scheduler.context import LoopSettings, SchedulerHandle
from bayplan.scheduler.core import SchedulingCore, queue_plugins
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.recorder import EventOutput
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.simulate.virtual_time import VirtualLoop, current_loop, run_virtual
from bayplan.state.cluster import Cluster as Columns
from bayplan.state.groups import group_key

_log = logging.getLogger(__name__)

GANG_SCHEDULING: Final = "GangScheduling"
"""Its Permit holds only members of groups."""
QUIET_SECONDS: Final = 300.0
"""Virtual time without a binding or an eviction after which a run ends."""
STEP_SECONDS: Final = 1.0
FOREVER: Final = 1e9

_WAITS: Final = "{plugins} did not allow the binding to {node}"
_SIBLING: Final = "another member of its group {group} may not be scheduled yet"
_NOT_TRIED: Final = "the run ended before the pod was tried"
_NOT_RUN: Final = "{point} of plugin {plugin} is not run: it may write outside of the cluster"

T = TypeVar("T")


class WhatIfHandle(SchedulerHandle):
    """A handle that knows whether a plugin waits for a timer."""

    def __init__(self, api: ClusterAPI, cluster: Columns, now: Callable[[], float], seed: int) -> None:
        super().__init__(api, cluster, now, seed)
        self.timers = 0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers += 1

        def call() -> None:
            self.timers -= 1
            callback()

        super().call_later(seconds, call)


class Profiles:
    """Makes scheduling cores for one configuration on one cluster."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        plugins: Sequence[type[Plugin]],
        columns: Columns,
        api: ClusterAPI,
        now: Callable[[], float],
    ) -> None:
        if config.bayplan.queues is not None:
            config.bayplan.queues.check_is_read()
        self._extenders = extender_warnings(config)
        self.config = replace(config, extenders=())
        self.given_plugins = tuple(plugins)
        self._plugins = tuple(dict.fromkeys((*BUILTIN_PLUGINS, *queue_plugins(config), *plugins)))
        self._columns, self._api, self._now = columns, api, now
        self.warnings: list[Warning] = []
        self.failures = FailureLog()
        """Where failing plugins are reported, whichever core runs them."""
        self._core = self._make()
        self._own = {
            plugin.name
            for framework in self._core.frameworks.values()
            for plugin in framework.profile.all_plugins()
            if type(plugin) not in BUILTIN_PLUGINS
        }
        self.keeps_state = bool(self._own)
        """Whether plugins may remember earlier pods: every run then gets new ones. Built-in ones do not."""

    def with_config(self, config: KubeSchedulerConfiguration, plugins: Sequence[type[Plugin]]) -> Profiles:
        """The same cluster with another configuration."""
        return Profiles(config, plugins, self._columns, self._api, self._now)

    def core(self, *, for_run: bool = False) -> SchedulingCore:
        """The core for single decisions, or for a run of the scheduler."""
        if for_run and self.keeps_state:
            self._core = self._make()
        return self._core

    def _make(self) -> SchedulingCore:
        handle = WhatIfHandle(self._api, self._columns, self._now, 0)
        core = SchedulingCore(
            self.config, cluster=self._columns, plugins=self._plugins, handle=handle, failures=self.failures
        )
        warnings: dict[Warning, None] = {}
        for framework in core.frameworks.values():
            profile = framework.profile
            profile.pre_binds = _ours(profile.pre_binds, Point.PRE_BIND, warnings)
            profile.post_binds = _ours(profile.post_binds, Point.POST_BIND, warnings)
            binder = DefaultBinder(None, handle)
            _ours(profile.binds, Point.BIND, warnings)
            profile.binds = (PointStep(binder.name, binder, binder, built_in=True),)
        self.warnings = [*self._extenders, *warnings]
        return core

    def has_failed(self, decision: Decision) -> bool:
        """Whether a plugin failed. A deliberate error of a built-in plugin is an answer about the pod."""
        status = decision.status
        is_error = not status.is_success and not status.is_rejection
        return is_error and (status.plugin in self._own or bool(decision.traceback))

    def is_plain(self, profile: Profile, pod: Pod) -> bool:
        """Whether a pod is bound as soon as a node is found: nothing is reserved or written before."""
        spec = pod.spec
        if self.keeps_state or spec.resource_claims or spec.scheduling_group is not None:
            return False
        if any(step.name != GANG_SCHEDULING for step in profile.permits):
            return False
        if any(pod.claim_name(volume) for volume in spec.volumes):
            return False
        return not any(one.spec.extended_resource_name for one in self._columns.objects.of(DeviceClass))


def _ours(
    steps: tuple[PointStep[Any], ...], point: Point, warnings: dict[Warning, None]
) -> tuple[PointStep[Any], ...]:
    kept = []
    for step in steps:
        if type(step.plugin).__module__.startswith("bayplan."):
            kept.append(step)
        else:
            text = _NOT_RUN.format(point=point, plugin=step.name)
            warnings[Warning(text, reason=Reason.NOT_RUN, object=step.name)] = None
    return tuple(kept)


class Clock:
    """Wall time of a what-if cluster. It passes during a run, and continues with the next one."""

    def __init__(self, now: float) -> None:
        self._start = now
        self._loop: VirtualLoop | None = None

    @property
    def now(self) -> float:
        return self._start if self._loop is None else self._loop.wall_time()

    @contextmanager
    def running(self, loop: VirtualLoop) -> Iterator[None]:
        """Follows the time of this loop."""
        self._loop = loop
        try:
            yield
        finally:
            self._start, self._loop = loop.wall_time(), None


class NoEvents(EventSink):
    """Events of a what-if run are dropped."""

    async def create_event(self, event: Event) -> None:
        return None

    async def patch_event(self, event: Event) -> None:
        return None


def run_in_virtual_time(main: Coroutine[Any, Any, T], start: float) -> T:
    """Runs a coroutine in virtual time, in a notebook too, whose own loop runs in this thread."""
    if not _loop_is_running():
        return run_virtual(main, start=start)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run_virtual, main, start=start).result()


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Run:
    """One run: these pods are pending, and the scheduler takes them."""

    def __init__(self, state: State, profiles: Profiles, controllers: Controllers, seed: int) -> None:
        self._state = state
        self._store = state.store
        self._profiles = profiles
        self._controllers = controllers
        self._seed = seed
        self._decisions: dict[str, Decision] = {}
        self._bindings: dict[str, BindingProgress] = {}
        self._victims_of: dict[str, tuple[str, ...]] = {}
        self._last_progress = 0.0
        self._bound_at: dict[str, float] = {}
        self._terminating = 0
        """Evicted pods whose grace period is not over."""
        self._evicted: dict[str, Pod] = {}
        """By uid, in the order in which they were evicted."""
        self._replacements: dict[str, Pod] = {}
        """By the uid of the evicted pod: the pod that was created in its place."""

    @property
    def evicted(self) -> tuple[str, ...]:
        return tuple(pod.key for pod in self._evicted.values())

    def run(self, pods: Sequence[Pod], clock: Clock) -> dict[str, Placement]:
        """Schedules the pods, and returns what became of them and of evicted ones, by key."""
        store, state = self._store, self._state
        store.kubelet = self._terminate
        state.reactions.append(self._watch_evictions)
        try:
            return run_in_virtual_time(self._timed(pods, clock), clock.now)
        finally:
            state.reactions.remove(self._watch_evictions)
            if state.columns.groups is not None:
                state.columns.groups.forget_pending()
            store.kubelet = None
            store.wake = _nothing
            state.handlers = {}
            state.deliver()

    async def _timed(self, pods: Sequence[Pod], clock: Clock) -> dict[str, Placement]:
        with clock.running(current_loop()):
            return await self._main(pods)

    async def _main(self, pods: Sequence[Pod]) -> dict[str, Placement]:
        loop = current_loop()
        core = self._profiles.core(for_run=True)
        handle = core.handle
        assert isinstance(handle, WhatIfHandle)
        handle.random = random.Random(self._seed)
        handle.timers = 0
        scheduler = Scheduler(
            MemoryCluster(self._store),
            self._profiles.config,
            core=core,
            lister=self._store.pods,
            settings=LoopSettings(seed=self._seed, max_in_unschedulable=FOREVER),
            observers=Observers(decided=self._decided, progressed=self._bound),
            events=EventOutput(NoEvents()),
        )
        self._state.handlers = scheduler.handlers
        is_due = False

        def deliver() -> None:
            nonlocal is_due
            is_due = False
            self._state.deliver()

        def wake() -> None:
            nonlocal is_due
            if not is_due:
                is_due = True
                loop.call_soon(deliver)

        self._store.wake = wake
        running = asyncio.ensure_future(scheduler.schedule())
        try:
            for pod in pods:
                self._state.columns.remove_nomination(pod.uid)
                scheduler.handlers[Pod].added(pod)
            await self._until_quiet(scheduler, handle, running)
            placements = self._placements(scheduler, core, pods)
            await self._end(scheduler, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await scheduler.close()
        return placements

    async def _until_quiet(
        self, scheduler: Scheduler, handle: WhatIfHandle, running: asyncio.Future[None]
    ) -> None:
        loop, context = current_loop(), scheduler.context
        while True:
            await loop.quiescent()
            if running.done():
                running.result()
            counts = context.queue.counts()
            in_progress = (
                len(context.tasks) or counts.active or counts.backoff or handle.timers or self._terminating
            )
            if not in_progress or loop.time() - self._last_progress > QUIET_SECONDS:
                return
            await asyncio.sleep(STEP_SECONDS)

    async def _end(self, scheduler: Scheduler, running: asyncio.Future[None]) -> None:
        """Pods that still wait at Permit release their nodes."""
        loop, context = current_loop(), scheduler.context
        scheduler.stop()
        await running
        for waiting in context.waiting:
            waiting.reject("", "the run ended")
        await loop.quiescent()
        for pod in context.cache.assumed_pods():
            self._state.columns.remove_pod(pod.uid)
        for pod in context.queue.pending_pods():
            latest = self._store.find(Pod, pod.name, pod.namespace)
            if latest is not None and not latest.spec.node_name:
                self._state.direct.set_nomination(latest)

    # What happens

    def _decided(self, decision: Decision) -> None:
        if self._profiles.has_failed(decision) and not decision.traceback:
            # The scheduler itself reports exceptions.
            self._profiles.failures.log(_log, f"pod {decision.pod.key}: {decision.message}")
        self._decisions[decision.pod.key] = decision
        self._bindings.pop(decision.pod.key, None)
        answer = decision.post_filter
        if answer is not None and answer.eviction is not None:
            self._victims_of[decision.pod.key] = tuple(one.key for one in answer.eviction.victims)

    def _bound(self, progress: BindingProgress) -> None:
        self._bindings[progress.pod.key] = progress
        if progress.step is BindingStep.BOUND:
            self._last_progress = self._bound_at[progress.pod.key] = current_loop().time()

    def _terminate(self, store: MemoryStore, pod: Pod, grace_period_seconds: int) -> None:
        self._terminating += 1
        end_after_grace_period(store, pod, grace_period_seconds)

    def _watch_evictions(self, old: Object | None, new: Object | None) -> None:
        """A pod begins to terminate, or is deleted."""
        if not isinstance(old, Pod) or not old.spec.node_name:
            return
        is_gone = new is None
        if is_gone and old.is_terminating and self._terminating:
            self._terminating -= 1
        if not is_gone and not (isinstance(new, Pod) and new.is_terminating):
            return
        if old.uid not in self._evicted:
            self._last_progress = current_loop().time()
            self._evicted[old.uid] = old
            self._controllers.count_eviction(old)
        owner = old.metadata.controller()
        keeps_name = owner is not None and owner.kind == "StatefulSet"
        if is_recreated(old) and old.uid not in self._replacements and (is_gone or not keeps_name):
            again = without_node(old, self._store)
            if not keeps_name:
                assert owner is not None
                meta = replace(again.metadata, name="", generate_name=f"{owner.name}-")
                again = replace(again, metadata=meta)
            created = self._replacements[old.uid] = self._store.create(again)
            if created.name != old.name:
                for claim in for_copy(old, created.name, self._store.find_claim)[1]:
                    self._store.create(claim)

    # Results

    def _placements(
        self, scheduler: Scheduler, core: SchedulingCore, pods: Sequence[Pod]
    ) -> dict[str, Placement]:
        found = {pod.key: self._placement(scheduler, core, pod) for pod in pods}
        for uid, victim in self._evicted.items():
            again = self._replacements.get(uid)
            if again is None:
                if victim.key not in found:
                    found[victim.key] = Placement(
                        victim.key, Outcome.NOT_RECREATED, "", victim.spec.node_name, "preempted"
                    )
            else:
                placed = self._placement(scheduler, core, again)
                found[again.key] = dataclasses.replace(placed, was_on=victim.spec.node_name)
        return found

    def _placement(self, scheduler: Scheduler, core: SchedulingCore, pod: Pod) -> Placement:
        key = pod.key
        victims = self._victims_of.get(key, ())
        latest = self._store.find(Pod, pod.name, pod.namespace)
        if latest is not None and latest.uid == pod.uid and latest.spec.node_name:
            waited = self._bound_at.get(key, 0.0)
            node = latest.spec.node_name
            return Placement(key, Outcome.SCHEDULED, node, evicted=victims, waited_seconds=waited)
        waiting = scheduler.context.waiting.get(pod.uid)
        if waiting is not None:
            names = ", ".join(waiting.pending_plugins)
            return Placement(
                key, Outcome.WAITING, reason=_WAITS.format(plugins=names, node=waiting.node_name)
            )
        queued = scheduler.context.queue.find(key)
        if queued is not None and queued.gating_plugin:
            return Placement(key, Outcome.GATED, reason=skip_reason(pod, core))
        if queued is not None and (why := _gated_group(scheduler, queued)):
            return Placement(key, Outcome.GATED, reason=why)
        progress = self._bindings.get(key)
        if progress is not None and progress.step in (BindingStep.REJECTED, BindingStep.FAILED):
            outcome = Outcome.UNSCHEDULABLE if progress.step is BindingStep.REJECTED else Outcome.FAILED
            names = ", ".join(progress.plugins)
            return Placement(key, outcome, reason=f"{progress.point} {names}: {progress.reason}".strip())
        quota = ""
        if scheduler.queues is not None and queued is not None:
            quota = scheduler.queues.reason(pod, scheduler.context.queue.entity(queued))
        if quota:
            return Placement(key, Outcome.GATED, reason=quota)
        decision = self._decisions.get(key)
        if decision is None:
            return Placement(key, Outcome.FAILED, reason=_NOT_TRIED)
        outcome = Outcome.UNSCHEDULABLE if decision.status.is_rejection else Outcome.FAILED
        return Placement(key, outcome, reason=decision.message, evicted=victims)


def _gated_group(scheduler: Scheduler, info: QueuedPod) -> str:
    """Why the group of a member is not tried; empty if it is, or the pod is in none."""
    group, states = group_key(info.pod), scheduler.core.cluster.groups
    if group is None or states is None:
        return ""
    entity = scheduler.context.queue.entity(info)
    is_gated = isinstance(entity, QueuedGroup) and entity.gating_plugin
    return states.why_incomplete(group) or (_SIBLING.format(group=group) if is_gated else "")


def _nothing() -> None:
    return None
