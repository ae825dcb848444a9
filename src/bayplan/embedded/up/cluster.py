"""Starts the parts of a cluster in order, stops them in reverse, and names it in a kubeconfig.

    API server ─► custom kinds ─► controllers, kubelets ─► nodes ─► scheduler

All of them run on one loop. An unrecoverable error of one ends the cluster: `failure` raises it.

The kubeconfig entry of a cluster without a data directory is removed when the cluster ends. With a data
directory it stays, and the next start with the same directory replaces it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from bayplan.api.documents import Document
from bayplan.api.meta import Content
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.api.storage import WAIT_FOR_FIRST_CONSUMER
from bayplan.config import KubeSchedulerConfiguration
from bayplan.controllers.pods import condition
from bayplan.dra.budget import ElapsedTime
from bayplan.embedded import controllers, kubelets
from bayplan.embedded.drivers import DeviceDrivers
from bayplan.embedded.kubelets.pod_status import SANDBOX
from bayplan.embedded.server import kubeconfig
from bayplan.embedded.server.documents import MAX_STORE_BYTES
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.server.kinds import (
    DAEMON_SETS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)
from bayplan.embedded.server.kubeconfig import Entry
from bayplan.embedded.up.manifests import Snapshot, apply, is_definition, is_node, restore
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.watched_files import Loaded, WatchedDevices, WatchedPlugins
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import Plugin
from bayplan.metrics import SchedulerMetrics
from bayplan.net.listening import BoundedServer, Limits
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observer, Observers, observed_by
from bayplan.scheduler.queue_position import queue_position
from bayplan.scheduler.tasks import cancel_all, first_to_end
from bayplan.state.groups import group_key

IDLE_SECONDS: Final = 0.5
"""A cluster is idle when nothing was written for this time, and nothing is in progress."""
STALLED_SECONDS: Final = 5.0
"""A cluster that only repeats failed attempts is idle after this time, on top of the longest backoff."""
POLL_SECONDS: Final = 0.1
DISK_POLL_SECONDS: Final = 0.5
DEFAULT_STORAGE_CLASS: Final[Content] = {
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "bayplan/simulated",
    "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
}


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings of the cluster."""

    nodes: int = 0
    """Nodes to create, in addition to existing ones."""
    port: int = 0
    """Of the API server; 0 for any free port."""
    data_dir: Path | None = None
    """Where objects are stored; None: they are lost when the process ends."""
    salvages: bool = False
    """Keep the intact part of a damaged data directory, instead of raising an error."""
    release: Release = DEFAULT_RELEASE
    """The release of Kubernetes that the scheduler emulates."""
    config: KubeSchedulerConfiguration | None = None
    """Of the scheduler, for this release."""
    plugins: Sequence[type[Plugin]] = ()
    schedules: bool = True
    stop_seconds: float = kubelets.DEFAULT_STOP_SECONDS
    """How long containers take to stop, unless their pod has its own setting."""
    job_run_seconds: float = kubelets.DEFAULT_JOB_RUN_SECONDS
    """How long containers of Jobs run, unless their pod has its own setting."""
    storage_class: bool = False
    """Create a default StorageClass in a new cluster, as kind and minikube do, unless manifests bring one."""
    devices: WatchedDevices | None = None
    """Devices that simulated drivers publish."""
    reload: WatchedPlugins | None = None
    """Files of plugins that are loaded again when they change."""
    rbac: bool = False
    """Whether roles decide what users may do."""
    max_bytes: int = MAX_STORE_BYTES
    """Of the JSON of all objects."""
    plain: Callable[[Limits], BoundedServer] | None = None
    """Makes the server for clients that use the port without TLS: the page."""


@dataclass(frozen=True, slots=True)
class Census:
    """Numbers of nodes and pods by state."""

    nodes: int = 0
    ready_nodes: int = 0
    running: int = 0
    starting: int = 0
    """Bound, but not running yet."""
    waiting: int = 0
    """Bound, but something that their containers need is missing: a ConfigMap or Secret."""
    pending: int = 0
    """Without a node."""
    terminating: int = 0
    """Being deleted."""
    finished: int = 0


