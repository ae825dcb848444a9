"""Measurements of nodes from metrics-server or Prometheus, fetched in the background.

A Score plugin only reads the history. If it is older than the interval, a task is started that fetches the
next measurements; the scheduling cycle never waits for it. The size of responses is limited, requests have a
timeout, and a source that fails is logged once until it works again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import aiohttp
import msgspec

from bayplan.plugin import CPU, MEMORY, Handle, Object
from bayplan.plugin.args import ArgsRecord, FieldError, at, invalid, required, unsupported
from bayplan.plugin.objects import milli_value, value
from bayplan.plugins.library.load_aware.history import Sample, UsageHistory

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
