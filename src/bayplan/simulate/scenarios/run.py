"""One simulation, from a scenario to its result.

The scheduler, its queue, cache and plugins are those of `bayplan run`; the clock is virtual, and the API
server is in memory. Decisions, requests to the API server and the start of containers take no time, so
waiting times are those for which capacity, priorities and backoff are responsible, not the speed of a
machine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from msgspec.structs import replace

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.defaults import NAMESPACE_NAME_LABEL
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.config import KubeSchedulerConfiguration, default_config
from bayplan.errors import InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.garbage import old_objects_left_out
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.plugins.library.gpu_sharing import GpuSharing
from bayplan.runtime.failure_log import PluginFailure
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.plugin_sources import named_library_plugins
from bayplan.scheduler.recorder import DiscardedEvents, EventOutput
from bayplan.scheduler.tasks import cancel_all
from bayplan.scheduler.waiting import BindingProgress
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.scenarios import schema
from bayplan.simulate.scenarios.figures import Figures
from bayplan.simulate.scenarios.queue_figures import QueueFigures
from bayplan.simulate.scenarios.reading import LoadedScenario
from bayplan.simulate.scenarios.scheduler_perf import BenchmarkRun
from bayplan.simulate.scenarios.workloads import Arriving, NodeChanges, schedule_events
from bayplan.simulate.scenarios.world import SimulatedCluster, World
from bayplan.simulate.virtual_time import current_loop, run_virtual

if TYPE_CHECKING:
    from bayplan.queues.active import CapacityQueues

FILES: Final = "(cluster files)"
"""The workload of pods that are in the cluster's files."""

HISTORY: Final = 5_000
"""Events that the store keeps for each kind: watchers are never far behind, and ended pods cost memory."""

Progress = Callable[[float, Figures], None]
"""Called at every sample with the virtual time."""


class Watcher(Protocol):
    """Sees everything that happens in a simulation."""

    async def run(self, api: ClusterAPI, clock: Callable[[], float]) -> None:
        """Reads the cluster beside the scheduler; cancelled at the end. `clock`: seconds since the epoch."""

    def decided(self, decision: Decision) -> None: ...

    def progressed(self, progress: BindingProgress) -> None: ...


class Companion(Protocol):
    """Runs beside the scheduler of a simulation, and may evict pods."""

    kinds: ClassVar[tuple[type[Object], ...]]
    """Kinds that the scheduler has to watch besides its own."""

    async def run(self, world: World, scheduler: Scheduler) -> None:
        """Until it is cancelled, at the end."""


_NO_TIME: Final = (
    "Scheduling decisions, requests to the API server, image pulls and the start of containers take no time: "
    "waiting times do not include them."
)
_FILES_RUN_ON: Final = "{count:,} pods of the cluster's files run until the end: their run times are unknown."
_TERMINATING: Final = "{count:,} pods of the cluster's files were terminating and are left out."
_NO_VOLUMES: Final = (
    "Pods of {names} use PersistentVolumeClaims or ResourceClaims. No controller provisions volumes or "
    "creates claims from templates here; only what the cluster's files contain can be used."
)
_ORPHANED: Final = "{count:,} pods of the cluster's files are on nodes that do not exist, and are left out."
_OTHER_SCHEDULER: Final = (
    "No profile has the schedulerName of pods of {names}: they wait until the end, as for another scheduler."
)
_UNFINISHED: Final = (
    "The scheduler_perf workload is not over: operation {} of {} waits, until all of its pods are scheduled."
)
_FAILED: Final = "The result is not reliable, because a plugin failed: {failure}{more}"
GROUPS: Final = "GenericWorkload"
_NO_GATE: Final = "workloads of kind PodGroup need the feature gate {gate}, which Kubernetes 1.37 has"
_ADDED_COSCHEDULING: Final = "The plugin Coscheduling was added, because the scenario has gangs."

