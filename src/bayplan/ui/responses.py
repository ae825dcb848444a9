"""Responses of the page's server: JSON and the files below static/."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web

from bayplan.printable import is_printable, printable_lines

_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_NAME: Final = re.compile(r"[a-z0-9_-]+\.(?:html|css|js|svg)").fullmatch
_ESCAPED_CONTROL: Final = re.compile(r"\\u00(?:[01][0-9a-f]|7f|[89][0-9a-f])")
_encode: Final = msgspec.json.Encoder().encode


class ProblemError(Exception):
    """An error response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def body_of(content: dict[str, Any]) -> bytes:
    """JSON that is safe to display: control and bidirectional characters are escaped."""
    body = _encode(content)
    text = body.decode()
    if is_printable(text) and _ESCAPED_CONTROL.search(text) is None:
        return body
    return _encode(_printable(msgspec.json.decode(body)))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, list):
        return [_printable(one) for one in value]
    if isinstance(value, dict):
        return {printable_lines(key): _printable(one) for key, one in value.items()}
    return value


def json_response(
    content: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=body_of(content),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def file_response(name: str, status: int = 200) -> web.Response:
    if _NAME(name) is None:
        raise ProblemError(404, "there is no such file")
    try:
        body = (files("bayplan.ui") / "static" / name).read_bytes()
    except FileNotFoundError:
        raise ProblemError(404, "there is no such file") from None
    kind = _TYPES[name[name.rindex(".") :]]
    headers = {"Cache-Control": "no-cache", "Content-Type": f"{kind}; charset=utf-8"}
    return web.Response(body=body, status=status, headers=headers)
