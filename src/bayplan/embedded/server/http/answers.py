"""How responses are written: JSON or YAML, indented for people who use curl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from bayplan.embedded.server.http.requests import JSON, YAML, flag
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import APIError

_LOOKERS: Final = ("curl", "Wget", "Mozilla/5.0")
_REASONS: Final = {404: "NotFound", 409: "Conflict", 410: "Expired", 500: "InternalError"}
_PIECE: Final = 64 * 1024
"""Bytes that are written at once; then others get their turn."""

_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_encode = msgspec.json.Encoder().encode


def answer(
    request: web.BaseRequest,
    content: Any,
    status: int = 200,
    *,
    as_yaml: bool = False,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An answer with a value, or with JSON that is encoded already (bytes)."""
    if as_yaml:
        plain = msgspec.json.decode(content) if isinstance(content, bytes) else content
        text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        return web.Response(text=text, status=status, content_type=YAML, headers=headers)
    body = content if isinstance(content, bytes) else _encode(content)
    if is_for_people(request):
        body = msgspec.json.format(body, indent=2) + b"\n"
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)


def is_for_people(request: web.BaseRequest) -> bool:
    if "pretty" in request.query:
        return flag(request, "pretty")
    return request.headers.get("User-Agent", "").startswith(_LOOKERS)


def error_response(request: web.BaseRequest, error: APIError) -> web.Response:
    """The Status for an error."""
    headers = {}
    if isinstance(error, StatusError):
        status = error.status()
        if error.retry_after_seconds is not None:
            headers["Retry-After"] = str(error.retry_after_seconds)
    else:
        code = error.code or 500
        status = StatusError(str(error), code, reason=_REASONS.get(code, "")).status()
    if status["code"] == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="bayplan"'
    return answer(request, status, status["code"], headers=headers)


def pieces(parts: Iterable[bytes]) -> Iterable[bytes]:
    """The parts, joined and cut to pieces of a size that is worth a write, and never much larger.

    A client that does not read has no more than a piece or two waiting for it, however large objects are.
    """
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _PIECE:
            *small, last = waiting
            waiting.clear()
            size = 0
            room = _PIECE - sum(map(len, small))
            yield b"".join((*small, last[:room]))
            yield from (last[start : start + _PIECE] for start in range(room, len(last), _PIECE))
    if waiting:
        yield b"".join(waiting)
