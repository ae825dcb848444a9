"""One run of the experiment: pods arrive one after the other and stay; those that do not fit are dropped.

Nodes and pods are what a cluster with GPU sharing has, and the scheduler is configured by a file like any
other: all default filters run, and the policy is the only Score plugin.

Every arrival, placed or not, gives a line with the allocation and the fragmentation. Lines are grouped by the
share of the cluster's GPU that was requested until then, rounded to a whole percent; a published value is the
mean over the lines of a percent. The plot is written by hand: a plotting library would be the largest
dependency of the program.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import OWN_API_VERSION, ObjectMeta, ResourceList
from bayplan.api.node import Node, NodeStatus
from bayplan.api.pod import Container, Pod, PodSpec, ResourceRequirements
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.config.model import BAYPLAN_KIND
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Code
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.gpu_sharing import (
    FGD,
    GpuBestFit,
    GpuClustering,
    GpuDevices,
    GpuDotProd,
    GpuPacking,
    GpuRandom,
)
from bayplan.plugins.library.gpu_sharing.policies import FloatArray, Fragmentation, IntArray, TypicalPod
from bayplan.plugins.library.gpu_sharing.request import (
    DEVICE_MILLI,
    GPU_COUNT,
    GPU_MILLI,
    GPU_MODEL,
    models_in,
)
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.simulate.openb.trace import Orders, Trace, TraceNode, TracePod
from bayplan.state.view import NodeColumns

POLICIES: Final[dict[str, type[Plugin]]] = {
    "Random": GpuRandom,
    "DotProd": GpuDotProd,
    "GpuClustering": GpuClustering,
    "GpuPacking": GpuPacking,
    "BestFit": GpuBestFit,
    "FGD": FGD,
}
"""The policies by their published names."""

ALLOWED_PODS: Final = 1001
"""Pods per node: never a limit in the experiment."""
TYPICAL_SHARE: Final = 0.95
"""The typical pods cover at least this share of the trace."""


def make_core(policy: str, seed: int, typical: Sequence[TypicalPod]) -> SchedulingCore:
    """An empty cluster and a scheduler with this policy."""
    plugin = POLICIES[policy]
    plugins = (*BUILTIN_PLUGINS, plugin)
    return SchedulingCore(_config(plugin, seed, typical), plugins=plugins)


def _config(plugin: type[Plugin], seed: int, typical: Sequence[TypicalPod]) -> KubeSchedulerConfiguration:
    args: dict[str, Any] = {}
    if plugin is GpuRandom:
        args = {"seed": seed}
    elif plugin is FGD:
        args = {
            "typicalPods": [
                {
                    "cpuMilli": pod.cpu_milli,
                    "gpuMilli": pod.gpu_milli,
                    "gpuCount": pod.gpu_count,
                    "gpuModels": list(pod.models),
                    "weight": pod.share,
                }
                for pod in typical
            ]
        }
    everything = [{"name": "*"}]
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [
            {
                "plugins": {
                    "multiPoint": {"enabled": [{"name": plugin.name}]},
                    # All pods have the same priority: there is nothing to preempt.
                    "postFilter": {"disabled": everything},
                    "score": {"disabled": everything, "enabled": [{"name": plugin.name}]},
                },
                "pluginConfig": [{"name": plugin.name, "args": args}] if args else [],
            }
        ],
    }
    own = {"apiVersion": OWN_API_VERSION, "kind": BAYPLAN_KIND, "tieBreak": "FirstNode"}
    text = "".join(f"---\n{msgspec.json.encode(document).decode()}\n" for document in (scheduler, own))
    return parse_config(text, catalog=catalog_with([plugin]))


def make_node(node: TraceNode) -> Node:
    allocatable: ResourceList = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": ALLOWED_PODS,
    }
    if node.gpus:
        allocatable[GPU_COUNT] = node.gpus
    labels = {GPU_MODEL: node.model} if node.model else {}
    return Node(
        metadata=ObjectMeta(name=node.name, labels=labels),
        status=NodeStatus(allocatable=allocatable, capacity=allocatable),
    )


def make_pod(pod: TracePod) -> Pod:
    """A pod like that of the trace; every arrival needs a name and uid of its own (`arrival_of`)."""
    annotations = {}
    if pod.gpus:
        annotations = {GPU_COUNT: str(pod.gpus), GPU_MILLI: str(pod.gpu_milli)}
        if pod.gpu_spec:
            annotations[GPU_MODEL] = pod.gpu_spec
    requests: ResourceList = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    return Pod(
        metadata=ObjectMeta(name=pod.name, namespace="default", annotations=annotations),
        spec=PodSpec(
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
            scheduler_name="default-scheduler",
        ),
    )


def arrival_of(pod: Pod, number: int) -> Pod:
    """The pod that arrives as this number."""
    name = f"{pod.metadata.name}-{number}"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=name))


def typical_pods(pods: Sequence[TracePod]) -> tuple[TypicalPod, ...]:
    """The most frequent requests that together cover 95 % of the trace. Memory is left aside."""
    groups = Counter((pod.cpu_milli, pod.gpu_milli, pod.gpus, pod.gpu_spec) for pod in pods)
    by_number = sorted(groups.items(), key=lambda item: (item[1], item[0]), reverse=True)
    chosen, covered = [], 0
    for group, number in by_number:
        chosen.append((group, number))
        covered += number
        if covered >= TYPICAL_SHARE * len(pods):
            break
    return tuple(
        TypicalPod(cpu, milli, gpus, models_in(spec), number / covered)
        for (cpu, milli, gpus, spec), number in chosen
    )


# What is measured

_BATCH: Final = 4096
"""States whose fragmentation is computed at once."""


class Result(msgspec.Struct, frozen=True):
    """The result of one run. Percentages are of the GPU capacity of all nodes."""

    policy: str
    seed: int
    pods: int
    arrived_gpu_milli: int
    used_gpu_milli: int
    failed_pods: int
    alloc_at_100: float | None
    alloc_at_130: float | None
    frag_at_130: float | None
    seconds: float


class Point(NamedTuple):
    """The means over the lines of one percent."""

    arrived_percent: int
    alloc_percent: float
    frag_percent: float
    frag_ratio_percent: float
    """Fragmentation as a share of what is free."""
    failed_pods: int
    """Until the last of these lines."""


@dataclass(frozen=True, slots=True)
class Curves:
    """One entry for each arrival."""

    capacity_milli: int
    arrived_milli: IntArray
    """What was requested until then."""
    used_milli: IntArray
    fragmented_milli: FloatArray
    failed: IntArray
    """Pods that did not fit until then."""

    @property
    def percent(self) -> IntArray:
        """The whole percent that each line belongs to; halves are rounded to even."""
        return np.rint(100 * self.arrived_milli / self.capacity_milli).astype(np.int64)

    def points(self) -> list[Point]:
        """The curve: one point for each percent that has lines."""
        return [self._point(int(percent), self.percent == percent) for percent in np.unique(self.percent)]

    def at(self, percent: int) -> Point | None:
        """The means at a percent; if it has no lines, those of its neighbours. None: these have none."""
        lines = self.percent == percent
        if not lines.any():
            lines = abs(self.percent - percent) <= 1
        return self._point(percent, lines) if lines.any() else None

    def _point(self, percent: int, lines: NDArray[np.bool_]) -> Point:
        free = self.capacity_milli - self.used_milli[lines]
        ratio = 100 * self.fragmented_milli[lines] / np.maximum(free, 1)
        allocated = np.round(100 * self.used_milli[lines] / self.capacity_milli, 2)
        fragmented = 100 * float(self.fragmented_milli[lines].mean()) / self.capacity_milli
        return Point(
            percent,
            round(float(allocated.mean()), 2),
            round(fragmented, 2),
            round(float(np.round(ratio, 2).mean()), 2),
            int(self.failed[lines][-1]),
        )

    def result(self, policy: str, seed: int, seconds: float) -> Result:
        at_100, at_130 = self.at(100), self.at(130)
        return Result(
            policy=policy,
            seed=seed,
            pods=len(self.arrived_milli),
            arrived_gpu_milli=int(self.arrived_milli[-1]),
            used_gpu_milli=int(self.used_milli[-1]),
            failed_pods=int(self.failed[-1]),
            alloc_at_100=None if at_100 is None else at_100.alloc_percent,
            alloc_at_130=None if at_130 is None else at_130.alloc_percent,
            frag_at_130=None if at_130 is None else at_130.frag_percent,
            seconds=round(seconds, 3),
        )


class Placements:
    """Records the state of each pod's node after the pod came; fragmentation is computed at the end.

    Rows are nodes in the order in which they are listed.
    """

    def __init__(self, trace: Trace, orders: Orders) -> None:
        self._trace = trace
        self._nodes = [trace.nodes[index] for index in orders.nodes]
        pods = [trace.pods[index] for index in orders.arrivals]
        self._requested = np.array([pod.total_milli for pod in pods], dtype=np.int64)
        self._width = max(node.gpus for node in self._nodes)
        self._row = np.full(len(pods), -1, dtype=np.int64)
        self._cpu = np.zeros(len(pods), dtype=np.int64)
        self._free = np.zeros((len(pods), self._width), dtype=np.int64)

    def record(self, number: int, row: int, cpu_milli: int, free: IntArray) -> None:
        """The arrival of this number came to a node, which then has this much free."""
        self._row[number] = row
        self._cpu[number] = cpu_milli
        self._free[number] = free[: self._width]

    def curves(self, fragmentation: Fragmentation) -> Curves:
        placed = self._row >= 0
        return Curves(
            capacity_milli=self._trace.capacity_milli,
            arrived_milli=np.cumsum(self._requested),
            used_milli=np.cumsum(np.where(placed, self._requested, 0)),
            fragmented_milli=self._fragmented(fragmentation),
            failed=np.cumsum(~placed),
        )

    def _fragmented(self, fragmentation: Fragmentation) -> FloatArray:
        """The fragmentation of the cluster after each arrival: each placement changes that of one node."""
        count = np.array([node.gpus for node in self._nodes])
        idle = np.where(np.arange(self._width) < count[:, None], DEVICE_MILLI, 0)
        rows = np.concatenate((np.arange(len(self._nodes)), self._row))
        known = np.flatnonzero(rows >= 0)
        cpu = np.concatenate((np.array([node.cpu_milli for node in self._nodes]), self._cpu))
        free = np.concatenate((idle, self._free))
        values = np.zeros(len(rows))
        for start in range(0, len(known), _BATCH):
            some = known[start : start + _BATCH]
            models = [self._nodes[row].model for row in rows[some]] if fragmentation.has_models else ()
            values[some] = fragmentation.of(cpu[some], free[some], fragmentation.access(models))
        change = np.zeros(len(rows))
        last = np.zeros(len(self._nodes))
        for index in known.tolist():
            change[index] = values[index] - last[rows[index]]
            last[rows[index]] = values[index]
        found: FloatArray = np.cumsum(change)[len(self._nodes) :]
        return found


# A run

Progress = Callable[[int, int], None]
"""Called now and then with the number of arrivals so far, and of all."""

_PROGRESS_EVERY: Final = 200


def no_progress(done: int, total: int) -> None:
    return None


def run(
    trace: Trace, orders: Orders, policy: str, seed: int, progress: Progress = no_progress
) -> tuple[Result, Curves]:
    """Schedules all arrivals with a policy (`cluster.POLICIES`); the seed is used by the policy Random.

    Raises:
        BayplanError: a decision failed with an error.
    """
    started = time.perf_counter()
    typical = typical_pods(trace.pods)
    core = make_core(policy, seed, typical)
    core.load(make_node(trace.nodes[index]) for index in orders.nodes)
    placements = Placements(trace, orders)
    pods = {index: make_pod(trace.pods[index]) for index in set(orders.arrivals)}
    for number, index in enumerate(orders.arrivals):
        if number % _PROGRESS_EVERY == 0:
            progress(number, len(orders.arrivals))
        row = _schedule(core, arrival_of(pods[index], number))
        if row is not None:
            cpu_milli, _ = core.cluster.free(row)
            placements.record(number, row, cpu_milli, _free_gpus(core, row))
    curves = placements.curves(Fragmentation(typical))
    return curves.result(policy, seed, time.perf_counter() - started), curves


def _free_gpus(core: SchedulingCore, row: int) -> IntArray:
    node = NodeColumns(core.cluster, np.array([row], dtype=np.intp))
    free: IntArray = GpuDevices.of(node).free_milli(node)[0]
    return free


def _schedule(core: SchedulingCore, pod: Pod) -> int | None:
    """The row of the node that the pod gets; None if no node fits."""
    decision = core.place(pod)
    if decision.status.code is Code.ERROR:
        raise BayplanError(f"pod {pod.name}: {decision.message}")
    return core.cluster.nodes.row_of[decision.node_name] if decision.fits else None


# The plot

WIDTH: Final = 720
HEIGHT: Final = 460
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 24, 52
COLORS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#555555")
FIRST_PERCENT: Final = 60
"""Below, all policies allocate everything that is requested."""

Curve = Sequence[tuple[float, float]]
"""Requested and allocated, in percent of the cluster."""


def allocation_plot(curves: Mapping[str, Curve]) -> str:
    """One line for each curve, from 60 % requested on (or from the beginning, if none comes so far)."""
    shown = {name: [point for point in curve if point[0] >= FIRST_PERCENT] for name, curve in curves.items()}
    if not any(len(curve) > 1 for curve in shown.values()):
        shown = {name: list(curve) for name, curve in curves.items()}
    points = [point for curve in shown.values() for point in curve]
    area = _Area(
        min((x for x, _ in points), default=0.0),
        max((x for x, _ in points), default=1.0),
        min((y for _, y in points), default=0.0),
        100.0,
    )
    lines = [*area.grid()]
    for number, (name, curve) in enumerate(shown.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{area.x(x):.1f},{area.y(y):.1f}" for x, y in curve)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        y = TOP + 14 + 20 * number
        x = WIDTH - RIGHT + 16
        lines.append(
            f'<line x1="{x}" y1="{y - 4}" x2="{x + 18}" y2="{y - 4}" stroke="{color}" stroke-width="3"/>'
        )
        lines.append(f'<text x="{x + 26}" y="{y}">{escape(name)}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#222">'
    )
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return "\n".join([head, background, *lines, "</svg>", ""])


class _Area:
    """The axes, and where values are on them."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self._left, self._right = left, max(right, left + 1)
        self._bottom, self._top = min(5.0 * (bottom // 5), top - 5), top

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self._left) / (self._right - self._left)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self._bottom) / (self._top - self._bottom)

    def grid(self) -> list[str]:
        lines = []
        for value in range(int(self._bottom), int(self._top) + 1, 5):
            y = self.y(value)
            lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
            lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
        for value in range(-(-int(self._left) // 10) * 10, int(self._right) + 1, 10):
            x = self.x(value)
            lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        below = f'x="{middle}" y="{HEIGHT - 12}" text-anchor="middle"'
        lines.append(f"<text {below}>GPU requested, % of the cluster</text>")
        lines.append(
            f'<text transform="rotate(-90 18 {HEIGHT / 2})" x="18" y="{HEIGHT / 2}" text-anchor="middle">'
            "GPU allocated, % of the cluster</text>"
        )
        return lines
