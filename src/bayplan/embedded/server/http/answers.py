"""Writes responses: JSON or YAML, indented for curl and browsers.

Large ones are produced in steps or in a thread, so that other requests do not wait (`server/steps.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from bayplan.embedded.server.http.requests import JSON, PROTOBUF, YAML, Form, flag, not_acceptable
from bayplan.embedded.server.schema.protobuf import ProtobufError, encode_protobuf
from bayplan.embedded.server.statuses import StatusError
from bayplan.embedded.server.steps import MAX_YAML_BYTES, in_thread_if, paced
from bayplan.errors import APIError

_HUMAN_CLIENTS: Final = ("curl", "Wget", "Mozilla/5.0")
_REASONS: Final = {404: "NotFound", 409: "Conflict", 410: "Expired", 500: "InternalError"}
_STREAMED: Final = 1024 * 1024
"""Lists larger than this are streamed, and never indented."""
_PIECE: Final = 64 * 1024
"""Bytes that are written at once, before other tasks run."""

_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def answer(
    request: web.BaseRequest, content: Any, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON response with a value, or with encoded JSON (bytes)."""
    body = content if isinstance(content, bytes) else _encode(content)
    if is_for_people(request):
        body = msgspec.json.format(body, indent=2) + b"\n"
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)


_MAX_PROTOBUF_LIST: Final = 64 * 1024
"""Bytes of JSON of a list that is encoded in protobuf where the client accepts both."""


async def answer_as(
    request: web.BaseRequest,
    form: Form,
    content: Any,
    status: int = 200,
    *,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An answer in JSON, or in YAML or protobuf where the client prefers that."""
    body = content if isinstance(content, bytes) else _encode(content)
    if form.protobuf:
        encoded = await _protobuf_answer(form, lambda: _decode(body), len(body), status, headers)
        if encoded is not None:
            return encoded
    if not form.yaml:
        return answer(request, body, status, headers=headers)
    text = await in_thread_if(len(body) > MAX_YAML_BYTES, lambda: _yaml(msgspec.json.decode(body)))
    return web.Response(text=text, status=status, content_type=YAML, headers=headers)


async def answer_list(
    request: web.BaseRequest,
    form: Form,
    head: dict[str, Any],
    bodies: Sequence[bytes],
    durable: Callable[[], Awaitable[None]],
    *,
    field: str = "items",
) -> web.StreamResponse:
    """An answer with a list whose entries are JSON. `durable` waits until all of it would survive a crash."""
    size = sum(map(len, bodies))
    if form.protobuf and not (form.or_json and size > _MAX_PROTOBUF_LIST):
        # Lists of JSON are put together; in protobuf every object has to be encoded.
        encoded = await _protobuf_answer(form, lambda: {**head, field: list(map(_decode, bodies))}, size)
        if encoded is not None:
            return encoded
    if form.yaml:
        is_slow = size > MAX_YAML_BYTES
        text = await in_thread_if(is_slow, lambda: _yaml({**head, field: list(map(_decode, bodies))}))
        return web.Response(text=text, content_type=YAML)
    parts = _list_parts(_encode(head), field, bodies)
    if size < _STREAMED:
        return answer(request, b"".join(parts))
    await durable()
    response = web.StreamResponse()
    response.content_type = JSON
    await response.prepare(request)
    async for piece in paced(pieces(parts)):
        await response.write(piece)
    await response.write_eof()
    return response


async def _protobuf_answer(
    form: Form,
    content: Callable[[], Any],
    size: int,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response | None:
    """The answer; None if the kind is known as JSON only, and JSON is accepted, too."""
    try:
        body = await in_thread_if(size > MAX_YAML_BYTES, lambda: encode_protobuf(content()))
    except ProtobufError as error:
        if form.or_json:
            return None
        raise not_acceptable() from error
    return web.Response(body=body, status=status, content_type=PROTOBUF, headers=headers)


def _yaml(content: Any) -> str:
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def _list_parts(head: bytes, field: str, bodies: Iterable[bytes]) -> Iterator[bytes]:
    yield head[:-1] + f',"{field}":['.encode()
    separator = b""
    for body in bodies:
        yield separator + body
        separator = b","
    yield b"]}"


def is_for_people(request: web.BaseRequest) -> bool:
    if "pretty" in request.query:
        return flag(request, "pretty")
    return request.headers.get("User-Agent", "").startswith(_HUMAN_CLIENTS)


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
    """The parts, joined and split into pieces of about the same size.

    At most one or two pieces are buffered for a slow client, however large objects are.
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
