"""/statusz, /flagz and /configz: version, start time and settings.

As text for people (not a stable format), or as JSON or YAML if the request accepts exactly that kind and
version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import yaml
from aiohttp import web

from bayplan.process.serving.statuses import status_response

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
        """In the first accepted format that there is."""
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
