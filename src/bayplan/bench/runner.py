"""Measures one workload: sets the cluster up, then times the scheduling of pods one after the other.

Only the decision is timed. Pods are created and decoded from JSON before the clock starts, each into its own
objects as a watch would deliver them: pods that share parts of a template would favour a cache that compares
by identity. Initial pods are scheduled too, but not timed, so that the cluster is in a state that
the scheduler itself produced.

`protocol.py` defines what is driven, `workload.py` what is scheduled.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO, TypeVar

import msgspec

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.bench.errors import BenchError
from bayplan.bench.measurement import Measurement, peak_rss_mb, percentile
from bayplan.bench.protocol import CoreUnderTest, Outcome
from bayplan.bench.workload import Workload

ROUNDS: Final = 10
"""A pod that is not scheduled after this number of evictions indicates an error."""

SLICE: Final = 500
"""Pods between two progress updates; the clocks stop there."""

PROFILE_LINES: Final = 40

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and the total."""


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


@dataclass(slots=True)
class _Clocks:
    """Times and counts of the measured pods."""

    wall_ns: int = 0
    cpu_ns: int = 0
    scheduled: int = 0
    unscheduled: int = 0
    evicted: int = 0


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


def measure(
    workload: Workload,
    core: CoreUnderTest,
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
    core: CoreUnderTest,
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


def _schedule(core: CoreUnderTest, pod: Pod) -> tuple[Outcome, int]:
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