_ADDED_GPU_SHARING: Final = (
    "The plugin GpuSharing was added, because pods of a trace request GPUs by annotations."
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A simulation that is over."""

    loaded: LoadedScenario
    seed: int
    until: float
    figures: Figures
    release: str
    """The Kubernetes version whose scheduler was simulated."""
    notes: tuple[str, ...]
    failures: tuple[PluginFailure, ...] = ()
    """What plugins did wrong: if there is something, the result is not reliable."""


def simulate(
    loaded: LoadedScenario,
    *,
    config: KubeSchedulerConfiguration | None = None,
    plugins: Sequence[type[Plugin]] = (),
    release: Release = DEFAULT_RELEASE,
    seed: int | None = None,
    until: float | None = None,
    notes: Sequence[str] = (),
    progress: Progress | None = None,
    watcher: Watcher | None = None,
    companion: Companion | None = None,
) -> Finished:
    """Runs a scenario to its end. Equal arguments give equal results; `notes` are added to its own.

    `release` is for a simulation without configuration: a configuration has its own.
    """
    config = default_config(release=release) if config is None else config
    until = loaded.duration if until is None else until
    seed = loaded.scenario.seed if seed is None else seed
    run = _Run(loaded, config, plugins, seed, until, notes, progress, watcher, companion)
    with old_objects_left_out():
        return run_virtual(run.main(), limit=2 * until + 1e6)


def _failed(failures: Sequence[PluginFailure]) -> str:
    more = f" (and {len(failures) - 1:,} more failures)" if len(failures) > 1 else ""
    return _FAILED.format(failure=failures[0].message, more=more)


class _Run:
    def __init__(
        self,
        loaded: LoadedScenario,
        config: KubeSchedulerConfiguration,
        plugins: Sequence[type[Plugin]],
        seed: int,
        until: float,
        notes: Sequence[str],
        progress: Progress | None,
        watcher: Watcher | None,
        companion: Companion | None,
    ) -> None:
        if config.bayplan.queues is not None:
            config.bayplan.queues.check_is_read()
        self._watcher = watcher
        self._companion = companion
        self._loaded = loaded
        self._seed = seed
        self._until = until
        self._progress = progress
        self._figures = Figures()
        self._notes = [_NO_TIME, *notes]
        if config.extenders:
            # There are no sockets in virtual time; `answers/sources/loading.py` has the warning.
            config = replace(config, extenders=())
        known = (*plugins, *named_library_plugins(config).values())
        has_gangs = any(workload.kind == schema.GANG for workload in loaded.scenario.workloads)
        if loaded.has_groups and GROUPS not in config.gates:
            raise InputError(_NO_GATE.format(gate=GROUPS), source=loaded.source)
        if has_gangs and Coscheduling not in known:
            plugins = (*plugins, Coscheduling)
            self._notes.append(_ADDED_COSCHEDULING)
        has_gpus = any(row.annotations for rows in loaded.traces.values() for row in rows)
        if has_gpus and not any(issubclass(plugin, GpuSharing) for plugin in known):
            plugins = (*plugins, GpuSharing)
            self._notes.append(_ADDED_GPU_SHARING)
        self._config = config
        self._plugins = plugins
        self._note_what_is_missing()

    async def main(self) -> Finished:
        loop, loaded = current_loop(), self._loaded
        store = MemoryStore(clock=loop.wall_time, seed=self._seed, history=HISTORY)
        self._world = world = World(loop, store, self._figures, self._seed)
        nodes = NodeChanges(world, loaded, self._seed, self._until)
        self._add_files(world)
        nodes.watch_initial()
        self._scheduler = scheduler = Scheduler(
            SimulatedCluster(world),
            self._config,
            plugins=self._plugins,
            settings=LoopSettings(seed=self._seed),
            observers=Observers(decided=self._decided, progressed=self._progressed),
            events=EventOutput(DiscardedEvents(), hostname="simulation"),
            kinds=() if self._companion is None else self._companion.kinds,
        )
        if scheduler.queues is not None:
            self._measure(scheduler.queues, world)
        tasks = [asyncio.ensure_future(scheduler.run())]
        if self._watcher is not None:
            watching = self._watcher.run(MemoryCluster(store), loop.wall_time)
            tasks.insert(0, asyncio.ensure_future(watching))
        if self._companion is not None:
            tasks.append(asyncio.ensure_future(self._companion.run(world, scheduler)))
        with scheduler.core.failures.collected() as failures:
            await self._run_scenario(world, nodes, tasks)
        if failures:
            self._notes.insert(0, _failed(tuple(failures.values())))
        self._figures.finish(loop.time(), world.pods.values())
        return Finished(
            loaded,
            self._seed,
            self._until,
            self._figures,
            self._config.release.version,
            tuple(self._notes),
            tuple(failures.values()),
        )

    def _measure(self, queues: CapacityQueues, world: World) -> None:
        """Measures capacity queues. Their configuration stays as it is for the whole simulation."""
        queues.follow_file = None
        figures = self._figures.queues = QueueFigures(queues)
        for pod in world.pods.values():
            figures.arrived(pod, world.store.get(Pod, pod.name, pod.namespace))

    async def _run_scenario(self, world: World, nodes: NodeChanges, tasks: list[asyncio.Task[None]]) -> None:
        """Lets everything happen that the scenario has; `tasks` run meanwhile, and are cancelled then."""
        loaded = self._loaded
        benchmark: BenchmarkRun | None = None
        try:
            await current_loop().quiescent()
            arriving = [
                Arriving(world, workload, loaded, self._seed, self._until)
                for workload in loaded.scenario.workloads
            ]
            schedule_events(world, loaded, nodes, arriving)
            if loaded.benchmark is not None and loaded.scenario.scheduler_perf is not None:
                wanted = loaded.scenario.scheduler_perf
                benchmark = BenchmarkRun(world, loaded.benchmark, wanted, self._seed)
                tasks.append(asyncio.ensure_future(benchmark.run()))
            await self._take_samples(tasks)
            if benchmark is not None and benchmark.done < len(benchmark.operations):
                unfinished = (benchmark.done + 1, len(benchmark.operations))
                self._notes.append(_UNFINISHED.format(*unfinished))
        finally:
            await cancel_all(tasks)

    async def _take_samples(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        loop, interval = current_loop(), self._loaded.sample_interval
        number, time = 0, 0.0
        while True:
            await asyncio.sleep(max(time - loop.time(), 0.0))
            # First everything that happens at this time takes its effect.
            await loop.quiescent()
            for task in tasks:
                if task.done():
                    task.result()  # raises its exception, if that is why it has ended
            self._figures.sample(self._scheduler, time)
            if self._progress is not None:
                self._progress(time, self._figures)
            if time >= self._until:
                return
            number += 1
            time = min(number * interval, self._until)

    def _decided(self, decision: Decision) -> None:
        pod = self._world.pods.get(decision.pod.metadata.uid)
        self._figures.decided(pod, decision, self._world.loop.time())
        if self._watcher is not None:
            self._watcher.decided(decision)

    def _progressed(self, progress: BindingProgress) -> None:
        self._world.binding_progressed(progress)
        if self._watcher is not None:
            self._watcher.progressed(progress)

    def _add_files(self, world: World) -> None:
        objects: list[Object] = sorted(self._loaded.objects, key=_order)
        namespaces = {workload.namespace for workload in self._loaded.scenario.workloads}
        namespaces -= {item.name for item in objects if isinstance(item, Namespace)}
        for name in sorted(namespaces):
            world.store.create(Namespace(metadata=ObjectMeta(name=name, labels={NAMESPACE_NAME_LABEL: name})))
        counts: Counter[str] = Counter()
        for item in objects:
            if isinstance(item, Node):
                world.add_node(item, "")
            elif not isinstance(item, Pod):
                world.store.create(item)
            elif item.is_terminating:
                counts[_TERMINATING] += 1
            elif item.spec.node_name and item.spec.node_name not in world.nodes:
                counts[_ORPHANED] += 1
            elif not item.is_finished:
                counts[_FILES_RUN_ON] += bool(item.spec.node_name)
                world.add_initial_pod(item, FILES)
        self._notes.extend(text.format(count=count) for text, count in counts.items() if count)

    def _note_what_is_missing(self) -> None:
        """Which pods the simulation cannot treat as a cluster would."""
        loaded = self._loaded
        pods = list(loaded.templates.items())
        if loaded.benchmark is not None:
            pods += [(loaded.benchmark.name, template) for template in loaded.benchmark.templates]
        pods += [(FILES, item) for item in loaded.objects if isinstance(item, Pod)]
        claiming = dict.fromkeys(name for name, pod in pods if _has_claims(pod))
        if claiming:
            self._notes.append(_NO_VOLUMES.format(names=", ".join(claiming)))
        profiles = {profile.scheduler_name for profile in self._config.profiles}
        other = dict.fromkeys(
            f'{name} ("{pod.spec.scheduler_name}")'
            for name, pod in pods
            if not pod.spec.node_name and pod.spec.scheduler_name not in profiles
        )
        if other:
            self._notes.append(_OTHER_SCHEDULER.format(names=", ".join(other)))


def _order(item: Object) -> int:
    """Nodes and other objects before pods."""
    return isinstance(item, Pod)


def _has_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None
        for volume in pod.spec.volumes
    )
