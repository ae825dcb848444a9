"""What was measured on each node: where it comes from, the history, and the load by row of the node table.

Measurements of metrics-server or Prometheus are fetched in the background. A Score plugin only reads. If the
history is older than the interval, a task is started that fetches the next measurements; the scheduling cycle
never waits for it. The size of responses is limited, requests have a timeout, and a source that fails is
logged once until it works again.

Mean and deviation are computed from the samples of a window. Measurements that are too old are not used: a
node without any has the lowest score, as in scheduler-plugins. A row is computed again when its Node object
changed, when there are new measurements, or when one of its samples has become too old.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from weakref import ref

import aiohttp
import msgspec
import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import CPU, MEMORY, BoolColumn, Cluster, Handle, NodeColumns, Object, changed_rows
from bayplan.plugin._internal import Clock, Freshness, Log, Topic
from bayplan.plugin.args import ArgsRecord, FieldError, at, invalid, required, unsupported
from bayplan.plugin.objects import milli_value, value

MAX_AGE_SECONDS: Final = 300.0
"""A node whose last measurement is older has no load."""
WINDOW_SECONDS: Final = 900.0
MAX_SAMPLES: Final = 32
"""Of each node, from which mean and deviation are computed."""
MAX_NODES: Final = 100_000

NEVER: Final = -np.inf
"""The time of a missing measurement."""
_FIRST_CAPACITY: Final = 64

FloatArray = NDArray[np.float64]
_Item = TypeVar("_Item", np.float64, np.bool_)


@dataclass(slots=True)
class Sample:
    """One measurement, in thousandths of a cpu and in bytes, or as shares of the node."""

    time: float
    amounts: dict[str, float]
    are_shares: bool = False


class UsageHistory:
    """The last samples of each node. Arrays have the samples in the first axis, the newest last."""

    def __init__(self) -> None:
        shape = (MAX_SAMPLES, _FIRST_CAPACITY)
        self.times: FloatArray = np.full(shape, NEVER)
        self.amounts: dict[str, FloatArray] = {name: np.full(shape, np.nan) for name in (CPU, MEMORY)}
        """Not a number: the sample does not have this resource."""
        self.are_shares: NDArray[np.bool_] = np.zeros(shape, dtype=np.bool_)
        self.place_of: dict[str, int] = {}
        """The column of each node."""
        self._free: list[int] = []
        self.clock = Clock()
        """Measurements do not belong to a cluster, so they have a clock of their own."""
        self.measured = Topic(self.clock)
        self.moved: Log[str] = Log(self.clock)
        """The nodes that got or lost their column."""

    def add(self, found: Mapping[str, Sample]) -> None:
        """New measurements; nodes without any are forgotten."""
        measured = dict(islice(found.items(), MAX_NODES))
        for name in self.place_of.keys() - measured.keys():
            self.moved.record(name)
            self._forget(self.place_of.pop(name))
        for name in measured.keys() - self.place_of.keys():
            self.moved.record(name)
            self.place_of[name] = self._new_place()
        places = np.array([self.place_of[name] for name in measured], dtype=np.intp)
        times = np.array([sample.time for sample in measured.values()], dtype=np.float64)
        newer = times > self.times[-1, places]
        places = places[newer]
        _append(self.times, places, times[newer])
        for resource, amounts in self.amounts.items():
            values = [sample.amounts.get(resource, np.nan) for sample in measured.values()]
            _append(amounts, places, np.array(values, dtype=np.float64)[newer])
        are_shares = [sample.are_shares for sample in measured.values()]
        _append(self.are_shares, places, np.array(are_shares, dtype=np.bool_)[newer])
        self.measured.change()

    def _new_place(self) -> int:
        if self._free:
            return self._free.pop()
        place = len(self.place_of)
        if place == self.times.shape[1]:
            self.times = _doubled(self.times, NEVER)
            self.are_shares = _doubled(self.are_shares, False)
            self.amounts = {name: _doubled(array, np.nan) for name, array in self.amounts.items()}
        return place

    def _forget(self, place: int) -> None:
        self.times[:, place] = NEVER
        for amounts in self.amounts.values():
            amounts[:, place] = np.nan
        self._free.append(place)


def _append(samples: NDArray[_Item], places: NDArray[np.intp], newest: NDArray[_Item]) -> None:
    """Adds a sample to some nodes, which lose their oldest."""
    samples[:-1, places] = samples[1:, places]
    samples[-1, places] = newest


def _doubled(array: NDArray[_Item], fill: float) -> NDArray[_Item]:
    return np.concatenate((array, np.full_like(array, fill)), axis=1)


INTERVAL_SECONDS: Final = 30.0
TIMEOUT_SECONDS: Final = 10.0
MAX_RESPONSE_BYTES: Final = 64 << 20

METRICS_SERVER: Final = "KubernetesMetricsServer"
PROMETHEUS: Final = "Prometheus"

_QUERIES: Final = {
    CPU: "instance:node_cpu:ratio",
    MEMORY: "instance:node_memory_utilisation:ratio",
}
"""Recording rules for the node exporter. Their label `instance` is the node's name, perhaps with a port."""


