"""Calls a plugin alone, without a scheduler: a fake handle, all results for a pod, and how they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Reasons
from bayplan.framework.plugin_api import NodeNames, Plugin, PreEnqueuePlugin
from bayplan.framework.state import CycleState, SignatureMemory
from bayplan.framework.status import SUCCESS, Status
from bayplan.runtime import calls
from bayplan.runtime.profile import make_step
from bayplan.scheduler.core import CoreHandle
from bayplan.state.cluster import Cluster
from bayplan.state.columns import Table
from bayplan.state.view import NodeColumns

PluginT = TypeVar("PluginT", bound=Plugin)


class FakeHandle(CoreHandle):
    """A handle for tests. Time passes only when the test changes `time`, and calls are recorded."""

    def __init__(self, cluster: Cluster | None = None, *, time: float = 0.0, seed: int = 0) -> None:
        super().__init__(Cluster() if cluster is None else cluster, seed)
        self.time = time
        self.bound: list[tuple[Pod, str, dict[str, str]]] = []
        self.activated: list[Pod] = []
        self.preempting: set[str] = set()
        """Uids of pods whose victims are being evicted."""

    def now(self) -> float:
        return self.time

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        self.bound.append((pod, node_name, dict(annotations or {})))

    def is_preempting(self, uid: str) -> bool:
        return uid in self.preempting

    def activate(self, pods: Iterable[Pod]) -> None:
        self.activated.extend(pods)


def make_plugin(plugin: type[PluginT], args: Any = None, cluster: Cluster | None = None) -> PluginT:
    """The plugin with these arguments, or its default ones, and a fake handle."""
    return plugin(args, FakeHandle(cluster))


MAX_DIFFERENCES: Final = 3
"""Nodes that are listed where results differ."""


class PluginCheckError(AssertionError):
    """A plugin fails a check. The text names plugin, pod and difference."""


MakePlugin = Callable[[Cluster], Plugin]
"""Creates the plugin for a cluster."""


def maker(plugin: type[Plugin], args: Any = None) -> MakePlugin:
    """Creates the plugin with these arguments, and a fake handle."""
    return lambda cluster: make_plugin(plugin, args, cluster)


@dataclass(frozen=True, slots=True)
class Answers:
    """All results of a plugin for a pod; names of nodes instead of rows."""

    pre_enqueue: Status
    pre_filter: Status | NodeNames
    statuses: dict[str, Status]
    scores: bool
    raw: dict[str, int]
    normalized: dict[str, int]


class PreparedPlugin:
    """A plugin whose PreFilter and PreScore were called for a pod."""

    def __init__(
        self, plugin: Plugin, pod: Pod, cluster: Cluster, memory: SignatureMemory | None = None
    ) -> None:
        self.plugin = plugin
        self.pod = pod
        self.cluster = cluster
        self.step = make_step(0, plugin)
        self.state = CycleState() if memory is None else CycleState.of(memory)
        self.everything = NodeColumns(cluster)
        self.there = NodeColumns(cluster, cluster.order)
        self.pre_filter = calls.pre_filter(self.step, self.state, pod, self.everything)
        self.filters = hasattr(plugin, "filter") and (
            isinstance(self.pre_filter, NodeNames) or self.pre_filter.is_success
        )
        self.scores = hasattr(plugin, "score")
        if self.scores:
            self.scores = calls.pre_score(self.step, self.state, pod, self.there).is_success

    def statuses(self, view: NodeColumns) -> list[Status | None]:
        if not self.filters:
            return [None] * len(view)
        reasons = Reasons(self.plugin.name)
        found = calls.filter_rows(self.step, self.state, self.pod, view, reasons)
        if found is None:
            return [None] * len(view)
        return [reasons.status(int(bits)) if bits else None for bits in found.reason_ids()]

    def raw(self, view: NodeColumns) -> list[int]:
        found: list[int] = calls.score_rows(self.step, self.state, self.pod, view).tolist()
        return found

    def answers(self) -> Answers:
        names, view = self.there.names, self.there
        raw = self.raw(view) if self.scores else []
        scores = np.array(raw, dtype=np.int64)
        normal = calls.normalized(self.step, self.state, self.pod, view, scores) if len(scores) else scores
        pre_enqueue = self.plugin.pre_enqueue(self.pod) if isinstance(self.plugin, PreEnqueuePlugin) else None
        return Answers(
            pre_enqueue=pre_enqueue or SUCCESS,
            pre_filter=self.pre_filter,
            statuses={
                name: status
                for name, status in zip(names, self.statuses(view), strict=True)
                if status is not None
            },
            scores=self.scores,
            raw=dict(zip(names, raw, strict=False)),
            normalized=dict(zip(names, normal.tolist(), strict=False)),
        )


def ask(make: MakePlugin, pod: Pod, cluster: Cluster) -> Answers:
    """The results of a plugin that is created for this call alone."""
    return PreparedPlugin(make(cluster), pod, cluster).answers()


def require(holds: bool, plugin: Plugin, pod: Pod, text: str) -> None:
    if not holds:
        raise PluginCheckError(f"plugin {plugin.name}, pod {pod.key}: {text}")


def same(plugin: Plugin, pod: Pod, one: Any, other: Any, text: str) -> None:
    if one == other:
        return
    if isinstance(one, Answers) and isinstance(other, Answers):
        for part in dataclasses.fields(Answers):
            same(plugin, pod, getattr(one, part.name), getattr(other, part.name), f"{part.name}: {text}")
    require(False, plugin, pod, f"{text}: {_difference(one, other)}")


def _difference(one: Any, other: Any) -> str:
    """What differs; of results by node only the first few."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return f"{one} and {other}"
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    shown = [f"{name}: {one.get(name)} and {other.get(name)}" for name in islice(names, MAX_DIFFERENCES)]
    more = [f"{len(names) - MAX_DIFFERENCES} more"] if len(names) > MAX_DIFFERENCES else []
    return "; ".join([*shown, *more])


def fingerprint(cluster: Cluster) -> Any:
    """All that a plugin must not change. Columns that are created on demand (labels, counts) are excluded."""
    return (
        _columns(cluster.nodes),
        _columns(cluster.pods),
        [id(node) for node in cluster.nodes.node],
        [id(pod) for pod in cluster.pods.pod],
        [msgspec.msgpack.encode(node) for node in cluster.nodes.node],
        [list(slots) for slots in cluster.row_pods],
        {row: set(ports) for row, ports in cluster.ports.on_row.items()},
        dict(cluster.claim_uses),
        {row: list(slots) for row, slots in cluster.nominated.items()},
        cluster.changes.times(),
        len(cluster.terms),
    )


def _columns(table: Table) -> list[bytes]:
    return [
        column.read.tobytes()
        for name, column in sorted(vars(table).items())
        if hasattr(column, "read") and not name.startswith("_")
    ]
