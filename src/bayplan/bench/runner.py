"""Measures decisions: sets up the cluster of a workload, then times the scheduling of its pods, one by one.

Only the decision is timed, from the decoded pod to the assumed one. Pods are created and decoded from JSON
before the clock starts, each into its own objects as a watch would deliver them: pods that share parts of a
template would favour a cache that compares by identity. Initial pods are scheduled too, but not timed, so
that the cluster is in a state that the scheduler itself produced.

`workload.py` has what is scheduled. `whole.py` measures the whole path of a pod.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO, TypeVar

import msgspec
from rich.table import Table

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.bench.workload import Workload
from bayplan.config import KubeSchedulerConfiguration
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Code
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore

ROUNDS: Final = 10
"""A pod that is not scheduled after this number of evictions indicates an error."""

SLICE: Final = 500
"""Pods between two progress updates; the clocks stop there."""

PROFILE_LINES: Final = 40

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and the total."""


class BenchError(BayplanError):
    """A benchmark could not be run or measured."""


class UnknownWorkloadError(BenchError):
    """No workload has that name."""

    name: str
    suggestions: tuple[str, ...]
    """Names that are spelled similarly, the nearest first."""

    def __init__(self, name: str, suggestions: Sequence[str]) -> None:
        super().__init__(name, suggestions)
        self.name = name
        self.suggestions = tuple(suggestions)

    def __str__(self) -> str:
        hint = (
            f"did you mean {' or '.join(self.suggestions)}?" if self.suggestions else "--list shows them all"
        )
        return f"unknown workload {self.name!r}: {hint}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a run: nodes, initial pods, measured pods."""

    nodes: int
    init_pods: int
    pods: int

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise BenchError("a benchmark needs at least one node")
        if self.pods < 1:
            raise BenchError("a benchmark needs at least one pod to measure")
        if self.init_pods < 0:
            raise BenchError("the number of pods that are there first cannot be negative")


def no_progress(what: str, done: int, total: int) -> None:
    """Progress that is not displayed."""


def progress_on(stream: TextIO, label: str) -> Progress:
    """Progress as one line that is overwritten if `stream` is a terminal, and none otherwise."""
    if not stream.isatty():
        return no_progress

    def show(what: str, done: int, total: int) -> None:
        text = f"{label}: {what} {done:,}/{total:,}" if what else ""
        stream.write(f"\r\x1b[2K{text}")
        stream.flush()

    return show


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One workload at one size. Times are microseconds; field names are those of the JSON line."""

    workload: str
    nodes: int
    init_pods: int
    pods: int
    """Pods measured. Background pods are not among them, but their time is in all the figures."""
    pods_per_s: float
    cpu_us_per_pod: float
    """CPU time of the process over all measured attempts, divided by `pods`."""
    p50_us: float
    p99_us: float
    """Percentiles over pods, from the first attempt to the last one where it takes several."""
    rows_per_pod: float
    """Node rows evaluated for each pod; `nodes` where nothing is reused."""
    peak_rss_mb: float
    """The peak memory of the process, set-up included."""
    scheduled: int
    unscheduled: int
    """Pods, background ones included, that found a node and that did not."""
    evicted: int
    kubernetes_version: str = ""
    """The version whose rules were measured; empty if it is unknown."""

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()


def percentile(ordered: Sequence[int], percent: float) -> float:
    """Nearest-rank percentile of values in ascending order, 0 if there are none."""
    if not ordered:
        return 0.0
    rank = max(1, -(-len(ordered) * percent // 100))
    return float(ordered[int(rank) - 1])


def peak_rss_mb() -> float:
    """The high-water mark of this process's memory, in MiB.

    On Linux it is read from /proc: getrusage would also count the process that started this one, up to
    the moment it became bayplan.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


CORE_TITLE: Final = "decision core, one pod after the other"
WHOLE_TITLE: Final = "the whole way of a pod: created, queued, decided, bound, confirmed"


