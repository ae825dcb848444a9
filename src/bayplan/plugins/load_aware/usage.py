"""What nodes really use: measurements that are fetched in the background and kept for a while.

A Score plugin only reads what is here. If it is older than the interval, a task is started that fetches the
next measurements; the scheduling cycle never waits for it. Answers and history are bounded, requests have a
time-out, and a source that fails is logged once until it works again. Measurements that are too old are not
used: a node without any has the lowest score, as in the model of these plugins.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import aiohttp
import msgspec

from bayplan.plugin import CPU, MEMORY, Handle, Object
from bayplan.plugin.args import ArgsRecord, FieldError, at, invalid, required, unsupported
from bayplan.plugin.resources import milli_value, value

INTERVAL_SECONDS: Final = 30.0
TIMEOUT_SECONDS: Final = 10.0
MAX_AGE_SECONDS: Final = 300.0
"""Older measurements are not used."""
WINDOW_SECONDS: Final = 900.0
MAX_SAMPLES: Final = 32
"""Of each node, from which mean and deviation are computed."""
MAX_ANSWER_BYTES: Final = 64 << 20
MAX_NODES: Final = 100_000

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


@dataclass(slots=True)
class Sample:
    """One measurement, in thousandths of a cpu and in bytes, or as shares of the node."""

    time: float
    amounts: dict[str, float]
    are_shares: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What a node uses of a resource, as a share of the node between 0 and 1."""

    latest: float
    mean: float
    deviation: float


@dataclass(slots=True)
class NodeHistory:
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))

    def load(self, resource: str, capacity: float, now: float) -> Load | None:
        """None if there is no recent measurement."""
        if not self.samples or now - self.samples[-1].time > MAX_AGE_SECONDS or capacity <= 0:
            return None
        shares = []
        for sample in self.samples:
            amount = sample.amounts.get(resource)
            if amount is not None and now - sample.time <= WINDOW_SECONDS:
                shares.append(amount if sample.are_shares else amount / capacity)
        if not shares:
            return None
        mean = sum(shares) / len(shares)
        variance = sum((share - mean) ** 2 for share in shares) / len(shares)
        return Load(shares[-1], mean, math.sqrt(variance))


Fetch = Callable[[], Awaitable[Mapping[str, Sample]]]


class NodeUsage:
    """The measurements of all nodes, by name."""

    def __init__(self, handle: Handle | None, provider: MetricProvider, fetch: Fetch | None = None) -> None:
        self._handle = handle
        self._provider = provider
        self._fetch = fetch or self._choose()
        self._nodes: dict[str, NodeHistory] = {}
        self._fetched_at = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        self.version = 0
        """Increases with each answer."""

    def of(self, node_name: str) -> NodeHistory | None:
        return self._nodes.get(node_name)

    def refresh(self) -> None:
        """Starts to fetch if that is due, and returns at once."""
        if self._handle is None or self._handle.now() - self._fetched_at < INTERVAL_SECONDS:
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
        self.add(found)

    def add(self, found: Mapping[str, Sample]) -> None:
        """New measurements; nodes without any are forgotten."""
        names = list(found)[:MAX_NODES]
        self._nodes = {name: self._nodes.get(name) or NodeHistory() for name in names}
        for name in names:
            samples = self._nodes[name].samples
            if not samples or samples[-1].time < found[name].time:
                samples.append(found[name])
        self.version += 1

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
            body = await response.content.read(MAX_ANSWER_BYTES + 1)
            if response.status != 200:
                raise ValueError(f"{url} answered {response.status}: {body[:200]!r}")
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(f"{url} answered with more than {MAX_ANSWER_BYTES >> 20} MiB")
        return vector(msgspec.json.decode(body, type=_Answer))


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    value: list[Any] = []


class _Vector(msgspec.Struct, frozen=True):
    result: list[_Series] = []


class _Answer(msgspec.Struct):
    status: str = ""
    data: _Vector = _Vector()
    error: str = ""


def vector(answer: _Answer) -> list[tuple[str, float]]:
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