class NodeMetrics(Object, frozen=True):
    """What metrics-server measured on a node."""

    api_resource: ClassVar = "nodes.v1beta1.metrics.k8s.io"

    timestamp: datetime | None = None
    """The end of the time in which it was measured."""
    usage: dict[str, str | int | float] = {}


class MetricProvider(ArgsRecord, frozen=True):
    """Where measurements come from."""

    type: str = METRICS_SERVER
    address: str = ""
    """Of Prometheus, for example http://prometheus.monitoring:9090."""
    token_file: str = ""
    """A file with a bearer token for Prometheus."""
    insecure_skip_verify: bool = False

    def validate(self, path: str) -> Iterator[FieldError]:
        if self.type not in (METRICS_SERVER, PROMETHEUS):
            yield unsupported(at(path, "type"), self.type, [METRICS_SERVER, PROMETHEUS])
        elif self.type == PROMETHEUS and not self.address:
            yield required(at(path, "address"), "the address of Prometheus")
        elif self.type == PROMETHEUS and not self.address.startswith(("http://", "https://")):
            yield invalid(at(path, "address"), self.address, "must begin with http:// or https://")


Fetch = Callable[[], Awaitable[Mapping[str, Sample]]]


class NodeUsage:
    """Brings the history up to date."""

    def __init__(self, handle: Handle, provider: MetricProvider, fetch: Fetch | None = None) -> None:
        self._handle = handle
        self._provider = provider
        self._fetch = fetch or self._choose()
        self.history = UsageHistory()
        self._fetched_at = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def refresh(self) -> None:
        """Starts to fetch if that is due, and returns at once."""
        if self._handle.now() - self._fetched_at < INTERVAL_SECONDS:
            return
        if self._task is not None and not self._task.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # only decisions are made here, outside of any loop
        self._fetched_at = self._handle.now()
        self._task = loop.create_task(self._update(self._handle))

    async def _update(self, handle: Handle) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await self._fetch()
        except Exception as error:  # whatever a source answers, scheduling goes on without it
            if not self._is_failing:
                handle.log.warning("cannot read the usage of nodes: %s: %s", type(error).__name__, error)
            self._is_failing = True
            return
        self._is_failing = False
        self.history.add(found)

    # Sources

    def _choose(self) -> Fetch:
        return self._from_prometheus if self._provider.type == PROMETHEUS else self._from_metrics_server

    async def _from_metrics_server(self) -> Mapping[str, Sample]:
        assert self._handle is not None
        items, _ = await self._handle.api.list(NodeMetrics)
        now = self._handle.now()
        return {
            item.name: Sample(
                now if item.timestamp is None else item.timestamp.timestamp(),
                {
                    CPU: float(milli_value(item.usage.get(CPU))),
                    MEMORY: float(value(item.usage.get(MEMORY))),
                },
            )
            for item in items
        }

    async def _from_prometheus(self) -> Mapping[str, Sample]:
        assert self._handle is not None
        headers = {}
        if self._provider.token_file:
            token = await asyncio.to_thread(Path(self._provider.token_file).read_text)
            headers["Authorization"] = f"Bearer {token.strip()}"
        found: dict[str, Sample] = {}
        now = self._handle.now()
        async with aiohttp.ClientSession(headers=headers) as session:
            for resource, query in _QUERIES.items():
                for node_name, share in await self._query(session, query):
                    sample = found.setdefault(node_name, Sample(now, {}, are_shares=True))
                    sample.amounts[resource] = min(max(share, 0.0), 1.0)
        return found

    async def _query(self, session: aiohttp.ClientSession, query: str) -> list[tuple[str, float]]:
        url = f"{self._provider.address.rstrip('/')}/api/v1/query"
        ssl = not self._provider.insecure_skip_verify
        async with session.get(url, params={"query": query}, ssl=ssl, allow_redirects=False) as response:
            body = await response.content.read(MAX_RESPONSE_BYTES + 1)
            if response.status != 200:
                raise ValueError(f"{url} answered {response.status}: {body[:200]!r}")
        if len(body) > MAX_RESPONSE_BYTES:
            raise ValueError(f"{url} answered with more than {MAX_RESPONSE_BYTES >> 20} MiB")
        return vector(msgspec.json.decode(body, type=_QueryResponse))


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    value: list[Any] = []


