"""The life of a scheduler as a process.

    bind the port ─► watch the cluster ─► all synced ─► lead ─► schedule ─┐
                       (delayCacheUntilActive: lead first)                │ signal
    server ends ◄─── lease released ◄─── events written ◄─ bindings end ◄─┘

The endpoints are served from the moment when all informers have synced, or a second after the start: what
they need takes as long to import and to prepare as the cluster to read, and the first binding does not wait
for it. Connections that are opened before are answered then. If flags name certificates or kubeconfigs for
them, the endpoints are served first: an invalid file ends the process before it schedules anything.

The background tasks (watching, holding the lease, scheduling) never end by themselves: if one fails, the
process ends. A lost lease is such a failure; the process then ends at once, because another process may
already be scheduling.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from bayplan import __version__
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.http import KubernetesCluster
from bayplan.client.informer import Informer
from bayplan.client.leader_election import LeaderElection, lease_client, make_identity
from bayplan.client.requests import Connections
from bayplan.dra.budget import ElapsedTime
from bayplan.errors import BayplanError
from bayplan.garbage import leave_out_old_objects
from bayplan.metrics import NULL_METRICS, SchedulerMetrics
from bayplan.metrics.process_families import LEADER
from bayplan.process.logs import log, verbosity
from bayplan.process.serving.settings import listen, reads_files, serving_settings
from bayplan.process.settings import Settings
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observer, observed_by
from bayplan.scheduler.queue_position import queue_position
from bayplan.scheduler.recorder import EventOutput
from bayplan.scheduler.tasks import cancel_all, first_to_end
from bayplan.state.nodes import CPU, MEMORY

if TYPE_CHECKING:
    from bayplan.process.endpoints import Endpoints
    from bayplan.process.recording import SchedulerRecording
    from bayplan.process.tracing import Tracing


DRAIN_SECONDS: Final = 5.0
"""Time for bindings in progress and their events when the process stops. Less than a lease, and than the 30 s
after which Kubernetes kills a pod."""
COLLECT_EVENTS_SECONDS: Final = 0.5
"""Events that follow each other faster are written together."""
PATIENCE_SECONDS: Final = 10.0
"""Interval of log messages about what has not synced yet."""
MAX_SERVING_DELAY_SECONDS: Final = 1.0
"""After this time endpoints are served even if not all informers have synced."""

_log = logging.getLogger(__name__)


class FinishedError(BayplanError):
    """The process has ended without success."""


class _StoppedError(Exception):
    """A signal arrived: interrupts the current wait."""


class Companion(Protocol):
    """What runs beside the scheduler while it leads (`deschedule/companion.py`)."""

    kinds: ClassVar[tuple[type[Object], ...]]
    """Kinds that the scheduler has to watch besides its own."""

    async def run(
        self,
        settings: Settings,
        scheduler: Scheduler,
        cluster: KubernetesCluster,
        may_write: Callable[[], bool],
    ) -> None:
        """Runs until it is cancelled."""


class Process:
    """One run of a scheduler, from its settings to its end."""

    def __init__(self, settings: Settings, companion: Companion | None = None) -> None:
        self._settings = settings
        self._companion = companion
        self._stopped = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._scheduling: asyncio.Task[None] | None = None
        self._beside: asyncio.Task[None] | None = None
        self._serving: list[asyncio.Task[None]] = []
        self._synced = asyncio.Event()
        self._served = asyncio.Event()
        self._metrics = SchedulerMetrics(
            release=settings.config.release,
            show_hidden=bool(settings.flags["show-hidden-metrics-for-version"]),
        )
        self._tracing = self._make_tracing()
        self._recording = self._make_recording()

    async def run(self) -> None:
        """Runs until a signal arrives.

        Raises:
            BayplanError: it cannot start or continue; or it was stopped without leader election, which
                kube-scheduler treats as a failure.
        """
        self._listen_for_signals()
        version = f"v{self._settings.config.release.patch_version}"
        log(
            _log,
            logging.INFO,
            "Starting Kubernetes Scheduler",
            version=version,
            bayplan=__version__,
            emulated=self._settings.config.release.version,
        )
        connections = Connections(self._settings.access, metrics=self._metrics.families)
        election = self._make_election(connections)
        cluster = self._make_cluster(connections, election)
        async with cluster:
            scheduler = self._make_scheduler(cluster)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, log_all, scheduler)
            with scheduler.watchdog:
                try:
                    if self._settings.serves:
                        sockets = await listen(serving_settings(self._settings.flags))
                        serving = self._serve(scheduler, election, sockets)
                        self._serving.append(asyncio.ensure_future(serving))
                    await self._run_until_stopped(scheduler, election, cluster)
                finally:
                    await cancel_all(self._serving)
        if election is None:
            raise FinishedError("finished without leader elect")
        log(_log, logging.INFO, "Requested to terminate, exiting")

    async def _run_until_stopped(
        self, scheduler: Scheduler, election: LeaderElection | None, cluster: KubernetesCluster
    ) -> None:
        """Runs until stopped; returns when everything has ended."""
        try:
            await self._work(scheduler, election, cluster)
        except _StoppedError:
            log(_log, logging.INFO, "Received a signal to stop, finishing the bindings in progress")
            await self._finish(scheduler, election)
        finally:
            await scheduler.close()
            await cancel_all(self._background)
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)
            if self._recording is not None:
                self._recording.close()

    # The parts

    def _make_election(self, connections: Connections) -> LeaderElection | None:
        config = self._settings.config
        election = self._settings.election()
        if election is None:
            return None
        leases = lease_client(connections, election)
        return LeaderElection(
            leases,
            election,
            make_identity(),
            component=config.profiles[0].scheduler_name,
            events=leases.events(),
            # As upstream: the name of the component, not of the lease.
            status=self._metrics.families[LEADER][("kube-scheduler",)],
        )

    def _make_cluster(self, connections: Connections, election: LeaderElection | None) -> KubernetesCluster:
        limits = self._settings.config.client_connection
        may_write = None if election is None else election.may_write
        return KubernetesCluster(connections, qps=limits.qps, burst=limits.burst, may_write=may_write)

    def _make_scheduler(self, cluster: KubernetesCluster) -> Scheduler:
        settings, limits = self._settings, self._settings.config.client_connection
        tracing, recording = self._tracing, self._recording
        observers: list[Observer] = [] if tracing is None else [tracing]
        if recording is not None:
            observers.append(recording.history)
        scheduler = Scheduler(
            cluster,
            settings.for_scheduler,
            plugins=settings.plugins,
            metrics=self._metrics if settings.serves else NULL_METRICS,
            settings=LoopSettings(
                # A coroutine over HTTP must be a task: it enters time-outs (see tasks.py).
                eager=False,
                max_in_unschedulable=settings.flags["pod-max-in-unschedulable-pods-duration"].seconds,
                search_clock=ElapsedTime(asyncio.get_running_loop().time),
            ),
            observers=observed_by(observers),
            events=EventOutput(
                cluster.events(qps=limits.qps, burst=limits.burst), collect_seconds=COLLECT_EVENTS_SECONDS
            ),
            kinds=() if self._companion is None else self._companion.kinds,
        )
        if tracing is not None:
            tracing.observe(scheduler)
        if recording is not None:
            recording.observe(scheduler)
        return scheduler

    def _make_tracing(self) -> Tracing | None:
        path = self._settings.flags["tracing-config-file"]
        if not path:
            return None
        # Imported here: few configurations have tracing.
        from bayplan.process.tracing import make_tracing

        return make_tracing(path)

    def _make_recording(self) -> SchedulerRecording | None:
        path = self._settings.flags["record"]
        if not path:
            return None
        from bayplan.process.recording import SchedulerRecording

        return SchedulerRecording(Path(path), self._settings.config.release.version, time.time)

    def _make_endpoints(
        self, scheduler: Scheduler, election: LeaderElection | None, sockets: Sequence[socket.socket]
    ) -> Endpoints:
        from bayplan.process.endpoints import Endpoints, ServedContent

        def pods() -> list[Pod]:
            leads = self._scheduling is not None and (election is None or election.is_leader)
            return scheduler.pods.all() if leads else []

        return Endpoints(
            self._settings,
            ServedContent(
                metrics=self._metrics,
                pods=pods,
                synced=self._synced.is_set,
                stopping=self._stopped.is_set,
                election_problem=None if election is None else election.why_unhealthy,
                queue=lambda key: queue_position(scheduler.context, key),
            ),
            sockets,
        )

    async def _serve(
        self, scheduler: Scheduler, election: LeaderElection | None, sockets: Sequence[socket.socket]
    ) -> None:
        """Serves until it is cancelled."""
        if not reads_files(self._settings.flags):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._synced.wait(), MAX_SERVING_DELAY_SECONDS)
        # In a thread: the first pods need not wait for the imports.
        async with await asyncio.to_thread(self._make_endpoints, scheduler, election, sockets):
            leave_out_old_objects()  # as in `_sync`
            self._served.set()
            await asyncio.Event().wait()

    # The stages

    async def _work(
        self, scheduler: Scheduler, election: LeaderElection | None, cluster: KubernetesCluster
    ) -> None:
        """Raises _StoppedError in the end, or the error of a background task."""
        if election is not None and self._settings.config.delay_cache_until_active:
            await self._lead(election)
            log(_log, logging.INFO, "Starting informers and waiting for sync...")
            await self._sync(scheduler)
            log(_log, logging.INFO, "Sync completed")
        else:
            await self._sync(scheduler)
            if election is not None:
                await self._lead(election)
        if self._serving and reads_files(self._settings.flags):
            await self._before_stop(self._served.wait())
        self._scheduling = self._start(scheduler.schedule())
        if self._companion is not None:
            may_write = election.may_write if election is not None else lambda: True
            self._beside = self._start(self._companion.run(self._settings, scheduler, cluster, may_write))
        await self._before_stop(asyncio.Event().wait())

    async def _sync(self, scheduler: Scheduler) -> None:
        self._start(scheduler.watch())
        await self._before_stop(_synced(scheduler.informers))
        self._synced.set()
        if self._recording is not None:
            self._start(self._recording.run())
        # Most objects that exist now stay, so the garbage collector need not visit them again. It does not
        # run first: that would delay the first binding, and there is less than a megabyte of garbage.
        leave_out_old_objects()
        log(_log, verbosity(3), "Handlers synced")

    async def _lead(self, election: LeaderElection) -> None:
        await self._before_stop(election.acquire())
        self._start(election.hold())

    async def _finish(self, scheduler: Scheduler, election: LeaderElection | None) -> None:
        """Starts no new attempts, waits for those in progress, and releases the lease.

        A decision that waits for an extender is dropped: it has had no effect yet.
        """
        if self._beside is not None:
            await cancel_all([self._beside])
        if self._scheduling is not None:
            await cancel_all([self._scheduling])
            if not await scheduler.drain_bindings(DRAIN_SECONDS):
                log(_log, logging.WARNING, "Some bindings or events were not finished in time")
        if election is not None:
            await cancel_all(self._background)
            await election.release()

    # Background tasks and signals

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.append(task)
        return task

    async def _before_stop(self, work: Coroutine[Any, Any, object]) -> None:
        """Waits for the work. Raises _StoppedError, or the error of a background task."""
        waiting = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stopped.wait())
        try:
            await first_to_end([waiting, *self._background, *self._serving, stop])
            if not waiting.done():
                raise _StoppedError
        finally:
            await cancel_all([waiting, stop])

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self._stopped.is_set():
            # A second signal ends the process immediately.
            logging.shutdown()
            os._exit(1)
        self._stopped.set()


async def _synced(informers: Sequence[Informer[Any]]) -> None:
    """Waits until all informers have synced, and logs from time to time which have not."""
    waiting = list(informers)
    while waiting:
        tasks = [asyncio.ensure_future(informer.synced.wait()) for informer in waiting]
        await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
        await cancel_all(tasks)
        waiting = [informer for informer in waiting if not informer.synced.is_set()]
        if waiting:
            # Without the request, which differs for each kind.
            problems = {informer.problem.rpartition('": ')[2] for informer in waiting if informer.problem}
            log(
                _log,
                logging.WARNING,
                "No pod is scheduled before all of these have been listed",
                waitingFor=", ".join(informer.kind.__name__ for informer in waiting),
                err="; ".join(sorted(problems)) or "no response yet",
            )


# SIGUSR2

MAX_NAMED: Final = 100
"""The number of pending pods that are listed."""


def log_all(scheduler: Scheduler) -> None:
    """Compares the cache with the API server and logs its contents; use it if you suspect an inconsistency.

    Nodes and bound pods are compared with the informers' copies; then the usage of every node and the pending
    pods are logged. Nothing is scheduled meanwhile.
    """
    mismatches = {"nodes": _node_mismatch(scheduler), "pods": _pod_mismatch(scheduler)}
    for what, (missed, redundant) in mismatches.items():
        if missed or redundant:
            log(_log, logging.WARNING, "Cache mismatch", of=what, missed=missed, redundant=redundant)
    if not any(missed or redundant for missed, redundant in mismatches.values()):
        log(_log, logging.INFO, "Cache and API server agree", **_sizes(scheduler))
    log(_log, logging.INFO, "Dump of cached NodeInfo", nodes="\n".join(_node_lines(scheduler)))
    queue = scheduler.context.queue
    waiting = [pod.key for pod in queue.pending_pods()]
    log(_log, logging.INFO, "Dump of scheduling queue", summary=queue.dump(), pods=waiting[:MAX_NAMED])


def _sizes(scheduler: Scheduler) -> dict[str, int]:
    cache = scheduler.context.cache
    return {"nodes": cache.node_count, "pods": cache.pod_count, "assumed": cache.assumed_count}


def _node_mismatch(scheduler: Scheduler) -> tuple[list[str], list[str]]:
    """Nodes that are missing from the cache, and nodes that only the cache has."""
    known = {
        item.name for informer in scheduler.informers if informer.kind is Node for item in informer.all()
    }
    nodes = scheduler.context.cluster.nodes
    cached = {name for name, row in nodes.row_of.items() if nodes.node[row] is not None}
    return sorted(known - cached), sorted(cached - known)


def _pod_mismatch(scheduler: Scheduler) -> tuple[list[str], list[str]]:
    """Pods with a node that the cache lacks or has on another node, and pods that only the cache has.

    Assumed pods are not confirmed yet, so they do not count as a difference.
    """
    cache, cluster = scheduler.context.cache, scheduler.context.cluster
    known = {pod.uid: pod for pod in scheduler.pods.all() if pod.spec.node_name}
    missed = [pod.key for uid, pod in known.items() if cache.node_of(uid) != pod.spec.node_name]
    redundant = [
        pod.key
        for row in cluster.nodes.row_of.values()
        for pod in cluster.pods_on(row)
        if pod.uid not in known and not cache.is_assumed(pod.uid)
    ]
    return sorted(missed), sorted(redundant)


def _node_lines(scheduler: Scheduler) -> Iterable[str]:
    nodes = scheduler.context.cluster.nodes
    cpu, memory = nodes.resource(CPU), nodes.resource(MEMORY)
    for name, row in sorted(nodes.row_of.items()):
        note = "" if nodes.node[row] is not None else " (the node was deleted)"
        yield (
            f"{name}{note}: {nodes.pod_count.cell[row]} of {nodes.allowed_pods.cell[row]} pods, "
            f"cpu {cpu.requested.cell[row]}m of {cpu.allocatable.cell[row]}m, "
            f"memory {memory.requested.cell[row]} of {memory.allocatable.cell[row]}"
        )