def make_table(measurements: Sequence[Measurement], title: str = CORE_TITLE) -> Table:
    """The measurements as a table: one row per workload."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("workload", overflow="fold")
    for heading in ("nodes", "init", "pods", "placed", "pods/s", "CPU µs", "p50 µs", "p99 µs", "rows", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in measurements:
        table.add_row(
            one.workload,
            f"{one.nodes:,}",
            f"{one.init_pods:,}",
            f"{one.pods:,}",
            f"{one.scheduled:,}",
            f"{one.pods_per_s:,.0f}",
            f"{one.cpu_us_per_pod:,.1f}",
            f"{one.p50_us:,.1f}",
            f"{one.p99_us:,.1f}",
            f"{one.rows_per_pod:,.1f}",
            f"{one.peak_rss_mb:,.0f}",
        )
    return table


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt.

    Either the node of the pod, or the victims that must be evicted first and their node, or neither if the
    pod fits on no node.
    """

    node: str | None = None
    victims: Sequence[Pod] = ()
    nominated: str = ""


class MeasuredCore:
    """A cluster and its scheduler: pods are decided one after the other and assumed."""

    def __init__(self, core: SchedulingCore) -> None:
        self._core = core
        self._nominated: dict[str, str] = {}

    @property
    def rows_evaluated(self) -> int:
        """Rows for which filters or scores were computed: with cached results only those that changed."""
        return self._core.rows_computed

    def add_namespace(self, namespace: Namespace) -> None:
        self._core.cluster.objects.put(namespace)

    def add_node(self, node: Node) -> None:
        self._core.cluster.set_node(node)

    def schedule_one(self, pod: Pod) -> Outcome:
        """Schedules the pod and, if it fits, assumes it. This is measured."""
        nominated = self._nominated.pop(pod.uid, None) if self._nominated else None
        if nominated is not None:
            pod = _nominated_to(pod, nominated)
        decision = self._core.place(pod)
        if decision.status.code is Code.ERROR:
            raise BenchError(f"{pod.key}: {decision.message}")
        if decision.fits:
            return Outcome(decision.node_name)
        eviction = decision.post_filter.eviction if decision.post_filter is not None else None
        if eviction is None:
            return Outcome()
        return Outcome(None, eviction.victims, eviction.node_name)

    def evict(self, preemptor: Pod, outcome: Outcome) -> None:
        """Removes the victims from the cluster, and nominates the preemptor to their node."""
        for victim in outcome.victims:
            self._core.cluster.remove_pod(victim.uid)
        self._core.cluster.nominate(preemptor, outcome.nominated)
        self._nominated[preemptor.uid] = outcome.nominated


def _nominated_to(pod: Pod, node_name: str) -> Pod:
    status = msgspec.structs.replace(pod.status, nominated_node_name=node_name)
    return msgspec.structs.replace(pod, status=status)


def make_core(
    release: Release = DEFAULT_RELEASE,
    config: KubeSchedulerConfiguration | None = None,
    plugins: Sequence[type[Plugin]] = (),
) -> MeasuredCore:
    """An empty cluster; without a configuration the default one, with all nodes scored."""
    return MeasuredCore(SchedulingCore(config, plugins=(*BUILTIN_PLUGINS, *plugins), release=release))


@dataclass(slots=True)
class _Clocks:
    """Times and counts of the measured pods."""

    wall_ns: int = 0
    cpu_ns: int = 0
    scheduled: int = 0
    unscheduled: int = 0
    evicted: int = 0


