"""The paths and what they show. Any other path is 404, for authorized clients."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from bayplan.metrics.instruments import CONTENT_TYPE
from bayplan.net.listening import BodyTimeoutError, BodyTooLargeError, EncodedBodyError, read_body
from bayplan.process.serving.component_pages import flags_page, status_page
from bayplan.process.serving.health import CheckCounts, HealthCheck, HealthPage

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

NO_STORE: Final = {"Cache-Control": "no-cache, private"}
"""Responses show the current state and must not be cached."""

MAX_VERBOSITY_BYTES: Final = 1024
BODY_SECONDS: Final = 10.0

QUEUE: Final = "/queue"
_VERBOSITY: Final = "/debug/flags/v"


@dataclass(frozen=True, slots=True)
class About:
    """What the process reports about itself."""

    version: str
    emulated: str
    component: str = "kube-scheduler"
    started: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    runtime: str = f"python{platform.python_version()}"


@dataclass(frozen=True, slots=True)
class Routes:
    """What a process provides. All functions are called per request, and must be fast."""

    about: About
    metrics: Callable[[], bytes]
    reset_metrics: Callable[[], None]
    resources: Callable[[], Iterable[bytes]]
    """The body of /metrics/resources in chunks; empty while another process leads."""
    config: Callable[[], Any]
    """The complete configuration as JSON values, as it would be written to a file."""
    flags: Mapping[str, str]
    """Every flag with its value."""
    healthz: Sequence[HealthCheck] = ()
    livez: Sequence[HealthCheck] = ()
    readyz: Sequence[HealthCheck] = ()
    set_verbosity: Callable[[int], None] | None = None
    """Changes the log verbosity; None: /debug is not served."""
    queue: Callable[[str], Any] | None = None
    """The position of the pod `namespace/name` in the queue, as JSON values; None: /queue is not served."""
    now: Callable[[], float] = time.time


class RouteTable:
    """All paths with their handlers."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._counts = CheckCounts()
        self._table: dict[str, Handler] = {
            "/metrics": self._metrics,
            "/metrics/resources": self._resources,
            "/metrics/slis": self._slis,
            "/configz": self._configz,
            "/statusz": self._statusz,
            "/flagz": self._flagz,
        }
        for kind, checks in (("healthz", routes.healthz), ("livez", routes.livez), ("readyz", routes.readyz)):
            page = HealthPage(kind, checks, self._counts)
            self._table[f"/{kind}"] = page.all
            for check in page.checks.values():
                self._table[f"/{kind}/{check.name}"] = _one(page, check)
        if routes.set_verbosity is not None:
            self._table[_VERBOSITY] = self._verbosity
        if routes.queue is not None:
            self._table[QUEUE] = self._queue

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._table))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = self._table.get(request.path)
        if handler is None:
            return web.Response(status=404, text="404 page not found\n")
        return await handler(request)

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        if request.method == "DELETE":
            self._routes.reset_metrics()
            return web.Response(text="metrics reset\n")
        return _exposition(self._routes.metrics())

    async def _resources(self, request: web.BaseRequest) -> web.StreamResponse:
        """Written in chunks: in a large cluster it has many megabytes."""
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE, **NO_STORE})
        response.enable_compression()
        await response.prepare(request)
        for piece in self._routes.resources():
            await response.write(piece)
            await asyncio.sleep(0)  # lets other tasks run, however fast this client reads
        await response.write_eof()
        return response

    async def _slis(self, request: web.BaseRequest) -> web.Response:
        return _exposition(self._counts.exposition())

    async def _configz(self, request: web.BaseRequest) -> web.Response:
        body = msgspec.json.encode({"componentconfig": self._routes.config()})
        return web.Response(body=body, content_type="application/json")

    async def _queue(self, request: web.BaseRequest) -> web.Response:
        assert self._routes.queue is not None
        key = request.query.get("pod", "")
        if key.count("/") != 1:
            return web.Response(status=400, text="pass ?pod=NAMESPACE/NAME\n")
        body = msgspec.json.encode(self._routes.queue(key))
        return web.Response(body=body, content_type="application/json", headers=NO_STORE)

    async def _statusz(self, request: web.BaseRequest) -> web.Response:
        about = self._routes.about
        page = status_page(
            about.component,
            about.started,
            self._routes.now(),
            about.runtime,
            about.version,
            about.emulated,
            self.paths,
        )
        return page.answer(request.headers.get("Accept", ""))

    async def _flagz(self, request: web.BaseRequest) -> web.Response:
        page = flags_page(self._routes.about.component, self._routes.flags)
        return page.answer(request.headers.get("Accept", ""))

    async def _verbosity(self, request: web.BaseRequest) -> web.Response:
        assert self._routes.set_verbosity is not None
        if request.method != "PUT":
            return web.Response(status=406, text="unsupported http method\n")
        try:
            body = await read_body(request, max_bytes=MAX_VERBOSITY_BYTES, seconds=BODY_SECONDS)
        except (BodyTooLargeError, EncodedBodyError, BodyTimeoutError):
            return web.Response(status=400, text="the body must be a number\n")
        text = body.decode(errors="replace").strip()
        if not text.isdecimal():
            problem = f'strconv.ParseUint: parsing "{text}": invalid syntax\n'
            return web.Response(status=400, text=problem)
        self._routes.set_verbosity(int(text))
        return web.Response(text=f"successfully set klog.logging.verbosity to {text}\n")


def _one(page: HealthPage, check: HealthCheck) -> Handler:
    async def answer(request: web.BaseRequest) -> web.Response:
        return await page.one(check)

    return answer


def _exposition(body: bytes) -> web.Response:
    response = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
    response.enable_compression()
    return response
