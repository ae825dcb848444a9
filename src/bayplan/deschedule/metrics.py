"""Metrics of descheduling, under descheduler's names, and the port that serves them.

Three of them have a second, deprecated name, which upstream still serves, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from bayplan import __version__
from bayplan.metrics.instruments import Families, InstrumentT, Level, Spec, counter, gauge, histogram

_STRATEGY_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)

PODS_EVICTED: Final = counter(
    "descheduler_pods_evicted_total",
    Level.ALPHA,
    "Number of total evicted pods, by the result, by the strategy, by the namespace, by the node name. "
    "'error' result means a pod could not be evicted",
    ("result", "strategy", "profile", "namespace", "node"),
)
LOOP_DURATION: Final = histogram(
    "descheduler_loop_duration_seconds",
    Level.ALPHA,
    "Time taken to complete a full descheduling cycle",
    buckets=(*_STRATEGY_BUCKETS, 250.0, 500.0),
)
STRATEGY_DURATION: Final = histogram(
    "descheduler_strategy_duration_seconds",
    Level.ALPHA,
    "Time taken to complete Each strategy of the descheduling operation",
    ("strategy", "profile"),
    buckets=_STRATEGY_BUCKETS,
)


def _deprecated(spec: Spec[InstrumentT], name: str) -> Spec[InstrumentT]:
    return replace(spec, name=name, help=f"(Deprecated since 0.34.0) {spec.help}")


OLD_PODS_EVICTED: Final = _deprecated(PODS_EVICTED, "descheduler_pods_evicted")
OLD_LOOP_DURATION: Final = _deprecated(LOOP_DURATION, "descheduler_descheduler_loop_duration_seconds")
OLD_STRATEGY_DURATION: Final = _deprecated(
    STRATEGY_DURATION, "descheduler_descheduler_strategy_duration_seconds"
)
BUILD_INFO: Final = gauge(
    "descheduler_build_info",
    Level.ALPHA,
    "Build info about descheduler, including Go version, Descheduler version, Git SHA, Git branch",
    ("AppVersion", "DeschedulerVersion"),
)


class DescheduleMetrics:
    """What is counted."""

    def __init__(self) -> None:
        self.families = Families(
            (
                PODS_EVICTED,
                LOOP_DURATION,
                STRATEGY_DURATION,
                BUILD_INFO,
                OLD_PODS_EVICTED,
                OLD_LOOP_DURATION,
                OLD_STRATEGY_DURATION,
            )
        )
        self.families[BUILD_INFO][__version__, "v0.36"].set(1)
        self._evicted = self.families[PODS_EVICTED], self.families[OLD_PODS_EVICTED]

    def evicted(self, result: str, strategy: str, profile: str, namespace: str, node: str) -> None:
        labels = result, strategy, profile, namespace, node
        for family in self._evicted:
            family[labels].inc()

    def loop_took(self, seconds: float) -> None:
        for family in (LOOP_DURATION, OLD_LOOP_DURATION):
            self.families[family][()].observe(seconds)

    def strategy_took(self, strategy: str, profile: str, seconds: float) -> None:
        for family in (STRATEGY_DURATION, OLD_STRATEGY_DURATION):
            self.families[family][strategy, profile].observe(seconds)

    def exposition(self) -> bytes:
        # Imported here because only a scrape needs prometheus-client, which takes a while to load.
        from bayplan.metrics.exposition import exposition

        return exposition(self.families)


_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST_LIMIT: Final = 16_384


async def serve(
    metrics: DescheduleMetrics, is_ready: Callable[[], bool], host: str, port: int
) -> asyncio.Server:
    """Serves GET /metrics, /healthz and /readyz over plain HTTP."""

    def response(path: str) -> tuple[str, bytes]:
        if path == "/metrics":
            return "200 OK", metrics.exposition()
        if path in ("/healthz", "/livez") or (path == "/readyz" and is_ready()):
            return "200 OK", b"ok"
        if path == "/readyz":
            return "503 Service Unavailable", b"no descheduling cycle has been completed yet"
        return "404 Not Found", b"404 page not found"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            method, path, *_ = head.split(b" ", 2)
            status, body = response(path.decode("ascii", "replace").partition("?")[0])
            if method not in (b"GET", b"HEAD"):
                status, body = "405 Method Not Allowed", b"405 method not allowed"
            sent = b"" if method == b"HEAD" else body
            header = f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{header}Connection: close\r\n\r\n".encode() + sent)
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # the client is gone, or sends no request
        finally:
            writer.close()

    return await asyncio.start_server(handle, host, port, limit=_REQUEST_LIMIT)