def measure(
    workload: Workload,
    core: MeasuredCore,
    sizes: Sizes,
    *,
    progress: Progress = no_progress,
    profile: TextIO | None = None,
    on_start: Callable[[], None] | None = None,
) -> Measurement:
    """Runs the workload against an empty core; with `profile`, writes a profile there.

    `on_start` is called when the cluster is set up and the measurement begins.
    """
    if workload.needs_scheduler:
        raise BenchError(f"{workload.name} needs the whole scheduler, leave out --core")
    for namespace in as_delivered(workload.make_namespaces(), Namespace):
        core.add_namespace(namespace)
    for done, node in enumerate(as_delivered(workload.make_nodes(sizes.nodes), Node), 1):
        core.add_node(node)
        if done % SLICE == 0:
            progress("adding nodes", done, sizes.nodes)
    for done, pod in enumerate(as_delivered(workload.make_init_pods(sizes.init_pods), Pod), 1):
        if _schedule(core, pod)[0].node is None:
            raise BenchError(
                f"{workload.name}: {pod.key}, one of the pods that should be there first, fits nowhere:"
                f" {sizes.init_pods:,} of them are too many for {sizes.nodes:,} nodes"
            )
        if done % SLICE == 0:
            progress("placing the first pods", done, sizes.init_pods)
    pods = list(as_delivered(workload.make_pods(sizes.pods), Pod))

    profiler = cProfile.Profile() if profile else None
    clocks = _Clocks()
    latencies: list[int] = []
    rows_before = core.rows_evaluated
    # Start from a clean heap; collections while measuring are part of the cost.
    gc.collect()
    if on_start is not None:
        on_start()
    for begin in range(0, len(pods), SLICE):
        progress("measuring", begin, len(pods))
        _time_slice(core, pods[begin : begin + SLICE], clocks, latencies, profiler)
    progress("", 0, 0)
    if profiler and profile:
        pstats.Stats(profiler, stream=profile).sort_stats("tottime").print_stats(PROFILE_LINES)

    latencies.sort()
    return Measurement(
        workload=workload.name,
        nodes=sizes.nodes,
        init_pods=sizes.init_pods,
        pods=sizes.pods,
        pods_per_s=round(sizes.pods * 1e9 / max(clocks.wall_ns, 1), 1),
        cpu_us_per_pod=round(clocks.cpu_ns / 1e3 / sizes.pods, 2),
        p50_us=round(percentile(latencies, 50) / 1e3, 2),
        p99_us=round(percentile(latencies, 99) / 1e3, 2),
        rows_per_pod=round((core.rows_evaluated - rows_before) / sizes.pods, 2),
        peak_rss_mb=peak_rss_mb(),
        scheduled=clocks.scheduled,
        unscheduled=clocks.unscheduled,
        evicted=clocks.evicted,
    )


def _time_slice(
    core: MeasuredCore,
    pods: Sequence[Pod],
    clocks: _Clocks,
    latencies: list[int],
    profiler: cProfile.Profile | None,
) -> None:
    clock = time.perf_counter_ns
    if profiler:
        profiler.enable()
    cpu_before = time.process_time_ns()
    wall_before = clock()
    for pod in pods:
        before = clock()
        outcome, evicted = _schedule(core, pod)
        latencies.append(clock() - before)
        if outcome.node is None:
            clocks.unscheduled += 1
        else:
            clocks.scheduled += 1
            clocks.evicted += evicted
    clocks.wall_ns += clock() - wall_before
    clocks.cpu_ns += time.process_time_ns() - cpu_before
    if profiler:
        profiler.disable()


def _schedule(core: MeasuredCore, pod: Pod) -> tuple[Outcome, int]:
    """Schedules a pod, with as many evictions as the core requires; the last outcome, and the evicted
    pods."""
    outcome = core.schedule_one(pod)
    evicted = rounds = 0
    while outcome.node is None and outcome.victims:
        if rounds == ROUNDS:
            raise BenchError(f"{pod.key} is not placed after {ROUNDS} rounds of eviction")
        core.evict(pod, outcome)
        evicted += len(outcome.victims)
        rounds += 1
        outcome = core.schedule_one(pod)
    return outcome, evicted


def as_delivered(objects: Iterable[T], kind: type[T]) -> Iterable[T]:
    """The objects as a client would decode them."""
    decoder = msgspec.json.Decoder(kind)
    encoder = msgspec.json.Encoder()
    for made in objects:
        yield decoder.decode(encoder.encode(made))