class _Vector(msgspec.Struct, frozen=True):
    result: list[_Series] = []


class _QueryResponse(msgspec.Struct):
    status: str = ""
    data: _Vector = _Vector()
    error: str = ""


def vector(answer: _QueryResponse) -> list[tuple[str, float]]:
    """Node names and values of an answer of Prometheus."""
    if answer.status != "success":
        raise ValueError(f"Prometheus answered {answer.status!r}: {answer.error[:200]}")
    found = []
    for series in answer.data.result:
        name = series.metric.get("node") or series.metric.get("instance", "").rpartition(":")[0]
        name = name or series.metric.get("instance", "")
        number = float(series.value[1]) if len(series.value) == 2 else math.nan
        if name and math.isfinite(number):
            found.append((name, number))
    return found


Capacity = Callable[[Cluster, int, str], int]
"""What a row of the cluster has of a resource, in the unit of the samples."""

_NO_PLACE: Final = -1


@dataclass(slots=True)
class Load:
    """What nodes use of a resource, as a share of the node between 0 and 1; not a number: unknown."""

    latest: Any
    mean: Any
    deviation: Any


class LoadColumns:
    """The loads of all rows for some resources."""

    def __init__(self, history: UsageHistory, resources: Sequence[str], capacity: Capacity) -> None:
        self._history = history
        self._capacity_of = capacity
        self._resources = tuple(resources)
        self._cluster: ref[Cluster] | None = None
        self._next_expiry = np.inf
        self._loads: dict[str, Load] = {}
        self.rows_computed = 0
        """How many rows were computed since the beginning: what the columns cost."""

    def update(self, cluster: Cluster, now: float) -> None:
        """Brings the columns up to date."""
        if self._cluster is None or self._cluster() is not cluster:
            self._start(cluster)
        self._grow(cluster.nodes.high)
        with self._freshness as stale, self._measured as stale_measurements:
            moved = self._measured.recorded(self._history.moved)
            changed = changed_rows(None if moved is None else stale, cluster)
            rows = (cluster.nodes.row_of.get(name) for name in moved or ())
            changed.update(row for row in rows if row is not None)
            for row in changed:
                self._read_node(cluster, row, now)
            if stale_measurements is None:
                self._compute(np.arange(len(self.measured_at)), now)
                return
            if now > self._next_expiry:
                changed.update(np.flatnonzero(self._expires < now).tolist())
            if changed:
                self._compute(np.array(sorted(changed), dtype=np.intp), now)

    def known(self, nodes: NodeColumns, now: float) -> BoolColumn:
        """Which of these rows have a recent measurement."""
        recent: BoolColumn = now - nodes.gather(self.measured_at) <= MAX_AGE_SECONDS
        return recent

    def load(self, nodes: NodeColumns, resource: str) -> Load:
        load = self._loads[resource]
        return Load(nodes.gather(load.latest), nodes.gather(load.mean), nodes.gather(load.deviation))

    def capacity(self, nodes: NodeColumns, resource: str) -> FloatArray:
        return nodes.gather(self._capacities[resource])

    def _start(self, cluster: Cluster) -> None:
        self._cluster = ref(cluster)
        self._freshness = cluster.changes.freshness(rows=(cluster.changes.nodes,))
        self._measured = Freshness(self._history.clock, (self._history.measured,))
        self._next_expiry = np.inf
        self._place: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._expires: FloatArray = np.zeros(0)
        self.measured_at: FloatArray = np.zeros(0)
        """The time of the last measurement."""
        self._names: list[str] = []
        self.named_at: FloatArray = np.zeros(0)
        """When the row was taken over from a node of another name, as far as that was noticed."""
        self._capacities: dict[str, FloatArray] = {name: np.zeros(0) for name in self._resources}
        self._loads = {name: Load(np.zeros(0), np.zeros(0), np.zeros(0)) for name in self._resources}

    def _grow(self, rows: int) -> None:
        more = rows - len(self._place)
        if more <= 0:
            return
        self._place = np.concatenate((self._place, np.full(more, _NO_PLACE)))
        self._expires = np.concatenate((self._expires, np.full(more, np.inf)))
        self.measured_at = np.concatenate((self.measured_at, np.full(more, NEVER)))
        self._names += [""] * more
        self.named_at = np.concatenate((self.named_at, np.full(more, NEVER)))
        for resource, load in self._loads.items():
            unknown = np.full(more, np.nan)
            self._capacities[resource] = np.concatenate((self._capacities[resource], np.zeros(more)))
            for field in ("latest", "mean", "deviation"):
                setattr(load, field, np.concatenate((getattr(load, field), unknown)))

    def _read_node(self, cluster: Cluster, row: int, now: float) -> None:
        exists = cluster.nodes.node[row] is not None
        name = cluster.nodes.name[row]
        if self._names[row] != name:
            if self._names[row]:
                self.named_at[row] = now
            self._names[row] = name
        self._place[row] = self._history.place_of.get(name, _NO_PLACE) if exists else _NO_PLACE
        for resource, capacity in self._capacities.items():
            capacity[row] = self._capacity_of(cluster, row, resource) if exists else 0

    def _compute(self, rows: NDArray[np.intp], now: float) -> None:
        self.rows_computed += len(rows)
        places = self._place[rows]
        has_place = places != _NO_PLACE
        times = self._history.times[:, places]
        recent = has_place & (now - times <= WINDOW_SECONDS)
        self.measured_at[rows] = np.where(has_place, times[-1], NEVER)
        self._expires[rows] = np.where(recent, times, np.inf).min(axis=0) + WINDOW_SECONDS
        self._next_expiry = self._expires.min(initial=np.inf)
        for resource, load in self._loads.items():
            amounts = self._history.amounts[resource][:, places]
            valid = recent & ~np.isnan(amounts)
            size = self._capacities[resource][rows]
            divisor = np.where(self._history.are_shares[:, places], 1.0, np.maximum(size, 1.0))
            shares = np.where(valid, amounts / divisor, 0.0)
            count = valid.sum(axis=0)
            known = (count > 0) & (size > 0)
            count = np.maximum(count, 1)
            mean = shares.sum(axis=0) / count
            variance = np.where(valid, (shares - mean) ** 2, 0.0).sum(axis=0) / count
            last = len(valid) - 1 - valid[::-1].argmax(axis=0)
            load.latest[rows] = np.where(known, shares[last, np.arange(len(rows))], np.nan)
            load.mean[rows] = np.where(known, mean, np.nan)
            load.deviation[rows] = np.where(known, np.sqrt(variance), np.nan)
