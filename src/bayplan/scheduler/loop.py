"""The scheduler: events in, bindings out, on one asyncio loop.

Informers keep cache and queue up to date; the loop pops the next pod, decides, and starts its binding cycle.
There are no locks: whatever changes the columns runs between two cycles. While a cycle waits for an extender,
changes are deferred.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.devices import ResourceClaim
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.client.informer import Handler, Informer
from bayplan.config import KubeSchedulerConfiguration, default_config
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.status import describe
from bayplan.metrics import NULL_METRICS, Metrics
from bayplan.metrics.scheduler import QUEUES
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.search import ResultT, Steps, run_through
from bayplan.scheduler.binding import Bindings, make_attempt
from bayplan.scheduler.claim_binder import ClusterClaimBinder
from bayplan.scheduler.context import (
    DEFAULT_SETTINGS,
    Context,
    LatestPods,
    LoopSettings,
    PodLister,
    SchedulerHandle,
    wall_clock,
)
from bayplan.scheduler.core import SchedulingCore, make_extenders, queue_plugins
from bayplan.scheduler.cycle import Decision, decide, error_decision, scheduling_cycle
from bayplan.scheduler.deferrals import Deferrals
from bayplan.scheduler.failure import Evictions, Failures
from bayplan.scheduler.group_dialects import MemberLister
from bayplan.scheduler.group_scheduling import GroupScheduling
from bayplan.scheduler.handlers import ClaimHandler
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.observing import QueueMetrics, Watchdog, observe_profiles
from bayplan.scheduler.recorder import THROUGH_CLUSTER, EventOutput, EventRecorder
from bayplan.scheduler.tasks import Tasks, cancel_all, first_to_end
from bayplan.scheduler.volume_binder import ClusterVolumeBinder
from bayplan.scheduler.watched import make_handlers, make_informers
from bayplan.scheduling_queue.object_events import QUEUES_CHANGED
from bayplan.scheduling_queue.queue import SchedulingQueue
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.scheduling_queue.waiting import QueueSettings
from bayplan.state.cache import Cache
from bayplan.state.cluster import Cluster

MAX_SECONDS_BETWEEN_YIELDS: Final = 0.02
"""After this time the loop yields to other tasks, even after a few pods: some plugins are slow."""

SECONDS_BEFORE_REST: Final = 0.2
"""After so long an attempt the loop yields for `REST_SECONDS`: a probe takes other tasks several turns."""

REST_SECONDS: Final = 0.05

PODS_BETWEEN_YIELDS: Final = 64
"""After this number of pods the loop yields, so that bindings and watches run for as many pods.

Switching between tasks costs as much as scheduling several pods, because of the processor's caches."""

if TYPE_CHECKING:
    from bayplan.extender.chain import ExtenderChain
    from bayplan.queues.active import CapacityQueues
    from bayplan.scheduling_queue.nominations import NominatedPods

_log = logging.getLogger(__name__)


