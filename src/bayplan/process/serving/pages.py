"""The paths and what they show: probes, metrics, and pages about the component. Any other path is 404.

Clients of the probes (/healthz, /livez, /readyz) see which check failed, but not why: the reason is logged.
/statusz and /flagz are text for people (not a stable format), or JSON or YAML if the request accepts exactly
that kind and version.
"""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from bayplan.metrics.instruments import CONTENT_TYPE, escaped
from bayplan.net.listening import BodyTimeoutError, BodyTooLargeError, EncodedBodyError, read_body


def status_response(
    code: int, reason: str, message: str, details: dict[str, Any] | None = None, *, pretty: bool = False
) -> web.Response:
    """A Status that describes the error; `pretty` for people."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        **({} if details is None else {"details": details}),
        "code": code,
    }
    return web.Response(
        status=code,
        text=json.dumps(status, indent=2) if pretty else json.dumps(status, separators=(",", ":")) + "\n",
        content_type="application/json",
        headers={"X-Content-Type-Options": "nosniff"},
    )


PING: Final = "ping"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One health check. `problem` returns what is wrong; empty or None: healthy."""

    name: str
    problem: Callable[[], str | None] = lambda: None


@dataclass(slots=True)
class CheckCounts:
    """Results of the checks, for /metrics/slis."""

    last: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Whether the check succeeded last time, by check and path."""
    total: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def record(self, check: str, kind: str, healthy: bool) -> None:
        self.last[check, kind] = healthy
        self.total[check, kind, "success" if healthy else "error"] += 1

    def exposition(self) -> bytes:
        lines = []
        if self.last:
            lines += [
                "# HELP kubernetes_healthcheck [STABLE] Result of the last run of each health check.",
                "# TYPE kubernetes_healthcheck gauge",
            ]
            lines += [
                f'kubernetes_healthcheck{{name="{escaped(name)}",type="{kind}"}} {int(healthy)}'
                for (name, kind), healthy in sorted(self.last.items())
            ]
        if self.total:
            lines += [
                "# HELP kubernetes_healthchecks_total [STABLE] Number of health checks by result.",
                "# TYPE kubernetes_healthchecks_total counter",
            ]
            for (name, kind, status), count in sorted(self.total.items()):
                labels = f'name="{escaped(name)}",status="{status}",type="{kind}"'
                lines.append(f"kubernetes_healthchecks_total{{{labels}}} {count}")
        return "".join(f"{line}\n" for line in lines).encode()


class HealthPage:
    """The checks of one path, such as `readyz`."""

    def __init__(self, kind: str, checks: Sequence[HealthCheck], counts: CheckCounts) -> None:
        self.kind = kind
        self.checks = {check.name: check for check in checks or (HealthCheck(PING),)}
        self._counts = counts

    async def all(self, request: web.BaseRequest) -> web.Response:
        excluded = dict.fromkeys(request.query.getall("exclude", []))
        lines: list[str] = []
        failed: list[str] = []
        for check in self.checks.values():
            if check.name in excluded:
                del excluded[check.name]
                lines.append(f"[+]{check.name} excluded: ok")
            elif self._problem(check):
                failed.append(check.name)
                lines.append(f"[-]{check.name} failed: reason withheld")
            else:
                lines.append(f"[+]{check.name} ok")
        if excluded:
            named = ",".join(f'"{name}"' for name in excluded)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
        if failed:
            return _failure("\n".join([*lines, f"{self.kind} check failed"]))
        if "verbose" not in request.query:
            return _text("ok")
        return _text("".join(f"{line}\n" for line in [*lines, f"{self.kind} check passed"]))

    async def one(self, check: HealthCheck) -> web.Response:
        problem = self._problem(check)
        return _failure(f"internal server error: {problem}") if problem else _text("ok")

    def _problem(self, check: HealthCheck) -> str:
        problem = check.problem() or ""
        self._counts.record(check.name, self.kind, not problem)
        if problem:
            _log.info("%s check failed: %s: %s", self.kind, check.name, problem)
        return problem


def _text(text: str) -> web.Response:
    return web.Response(text=text, headers={"X-Content-Type-Options": "nosniff"})


def _failure(text: str) -> web.Response:
    return web.Response(status=500, text=f"{text}\n", headers={"X-Content-Type-Options": "nosniff"})


STATUSZ: Final = "Statusz"
FLAGZ: Final = "Flagz"

_GROUP: Final = "config.k8s.io"
_VERSION: Final = "v1beta1"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)
_ACCEPTED: Final = (
    "only the following media types are accepted: application/json, application/yaml, text/plain"
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page about the component, in all its formats."""

    component: str
    kind: str
    lines: tuple[str, ...]
    fields: Mapping[str, Any]

    def answer(self, accept: str) -> web.Response:
        """The page in the first accepted format that it is available in."""
        for wanted in accept.split(",") if accept else ("*/*",):
            media, *parameters = (part.strip() for part in wanted.split(";"))
            if media in ("*/*", "text/*", "text/plain"):
                return web.Response(text=self._text())
            given = dict(part.split("=", 1) for part in parameters if "=" in part)
            if (given.get("g"), given.get("v"), given.get("as")) != (_GROUP, _VERSION, self.kind):
                continue
            if media == "application/json":
                return web.Response(body=json.dumps(self._object()).encode(), content_type=media)
            if media == "application/yaml":
                return web.Response(body=yaml.safe_dump(self._object()).encode(), content_type=media)
        return status_response(406, "NotAcceptable", _ACCEPTED, pretty=True)

    def _text(self) -> str:
        title = f"{self.component} {self.kind.lower()}"
        return "".join(f"{line}\n" for line in ("", title, _WARNING, "", *self.lines))

    def _object(self) -> dict[str, Any]:
        head = {
            "kind": self.kind,
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "metadata": {"name": self.component},
        }
        return {**head, **self.fields}


def status_page(
    component: str,
    started: float,
    now: float,
    runtime: str,
    version: str,
    emulated: str,
    paths: tuple[str, ...],
) -> Page:
    """Version and start time (times are in seconds since the epoch)."""
    since = datetime.fromtimestamp(started, UTC)
    seconds = max(int(now - started), 0)
    up = f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"
    lines = (
        f"Started: {since:%a %b %e %H:%M:%S UTC %Y}",
        f"Up: {up}",
        f"Go version: {runtime}",
        f"Binary version: {version}",
        f"Emulation version: {emulated}",
        f"Paths: {' '.join(paths)}",
    )
    fields = {
        "startTime": f"{since:%Y-%m-%dT%H:%M:%SZ}",
        "uptimeSeconds": seconds,
        "goVersion": runtime,
        "binaryVersion": version,
        "emulationVersion": emulated,
        "paths": list(paths),
    }
    return Page(component, STATUSZ, lines, fields)


def flags_page(component: str, flags: Mapping[str, str]) -> Page:
    lines = tuple(f"{name}={flags[name]}" for name in sorted(flags))
    return Page(component, FLAGZ, lines, {"flags": dict(sorted(flags.items()))})


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