class LocalCluster:
    """A cluster. To be used in an `async with` block."""

    def __init__(self, settings: LocalSettings, outcomes: Outcomes, first: Iterable[Document] = ()) -> None:
        self._settings = settings
        self._outcomes = outcomes
        first = list(first)
        self._definitions = [document for document in first if is_definition(document)]
        self._brings_class = any(document.content["kind"] == STORAGE_CLASSES.kind for document in first)
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.server = EmbeddedServer(
            settings.data_dir,
            port=settings.port,
            salvages=settings.salvages,
            release=settings.release,
            max_bytes=settings.max_bytes,
            rbac=settings.rbac,
            plain=settings.plain,
        )
        self._observer: Observer | None = None
        self.scheduler: Scheduler | None = None
        self._drivers: DeviceDrivers | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            stack.push_async_callback(self._stop)
            # Plugins can watch custom kinds from the start.
            apply(self.server.api, self._definitions)
            self._start(self._watch_the_disk(), "disk")
            self._start_machines()
            self._start_drivers()
            self._make_storage_class()
            self._make_nodes()
            if self._settings.schedules:
                self._start_scheduler()
                await self._synced()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _start_machines(self) -> None:
        api, settings = self.server.api, self._settings
        self._start(controllers.run_all(api), "controllers")
        simulated = kubelets.run(
            api, stop_seconds=settings.stop_seconds, job_run_seconds=settings.job_run_seconds
        )
        self._start(simulated, "kubelets")

    def _start_drivers(self) -> None:
        watched = self._settings.devices
        if watched is not None:
            self._drivers = drivers = DeviceDrivers(self.server.api, watched.devices)
            self._start(drivers.run(), "device drivers")
            self._start(watched.watch(drivers), "device file")

    def _make_storage_class(self) -> None:
        """Creates the default class, but not again in a data directory, where it may have been deleted."""
        api = self.server.api
        is_wanted = self._settings.storage_class and not self._brings_class
        if is_wanted and not list(api.documents(NODES)):
            api.create(STORAGE_CLASSES, deepcopy(DEFAULT_STORAGE_CLASS))

    def _make_nodes(self) -> None:
        """Creates the missing nodes: a cluster from a data directory has its nodes already."""
        api = self.server.api
        there = {document.key for document in api.documents(NODES)}
        for node in kubelets.make_nodes(self._settings.nodes):
            if node["metadata"]["name"] not in there:
                api.create(NODES, node)

    def _start_scheduler(self) -> None:
        settings = self._settings
        self.scheduler = self._make_scheduler((settings.config, tuple(settings.plugins)))
        self.server.application.queue_position = self._queue_position
        self._start(self._schedule(), "scheduler")
        if settings.reload is not None:
            self._start(settings.reload.watch(self.use_plugins), "plugin files")

    def _queue_position(self, key: str) -> dict[str, Any]:
        assert self.scheduler is not None
        return queue_position(self.scheduler.context, key)

    def _make_scheduler(self, loaded: Loaded) -> Scheduler:
        config, plugins = loaded
        return Scheduler(
            EmbeddedCluster(self.server.api),
            config,
            plugins=plugins,
            metrics=SchedulerMetrics(release=self._settings.release),
            settings=LoopSettings(search_clock=ElapsedTime(asyncio.get_running_loop().time)),
            observers=self._observers,
            release=self._settings.release,
        )

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Reports decisions to an observer, until the returned function is called.

        Without one the scheduler calls nothing that is not there anyway.
        """
        self._observer = observer
        self._connect()

        def stop() -> None:
            self._observer = None
            self._connect()

        return stop

    def _connect(self) -> None:
        if self.scheduler is not None:
            self.scheduler.context.observers = self._observers

    @property
    def _observers(self) -> Observers:
        outcomes = self._outcomes
        if self._observer is None:
            return Observers(decided=outcomes.decided, progressed=outcomes.progressed)
        return observed_by([outcomes, self._observer])

    async def _schedule(self) -> None:
        """Runs the scheduler, and then each one that replaces it. All state is in the API server."""
        running: Scheduler | None = None
        while self.scheduler is not None and self.scheduler is not running:
            running = self.scheduler
            with running.watchdog:
                await running.run()

    def use_plugins(self, loaded: Loaded) -> None:
        """Continues with these plugins and this configuration after the current attempt.

        Raises:
            BayplanError: they do not fit together. Nothing changes then.
        """
        made, before = self._make_scheduler(loaded), self.scheduler
        self.scheduler = made
        if before is not None:
            before.stop()

    async def _synced(self) -> None:
        """Waits until the scheduler has synced. Raises the error of a part that fails before: the scheduler
        would wait forever."""
        assert self.scheduler is not None
        synced = asyncio.ensure_future(self.scheduler.synced())
        try:
            await first_to_end([synced, *self._tasks])
        finally:
            await cancel_all([synced])

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def _stop(self) -> None:
        await cancel_all(self._tasks)

    async def _watch_the_disk(self) -> None:
        """Fails when writes can no longer be stored: no cluster is better than one that loses writes."""
        while self.server.api.store.failure is None:
            await asyncio.sleep(DISK_POLL_SECONDS)
        raise self.server.api.store.failure

    async def failure(self) -> None:
        """Waits until a part of the cluster fails, and raises its error."""
        await first_to_end(self._tasks)

    # Using it

    @property
    def is_kept(self) -> bool:
        """Whether its objects are stored in a data directory."""
        return self._settings.data_dir is not None

    async def apply(self, documents: Sequence[Document] | Snapshot) -> int:
        """Creates or updates objects. Nodes come first, and are ready before pods are created.

        The objects of a snapshot are stored as they are.
        """
        if isinstance(documents, Snapshot):
            return restore(self.server.api, documents)
        nodes = [document for document in documents if is_node(document)]
        if nodes:
            apply(self.server.api, nodes)
            await self.idle()
        rest = [document for document in documents if not is_node(document)]
        return len(nodes) + apply(self.server.api, rest)

    def census(self) -> Census:
        api = self.server.api
        nodes = [document.record(Node) for document in api.documents(NODES)]
        counts = dict.fromkeys(("running", "starting", "waiting", "pending", "terminating", "finished"), 0)
        for pod in self.pods():
            counts[_state(pod)] += 1
        return Census(nodes=len(nodes), ready_nodes=sum(map(_is_ready, nodes)), **counts)

    def pods(self) -> Iterator[Pod]:
        for document in self.server.api.documents(PODS):
            yield document.record(Pod)

    @property
    def scheduler_names(self) -> Collection[str]:
        """The values of `schedulerName` that are scheduled here."""
        return () if self.scheduler is None else self.scheduler.core.frameworks.keys()

    def why_incomplete(self, pod: Pod) -> str:
        """What the group of a member waits for before it can be tried; empty if for nothing."""
        groups = None if self.scheduler is None else self.scheduler.core.cluster.groups
        key = group_key(pod)
        return "" if groups is None or key is None else groups.why_incomplete(key)

    async def idle(self) -> None:
        """Waits until every pod is scheduled or unschedulable, and nothing else is in progress.

        A pod whose attempts keep failing (a plugin raises) is retried forever. It no longer counts after the
        longest backoff has passed without a change. A group that does not fit is retried forever, too: it
        counts until its first attempt after the last change.
        """
        loop = asyncio.get_running_loop()
        store = self.server.api.store
        version, written = store.version, loop.time()
        census, changed = self.census(), loop.time()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            before, census = census, self.census()
            if census != before or self._is_starting_something(census):
                changed = loop.time()
            if store.version != version or self._is_busy(census, loop.time() - changed):
                version, written = store.version, loop.time()
            if loop.time() - written >= IDLE_SECONDS or loop.time() - changed >= self._stalled_seconds:
                return

    @property
    def _stalled_seconds(self) -> float:
        max_backoff = 0 if self.scheduler is None else self.scheduler.config.pod_max_backoff_seconds
        return max_backoff + STALLED_SECONDS

    def _is_starting_something(self, census: Census) -> bool:
        """Whether a change is to be expected, other than from retries."""
        if census.terminating or census.starting:
            return True
        if self._drivers is not None and self._drivers.is_busy:
            return True
        return self._outcomes.is_binding_for_the_first_time() or self._awaits_availability()

    def _awaits_availability(self) -> bool:
        """Whether a pod of a workload is ready, but not for minReadySeconds: a rollout continues after it."""
        api = self.server.api
        return any(
            _is_becoming_available(document.parse())
            for resource in (REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS)
            for document in api.documents(resource)
        )

    def _is_busy(self, census: Census, unchanged_seconds: float) -> bool:
        if self._is_starting_something(census):
            return True
        if self.scheduler is None:
            return False
        context = self.scheduler.context
        counts, queues = context.queue.counts(), self.scheduler.queues
        active = counts.active if queues is None else queues.count  # those that wait for quota do not count
        backoff = counts.backoff - self._repeated_members(unchanged_seconds)
        return bool(active or backoff or context.queue.in_flight_counts() or len(context.tasks))

    def _repeated_members(self, unchanged_seconds: float) -> int:
        """The number of pods that back off in groups that were rejected after the last change.

        A rejected group is retried by its backoff alone, whether anything changes or not.
        """
        assert self.scheduler is not None
        context = self.scheduler.context
        groups, last_change = context.queue.groups, context.now() - unchanged_seconds
        return sum(
            len(entity.members)
            for entity in (() if groups is None else groups.entities.values())
            if entity.sub_queue is not None
            and entity.sub_queue.label == "backoff"
            and entity.unschedulable_count
            and not entity.consecutive_errors_count
            and entity.timestamp > last_change
        )


def _is_becoming_available(workload: Content) -> bool:
    status = workload.get("status") or {}
    ready = status.get("readyReplicas") or status.get("numberReady") or 0
    available = status.get("availableReplicas") or status.get("numberAvailable") or 0
    return bool((workload["spec"].get("minReadySeconds") or 0) and ready > available)


def _state(pod: Pod) -> str:
    if pod.is_terminating:
        return "terminating"
    if pod.status.phase in ("Succeeded", "Failed"):
        return "finished"
    if not pod.spec.node_name:
        return "pending"
    if pod.status.phase == "Running":
        return "running"
    sandbox = condition(pod, SANDBOX)
    return "waiting" if sandbox is not None and sandbox.status == "False" else "starting"


def _is_ready(node: Node) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


_log = logging.getLogger(__name__)


class KubeconfigFile:
    """A kubeconfig, and the name of the cluster in it."""

    def __init__(self, path: Path, name: str | None = None, *, use_context: bool = False) -> None:
        self._path = path
        self._name = name
        self._use_context = use_context

    def check(self) -> None:
        """Raises InputError if the entry cannot be added to the file, before a cluster is started."""
        kubeconfig.check(self._path, self._name)

    @contextlib.asynccontextmanager
    async def of(self, cluster: LocalCluster) -> AsyncIterator[str]:
        """Adds the cluster's entry to the file; yields the arguments for `kubectl --kubeconfig`."""
        endpoint = cluster.server.endpoint
        # In a thread: it connects to a cluster of the same name, to see whether that is running.
        entry = await asyncio.to_thread(
            kubeconfig.add, self._path, endpoint, self._name, use_context=self._use_context
        )
        try:
            yield _arguments(self._path, entry)
        finally:
            if not cluster.is_kept:
                await asyncio.to_thread(_remove, entry)


def _remove(entry: Entry) -> None:
    try:
        kubeconfig.remove(entry)
    except FileNotFoundError:
        pass  # the file was deleted, and the entry with it
    except (BayplanError, OSError) as error:
        _log.warning('context "%s" is left in %s: %s', entry.name, entry.path, error)


def _arguments(path: Path, entry: Entry) -> str:
    """The path as a user would type it, and the context where it is not the current one."""
    shown = str(path)
    with contextlib.suppress(ValueError):
        shown = os.path.join(".", path.absolute().relative_to(Path.cwd()))
    return shlex.quote(shown) if entry.is_current else f"{shlex.quote(shown)} --context {entry.name}"