class Scheduler:
    """Schedules the pods of its profiles, until it is stopped.

    Args:
        api: the cluster.
        config: profiles, extenders, backoffs; None: the default configuration.
        plugins: plugins besides the built-in ones; they are enabled unless the configuration names them.
        metrics: called with everything that is measured.
        settings: how it runs.
        observers: what is called with each decision and its progress.
        kinds: further kinds of objects to watch, besides those that plugins declare.
        events: where and how events are written.
        extenders: used in place of those of the configuration.
        release: the release of Kubernetes to decide as, if no configuration is given: it has its own.
        core: its cluster and profiles are used, and its handle is connected to this scheduler.
        lister: finds pods in place of an informer. There are then no informers: the caller passes every
            change to `handlers`.
    """

    def __init__(
        self,
        api: ClusterAPI,
        config: KubeSchedulerConfiguration | None = None,
        *,
        plugins: Iterable[type[Plugin]] = (),
        metrics: Metrics = NULL_METRICS,
        settings: LoopSettings = DEFAULT_SETTINGS,
        observers: Observers | None = None,
        kinds: Sequence[type[Object]] = (),
        events: EventOutput = THROUGH_CLUSTER,
        extenders: ExtenderChain | None = None,
        release: Release = DEFAULT_RELEASE,
        core: SchedulingCore | None = None,
        lister: PodLister | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.config = config = default_config(release=release) if config is None else config
        self.metrics = metrics
        now = wall_clock(loop)
        self.core = core = _make_core(api, config, plugins, now, settings) if core is None else core
        self._frameworks = core.frameworks
        self._extenders = make_extenders(config, core.cluster) if extenders is None else extenders
        self._work = asyncio.Event()
        """Wakes the loop: a pod may be ready, or a timer may have to be set earlier."""
        self._alarm_at = inf
        """When the loop wakes up without an event."""
        self._stopped = False
        self.watchdog = Watchdog(config.bayplan.slow_cycle_threshold.seconds)
        """A context manager that logs cycles that take too long."""
        self._deferrals = Deferrals()
        self.queues: CapacityQueues | None = None
        """The capacity queues, if there are any."""
        pod_cache = Cache(core.cluster)
        self.nominated: NominatedPods = core.cluster
        """The columns that nominations change."""
        if config.bayplan.queues is not None:
            from bayplan.scheduler.capacity import connect_queues

            self.queues, pod_cache, self.nominated = connect_queues(config.bayplan.queues, core, api)
        latest = LatestPods()
        self.context = Context(
            api=api,
            loop=loop,
            now=now,
            cluster=core.cluster,
            cache=pod_cache,
            queue=self._make_queue(now, latest, settings.max_in_unschedulable),
            pods=latest,
            recorder=EventRecorder(
                api.events() if events.sink is None else events.sink,
                hostname=events.hostname or socket.gethostname(),
                wall_time=now,
                rng=random.Random(settings.seed + 1),
                collect_seconds=events.collect_seconds,
            ),
            metrics=metrics,
            stopwatch=time.perf_counter if metrics.enabled else lambda: 0.0,
            tasks=Tasks(loop, eager=settings.eager),
            between_cycles=self._deferrals.run,
            wake=self._work.set,
            rng=random.Random(settings.seed + 2),
            failures=core.failures,
            observers=Observers() if observers is None else observers,
        )
        self._failures = Failures(self.context)
        self._evictions = Evictions(self.context, self._plugins(), firm_nominations=self.queues is not None)
        self._bindings = Bindings(self.context, self._failures, self._extenders or None)
        if self.queues is not None:
            from bayplan.scheduler.queue_preemption import QueuePreemption

            self.queues.check = QueuePreemption(
                self.queues, core, self.context, self._failures, self._evictions
            ).check
            self.queues.on_invalid_task_groups = self.context.recorder.invalid_task_groups
        parts = (self._failures, self._bindings, self._evictions, self._run_group_cycle)
        self._groups = GroupScheduling(self.context, self._frameworks, *parts)
        self.handlers = self._connect(kinds)
        """The event handler of each watched kind."""
        self.pods: Informer[Pod]
        """The informer of pods; not set if a lister is used."""
        self.informers: tuple[Informer[Any], ...] = ()
        if lister is None:
            informers = make_informers(self.context, self.handlers)
            self.informers = tuple(informers.values())
            lister = self.pods = informers[Pod]
        latest.lister = lister
        if self.context.dialects:
            latest.lister = MemberLister(lister, [groups.dialect for groups in self.context.dialects])
        self._declare_metrics()

    # Set-up

    def _make_queue(
        self, now: Callable[[], float], pods: LatestPods, max_in_unschedulable: float
    ) -> SchedulingQueue:
        config, metrics = self.config, self.metrics
        return SchedulingQueue(
            [framework.profile for framework in self._frameworks.values()],
            now=now,
            columns=self.nominated,
            pod_lister=pods.latest,
            extenders=bool(self._extenders),
            settings=QueueSettings(
                initial_backoff=float(config.pod_initial_backoff_seconds),
                max_backoff=float(config.pod_max_backoff_seconds),
                max_in_unschedulable=max_in_unschedulable,
                pop_from_backoff="SchedulerPopFromBackoffQ" in config.gates,
            ),
            observer=QueueMetrics(metrics, time.perf_counter) if metrics.enabled else None,
            release=config.release,
            active=self.queues,
            groups=self.core.cluster.groups,
        )

    def _connect(self, kinds: Sequence[type[Object]]) -> dict[type[Object], Handler[Any]]:
        """Connects plugins and extenders to the parts. Returns the event handlers."""
        context, handle = self.context, self.core.handle
        assert isinstance(handle, SchedulerHandle), "the plugins of this core cannot act"
        if self._extenders:
            from bayplan.extender.steps import CycleExtenders

            needs_all = self._extenders.filters_or_prioritizes
            for framework in self._frameworks.values():
                framework.extenders = CycleExtenders(framework, context.rng, needs_all_feasible=needs_all)
        claims = ClaimHandler(context, KINDS.of(ResourceClaim).event, self._queue_changed)
        handle.connect(context, ClusterVolumeBinder(context), ClusterClaimBinder(context, claims))
        of_plugins = (record for plugin in self._plugins() for record in plugin.kinds)
        made = make_handlers(
            context,
            self.config.release,
            self._frameworks.keys(),
            (*kinds, *of_plugins),
            claims,
            self._deferrals if self._extenders else None,
            self._queue_changed,
            self.config.bayplan.pod_groups,
            task_groups=self.queues is not None,
        )
        if self.queues is not None:
            from bayplan.scheduler.capacity import follow_objects

            follow_objects(made, self.queues, context)
        return made

    def _plugins(self) -> Iterator[Plugin]:
        for framework in self._frameworks.values():
            yield from framework.profile.all_plugins()

    def _declare_metrics(self) -> None:
        context, metrics = self.context, self.metrics
        observe_profiles(self._frameworks.values(), metrics)
        queues = (*QUEUES, *self.config.release.queue.group_queues)
        metrics.pending_pods_from(lambda: {name: getattr(context.queue.counts(), name) for name in queues})
        metrics.queued_entities_from(context.queue.entity_counts)
        if self.queues is not None:
            metrics.capacity_queues_from(self.queues.gauges)
        metrics.inflight_events_from(context.queue.in_flight_counts)
        metrics.running_from(
            lambda: {
                "binding": self._bindings.under_way,
                str(Point.PRE_BIND): len(context.pre_binding),
                "prioritizing_extender": self._extenders.prioritizing if self._extenders else 0,
            }
        )
        metrics.unreadable_objects_from(
            lambda: {informer.kind.__name__: len(informer.unreadable) for informer in self.informers}
        )
        metrics.cache_size_from(context.cache.sizes)

    # Running

    async def run(self) -> None:
        """Watches the cluster and schedules, until it is cancelled or `stop` is called.

        Unrecoverable errors are raised; failing requests and plugins are not among them. To do something in
        between (wait for a lease, let bindings finish), call the parts: `watch`, `synced`, `schedule`,
        `drain_bindings` and `close`.
        """
        parts = (asyncio.ensure_future(self.watch()), asyncio.ensure_future(self.schedule()))
        try:
            # A scheduler that no longer receives changes must not continue.
            await first_to_end(parts)
        finally:
            await cancel_all(parts)
            await self.close()

    async def watch(self) -> None:
        """Watches the cluster until it is cancelled; raises the error of an informer that fails."""
        watching = [asyncio.ensure_future(informer.run()) for informer in self.informers]
        if self.queues is not None and (follow := self.queues.follow_file) is not None:
            watching.append(asyncio.ensure_future(follow(self._queues_reloaded)))
        try:
            await first_to_end(watching)
        finally:
            await cancel_all(watching)

    def _queues_reloaded(self) -> None:
        """Their pods may be entitled to more than when no node was found for them."""
        self.context.queue.move_to_active_or_backoff(QUEUES_CHANGED)
        self._work.set()

    async def synced(self) -> None:
        """Waits until all informers have synced."""
        for informer in self.informers:
            await informer.synced.wait()
        if self.queues is not None and self.queues.loaded is not None:
            await self.queues.loaded.wait()

    def stop(self) -> None:
        """Ends `schedule` after the current attempt."""
        self._stopped = True
        self._work.set()

    async def drain_bindings(self, seconds: float) -> bool:
        """Waits for bindings in progress and their events. False if that takes longer than `seconds`.

        It does not wait for pods that wait at Permit: nothing would allow them any more.
        """
        context = self.context
        try:
            async with asyncio.timeout(seconds):
                await context.tasks.drain(leaving=lambda: len(context.waiting))
                await context.recorder.drain()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Cancels everything that is in progress."""
        await self.context.tasks.cancel()
        self.context.recorder.close()
        if self._extenders is not None:
            await self._extenders.close()

    async def schedule(self) -> None:
        """Schedules one pod after the other, once everything has synced, until `stop`."""
        context = self.context
        await self.synced()
        while not self._stopped:
            started = context.loop.time()
            if await self._schedule_some():
                took = context.loop.time() - started
                await asyncio.sleep(REST_SECONDS if took > SECONDS_BEFORE_REST else 0)
                continue
            self._work.clear()
            alarm = None
            if self._alarm_at < inf:
                alarm = context.loop.call_later(max(self._alarm_at - context.now(), 0.0), self._work.set)
            try:
                await self._work.wait()
            finally:
                self._alarm_at = inf
                if alarm is not None:
                    alarm.cancel()
        context.tasks.run_deferred()

    async def _schedule_some(self) -> bool:
        """Schedules pods until other tasks should run. False if no pod is left; the alarm is then set."""
        context, is_empty, in_a_row = self.context, False, 0
        now = context.loop.time()
        yield_at = now + MAX_SECONDS_BETWEEN_YIELDS
        while in_a_row < PODS_BETWEEN_YIELDS and now < yield_at and not self._stopped:
            timer = context.queue.next_timer()
            if timer is not None and timer <= context.now():
                context.queue.flush()
                timer = context.queue.next_timer()
            info = context.queue.pop()
            if info is not None:
                if isinstance(info, QueuedPod):
                    await self._schedule_one(info, now)
                else:
                    await self._groups.schedule(info, now)
                in_a_row += 1
            elif context.tasks.deferred:
                # A binding may fail, and its pod be ready again.
                context.tasks.run_deferred()
            else:
                # Capacity queues count a changed object as something to pop, until now.
                timer = context.queue.next_timer()
                is_empty, self._alarm_at = True, inf if timer is None else timer
                break
            now = context.loop.time()
        if context.tasks.deferred:
            context.tasks.run_deferred()
        if self.queues is not None:
            if self.queues.notices:
                notices, keeps = self.queues.take_notices(), self.queues.waits_with_nomination
                self._failures.wait_for_quota(notices, keeps_nominations=keeps)
                self._groups.wait_for_quota(notice for _, notice in notices)
            if self.queues.admit_groups is not None:
                self.queues.admit_groups()
            self.queues.check()
        if context.metrics.enabled:
            context.metrics.flush()
        return not is_empty

    def _queue_changed(self) -> None:
        """Wakes the loop if it would find something in the queue.

        Most events change nothing there, such as the event of a pod that was just bound.
        """
        if self._work.is_set():
            return
        queue = self.context.queue
        if queue.has_ready:
            self._work.set()
            return
        timer = queue.next_timer()
        if timer is not None and timer < self._alarm_at:
            self._work.set()

    async def _schedule_one(self, info: QueuedPod, started: float) -> None:
        context, pod = self.context, info.pod
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            _log.error("pod %s: no profile is named %r", pod.key, pod.spec.scheduler_name)
            context.queue.done(pod.uid)
            return
        if pod.metadata.deletion_timestamp is not None:
            context.recorder.skipped_deleting(pod, info.profile)
            context.queue.done(pod.uid)
            return
        if pod.metadata.uid in context.cache.assumed:
            context.queue.done(pod.uid)
            return
        if context.observers.popped is not None:
            context.observers.popped(info)
        self.watchdog.pod = pod
        try:
            if self._extenders:
                decision = await self._run_cycle(scheduling_cycle(framework, pod), pod, self._extenders)
            else:
                known = None if self.queues is None else self.queues.info_of(pod)
                decision = decide(framework, pod, known)
        except Exception as error:
            _log.exception("scheduling pod %s failed", pod.key)
            decision = error_decision(pod, describe(error))
        self.watchdog.pod = None
        if decision.traceback:
            context.failures.log(_log, f"pod {pod.key}: {decision.message}", decision.traceback)
        if context.metrics.enabled:
            context.metrics.algorithm(context.loop.time() - started)
        if context.observers.decided is not None:
            context.observers.decided(decision)
        if decision.found is not None:
            self._bindings.commit(make_attempt(framework, decision.found, info, started))
        else:
            self._failed(info, decision, started)

    async def _run_cycle(self, cycle: Steps[ResultT], pod: Pod, extenders: ExtenderChain) -> ResultT:
        """Runs a scheduling cycle that awaits the responses of extenders."""
        self.context.tasks.run_deferred()
        self._deferrals.pause()
        try:
            request = next(cycle)
            while True:
                self.watchdog.pod = None
                answer = await extenders.answer(request)
                self.watchdog.pod = pod
                request = cycle.send(answer)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        finally:
            self._deferrals.resume()

    async def _run_group_cycle(self, cycle: Steps[ResultT], pod: Pod) -> ResultT:
        """Runs the cycle of a group; `pod` is one of its members."""
        self.watchdog.pod = pod
        try:
            if self._extenders:
                return await self._run_cycle(cycle, pod, self._extenders)
            return run_through(cycle)
        finally:
            self.watchdog.pod = None

    def _failed(self, info: QueuedPod, decision: Decision, started: float) -> None:
        context, pod = self.context, decision.pod
        context.tasks.run_deferred()
        if context.metrics.enabled:
            result = "unschedulable" if decision.status.is_rejection else "error"
            context.metrics.attempt(result, info.profile, context.loop.time() - started)
        answer = decision.post_filter
        if answer is not None and answer.eviction is not None:
            self._evictions.start(pod, answer.eviction, answer.status.plugin)
        self._failures.handle(
            info,
            pod,
            decision.status,
            decision.message,
            decision.nomination,
            decision.diagnosis,
            is_cut_off=decision.is_cut_off,
        )


def _make_core(
    api: ClusterAPI,
    config: KubeSchedulerConfiguration,
    plugins: Iterable[type[Plugin]],
    now: Callable[[], float],
    settings: LoopSettings,
) -> SchedulingCore:
    cluster = Cluster(config.release)
    handle = SchedulerHandle(api, cluster, now, settings.seed, settings.search_clock)
    every = (*BUILTIN_PLUGINS, *queue_plugins(config), *plugins)
    return SchedulingCore(config, cluster=cluster, cache=settings.cache, plugins=every, handle=handle)
