"""Measures the whole path of a pod in one process: created, watched, queued, decided, bound, confirmed.

All measured pods are created at once, and the clocks run until the scheduler has seen all of them bound (or
has nothing left to try). The API server is the in-memory API, so the scheduler is measured without HTTP.
Latencies are the times between two decisions.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TextIO

from msgspec.structs import replace

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.bench.runner import (
    PROFILE_LINES,
    BenchError,
    Measurement,
    Progress,
    Sizes,
    as_delivered,
    no_progress,
    peak_rss_mb,
    percentile,
)
from bayplan.bench.workload import ClaimController, Workload
from bayplan.config import KubeSchedulerConfiguration, default_config
from bayplan.framework.plugin_api import Plugin
from bayplan.garbage import old_objects_left_out
from bayplan.metrics import SchedulerMetrics
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore

CREATED_AT_ONCE: Final = 1000
"""Pods created between two turns of the loop."""

TURNS_BETWEEN_POLLS: Final = 20
"""Turns of the loop without a decision after which only a timer, such as a backoff, can be the reason."""

MAX_FAILURES: Final = 2
"""Attempts after which a group that does not fit counts as unschedulable."""

POLL_SECONDS: Final = 0.002
"""Interval between checks whether it is done while the scheduler waits for a timer."""


def measure_whole(
    workload: Workload,
    sizes: Sizes,
    *,
    progress: Progress = no_progress,
    profile: TextIO | None = None,
    release: Release = DEFAULT_RELEASE,
    config: KubeSchedulerConfiguration | None = None,
    plugins: Sequence[type[Plugin]] = (),
) -> Measurement:
    """Runs the workload against an empty cluster."""
    with tempfile.TemporaryDirectory(prefix="bayplan-bench-") as folder:
        if workload.queues is not None:
            config = default_config(release=release) if config is None else config
            queues = workload.queues.configure(max(sizes.init_pods, sizes.pods), Path(folder))
            config = replace(config, bayplan=replace(config.bayplan, queues=queues))
        return asyncio.run(_Run(workload, sizes, progress, release, config, plugins).measured(profile))


class _Run:
    def __init__(
        self,
        workload: Workload,
        sizes: Sizes,
        progress: Progress,
        release: Release,
        config: KubeSchedulerConfiguration | None,
        plugins: Sequence[type[Plugin]],
    ) -> None:
        if workload.groups is not None:
            release = release.with_gates(release.gates | workload.groups.gates)
            config = default_config(release=release) if config is None else config
        self._release = release
        self._config = config
        self._plugins = (*((Coscheduling,) if workload.group_size else ()), *plugins)
        self._workload = workload
        self._sizes = sizes
        self._progress = progress
        self._store = MemoryStore(history=4 * (sizes.init_pods + sizes.pods + sizes.nodes) + 10_000)
        self._decided: list[int] = []
        devices = workload.devices
        self._claims = None if devices is None else ClaimController(self._store, devices)
        self._others_cpu_ns = 0
        """What the claim controller and users would do in a cluster."""
        self._batch = sizes.pods if devices is None else devices.batch or sizes.pods

    async def measured(self, profile: TextIO | None) -> Measurement:
        workload, sizes, store = self._workload, self._sizes, self._store
        for namespace in as_delivered(workload.make_namespaces(), Namespace):
            store.create(namespace)
        for node in as_delivered(workload.make_nodes(sizes.nodes), Node):
            store.create(node)
        for group in workload.make_groups(sizes.pods):
            store.create(group)
        if workload.queues is not None:
            for item in workload.queues.make_queues(max(sizes.init_pods, sizes.pods)):
                store.create(item)
        if workload.devices is not None:
            for device_class in workload.devices.make_classes():
                store.create(device_class)
            for node in store.list(Node):
                store.create(workload.devices.make_slice(node.name))
        self._scheduler = scheduler = Scheduler(
            MemoryCluster(store),
            self._config,
            metrics=SchedulerMetrics(release=self._release),
            observers=Observers(decided=self._on_decision),
            plugins=tuple(dict.fromkeys(self._plugins)),
            release=self._release,
        )
        self._running = running = asyncio.ensure_future(scheduler.run())
        try:
            await self._schedule(
                self._grouped("i", as_delivered(workload.make_init_pods(sizes.init_pods), Pod)),
                "placing the first pods",
            )
            first = self._bound()
            if first < sizes.init_pods:
                raise BenchError(f"{workload.name}: only {first:,} of {sizes.init_pods:,} first pods fit")
            return await self._measure(profile)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._progress("", 0, 0)

    async def _measure(self, profile: TextIO | None) -> Measurement:
        workload, sizes = self._workload, self._sizes
        pods = self._grouped("m", as_delivered(workload.make_pods(sizes.pods), Pod))
        rows_before, standing = self._scheduler.core.rows_computed, len(self._store.list(Pod))
        self._decided.clear()
        profiler = cProfile.Profile() if profile else None
        with old_objects_left_out():  # as the process does after syncing (`process/process.py`)
            if profiler:
                profiler.enable()
            wall, cpu = time.perf_counter_ns(), self._cpu_ns()
            finished = 0
            for begin in range(0, len(pods), self._batch):
                batch = pods[begin : begin + self._batch]
                await self._schedule(batch, "measuring")
                if self._claims is not None and begin + self._batch < len(pods):
                    finished += self._finish(batch, self._claims)
            cpu, wall = self._cpu_ns() - cpu, time.perf_counter_ns() - wall
        if profiler and profile:
            profiler.disable()
            pstats.Stats(profiler, stream=profile).sort_stats("tottime").print_stats(PROFILE_LINES)
        left = self._store.list(Pod)
        bound = sum(1 for pod in left if pod.spec.node_name)
        evicted = standing + len(pods) - finished - len(left)
        intervals = sorted(b - a for a, b in zip(self._decided, self._decided[1:], strict=False)) or [0]
        return Measurement(
            workload=workload.name,
            nodes=sizes.nodes,
            init_pods=sizes.init_pods,
            pods=sizes.pods,
            pods_per_s=round(sizes.pods * 1e9 / max(wall, 1), 1),
            cpu_us_per_pod=round(cpu / 1e3 / sizes.pods, 2),
            p50_us=round(percentile(intervals, 50) / 1e3, 2),
            p99_us=round(percentile(intervals, 99) / 1e3, 2),
            rows_per_pod=round((self._scheduler.core.rows_computed - rows_before) / sizes.pods, 2),
            peak_rss_mb=peak_rss_mb(),
            scheduled=bound - standing + evicted + finished,
            unscheduled=len(left) - bound,
            evicted=evicted,
        )

    def _grouped(self, role: str, pods: Iterable[Pod]) -> list[Pod]:
        """These pods, after their groups have been created."""
        found, groups, queues = list(pods), self._workload.groups, self._workload.queues
        for group in () if groups is None else groups.make(role, found):
            self._store.create(group)
        for item in () if queues is None else queues.make_groups(found):
            self._store.create(item)
        return found

    def _cpu_ns(self) -> int:
        """The CPU time of this process, without what others would do in a cluster."""
        return time.process_time_ns() - self._others_cpu_ns

    def _finish(self, pods: Sequence[Pod], claims: ClaimController) -> int:
        """Deletes the pods that were bound, and releases their devices; returns their number."""
        started = time.process_time_ns()
        bound = [pod for pod in pods if self._store.get(Pod, pod.name, pod.namespace).spec.node_name]
        for pod in bound:
            claims.delete(pod)
        self._others_cpu_ns += time.process_time_ns() - started
        return len(bound)

    def _create(self, pods: Sequence[Pod]) -> None:
        claims, store = self._claims, self._store
        if claims is not None:
            claims.create_shared(pods)
        created = [store.create(pod) for pod in pods]
        if claims is not None:
            started = time.process_time_ns()
            claims.create_owned(created)
            self._others_cpu_ns += time.process_time_ns() - started

    def _on_decision(self, decision: Decision) -> None:
        self._decided.append(time.perf_counter_ns())

    def _bound(self) -> int:
        cache = self._scheduler.context.cache
        return cache.pod_count - cache.assumed_count

    async def _schedule(self, pods: Sequence[Pod], what: str) -> None:
        """Creates the pods and waits until the scheduler has finished with them."""
        for begin in range(0, len(pods), CREATED_AT_ONCE):
            self._create(pods[begin : begin + CREATED_AT_ONCE])
            await asyncio.sleep(0)
        quiet = turns = decided = 0
        while quiet < 3:
            # Sleeping would empty the processor's caches, which then counts as cost of the next pods.
            await asyncio.sleep(0 if turns < TURNS_BETWEEN_POLLS else POLL_SECONDS)
            if self._running.done():
                self._running.result()
            quiet = quiet + 1 if self._is_idle() else 0
            turns = turns + 1 if decided == len(self._decided) else 0
            decided = len(self._decided)
            self._progress(what, self._bound(), len(pods))

    def _is_idle(self) -> bool:
        """Whether no pod is left that could still be scheduled without another event."""
        context = self._scheduler.context
        queue = context.queue
        if context.cache.assumed_count or len(context.tasks) or queue.has_ready or queue.in_flight_counts():
            return False
        counts = queue.counts()
        given_up = 0
        if queue.groups is not None:
            # A group that does not fit is tried again and again: nothing else ends its backoff.
            entities = queue.groups.entities.values()
            given_up = sum(len(each.members) for each in entities if each.unschedulable_count > MAX_FAILURES)
        if counts.active + counts.backoff > given_up:
            return False
        return self._scheduler.pods.is_up_to(self._store.last_version(Pod))
