"""Objects in protobuf, as kubectl and other Go clients send them. They accept JSON, too, and get it as the
response.

A body begins with four magic bytes and a message with apiVersion and kind. `fields.txt` has the field
numbers. Go's encoder writes zero values, so they count as absent if JSON would omit them.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import msgspec

from bayplan.api.yaml_reader import decode_json
from bayplan.embedded.server.schema.types import NEWEST, Field, Type, kind_type_name, named_type
from bayplan.errors import DecodeError

MAGIC: Final = b"k8s\x00"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufError(Exception):
    """The bytes are not a valid message."""


def decode_protobuf(body: bytes) -> dict[str, Any]:
    """The object in a body.

    Raises:
        ProtobufError: it is malformed, or of a kind that this server supports only as JSON.
    """
    if not body.startswith(MAGIC):
        raise ProtobufError(
            f"provided data does not appear to be a protobuf message, expected prefix {MAGIC!r}"
        )
    try:
        parts = dict(_fields(body[len(MAGIC) :]))
        kind_parts = dict(_fields(_bytes(parts[1])))
        api_version, kind = _text(kind_parts.get(1, b"")), _text(kind_parts.get(2, b""))
        raw = _bytes(parts.get(2, b""))
    except (KeyError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtobufError("unable to read the kind of the message") from error
    try:
        of = _type_of(api_version, kind)
        content = _message(raw, of)
    except (
        IndexError,
        struct.error,
        UnicodeDecodeError,
        msgspec.DecodeError,
        DecodeError,
        RecursionError,
    ) as error:
        raise ProtobufError(f"{kind} in {api_version} cannot be read") from error
    return {"apiVersion": api_version, "kind": kind, **content}


def _type_of(api_version: str, kind: str) -> Type:
    group, _, version = api_version.rpartition("/")
    try:
        name = kind_type_name(group, version, kind)
        found = named_type(name, NEWEST)
    except KeyError as error:
        raise ProtobufError(f"{kind} in {api_version} is known as JSON only") from error
    if not _layout(name):
        raise ProtobufError(f"{kind} in {api_version} is known as JSON only")
    return found


@cache
def _layout(name: str) -> dict[int, Any]:
    """The field of each number of a message, or the layout of a message that JSON omits."""
    layout: dict[int, Any] = {}
    for field_name, field in (named_type(name, NEWEST).fields or {}).items():
        if not field.number:
            continue
        level = layout
        for step in field.number[:-1]:
            level = level.setdefault(step, {})
        level[field.number[-1]] = (field_name, field)
    return layout


def _message(data: bytes, of: Type) -> dict[str, Any]:
    content: dict[str, Any] = {}
    _read_into(content, data, _layout(of.name))
    return content


def _read_into(content: dict[str, Any], data: bytes, layout: dict[int, Any]) -> None:
    for number, raw in _fields(data):
        meaning = layout.get(number)
        if meaning is None:
            continue
        if isinstance(meaning, dict):
            _read_into(content, _bytes(raw), meaning)
            continue
        name, field = meaning
        _read_field(content, name, field, raw)


def _read_field(content: dict[str, Any], name: str, field: Field, raw: int | bytes) -> None:
    of = field.type
    if of.name == "list":
        assert of.items is not None
        content.setdefault(name, []).append(_value(raw, of.items))
        return
    if of.name == "map":
        assert of.items is not None
        entry = dict(_fields(_bytes(raw)))
        content.setdefault(name, {})[_text(entry.get(1, b""))] = _value(entry.get(2, b""), of.items)
        return
    found = _value(raw, of)
    is_zero = found in ("", 0, None) or found == {}
    if found is None or (is_zero and not field.optional and not field.required):
        return
    content[name] = found


def _value(raw: int | bytes, of: Type) -> Any:
    match of.name:
        case "string":
            return _text(raw)
        case "boolean":
            return bool(_number(raw))
        case "int32" | "int64":
            number = _number(raw)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "number":
            return struct.unpack("<d", _bytes(raw))[0]
        case "bytes":
            return b64encode(_bytes(raw)).decode()
        case "quantity":
            return _text(dict(_fields(_bytes(raw))).get(1, b"0"))
        case "int-or-string":
            parts = dict(_fields(_bytes(raw)))
            return _text(parts.get(3, b"")) if parts.get(1) else _value(parts.get(2, 0), named_type("int32"))
        case "time" | "microtime":
            return _time(dict(_fields(_bytes(raw))), micro=of.name == "microtime")
        case "list":
            # A list in a map is a message of its own, whose first field repeats.
            assert of.items is not None
            return [_value(part, of.items) for number, part in _fields(_bytes(raw)) if number == 1]
        case "any":
            inner = dict(_fields(_bytes(raw))).get(1, b"")
            return decode_json(_bytes(inner)) if inner else None
    return _message(_bytes(raw), of)


def _time(parts: dict[int, int | bytes], *, micro: bool) -> str | None:
    if not parts:
        return None
    seconds = _value(parts.get(1, 0), named_type("int64"))
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=_number(parts.get(2, 0)) // 1000)
    except OverflowError as error:
        raise IndexError("a time out of range") from error
    return moment.isoformat(timespec="microseconds" if micro else "seconds").replace("+00:00", "Z")


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()


def _bytes(raw: int | bytes) -> bytes:
    if not isinstance(raw, bytes):
        raise IndexError("a number where bytes should be")
    return raw


def _number(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise IndexError("bytes where a number should be")
    return raw


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The field numbers of a message, and their values."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise IndexError("no such wire type")
        if at + size > end:
            raise IndexError("cut off")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise IndexError("a number that is too long")
