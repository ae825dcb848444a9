"""Probes: /healthz, /livez, /readyz, and each of their checks.

Unauthenticated clients see which check failed, but not why: the reason is logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from bayplan.metrics.instruments import escaped

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
