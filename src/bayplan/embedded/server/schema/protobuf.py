"""Objects in protobuf, as kubectl and other Go clients send them. Most accept JSON, too, and get it as the
response; a client that accepts nothing else gets protobuf.

A body begins with four magic bytes and a message with apiVersion and kind. `fields.txt` has the field
numbers. Go's encoder writes zero values, so they count as absent if JSON would omit them.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import msgspec

from bayplan.api.yaml_reader import decode_json
from bayplan.embedded.server.schema.types import NEWEST, Field, Type, kind_type_name, named_type
from bayplan.errors import DecodeError

MAGIC: Final = b"k8s\x00"
_SCHEMA: Final = "JSONSchemaProps"

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
        parts = dict(read_fields(body[len(MAGIC) :]))
        kind_parts = dict(read_fields(_bytes(parts[1])))
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
    for number, raw in read_fields(data):
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
        entry = dict(read_fields(_bytes(raw)))
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
            (number,) = struct.unpack("<d", _bytes(raw))
            return int(number) if number.is_integer() else number  # as Go writes it in JSON
        case "bytes":
            return b64encode(_bytes(raw)).decode()
        case "quantity":
            return _text(dict(read_fields(_bytes(raw))).get(1, b"0"))
        case "int-or-string":
            parts = dict(read_fields(_bytes(raw)))
            return _text(parts.get(3, b"")) if parts.get(1) else _value(parts.get(2, 0), named_type("int32"))
        case "time" | "microtime":
            return _time(dict(read_fields(_bytes(raw))), micro=of.name == "microtime")
        case "list":
            # A list in a map is a message of its own, whose first field repeats.
            assert of.items is not None
            return [_value(part, of.items) for number, part in read_fields(_bytes(raw)) if number == 1]
        case "any":
            inner = dict(read_fields(_bytes(raw))).get(1, b"")
            return decode_json(_bytes(inner)) if inner else None
        case "schema":
            return _message(_bytes(raw), named_type(_SCHEMA, NEWEST))
        case "schema-or-array" | "schema-or-bool" | "schema-or-strings":
            return _schema_or(of.name, list(read_fields(_bytes(raw))))
    return _message(_bytes(raw), of)


def _schema_or(name: str, parts: list[tuple[int, int | bytes]]) -> Any:
    """What is a message with two fields in Go, and one of two values in JSON."""
    of_schema, of_other = (2, 1) if name == "schema-or-bool" else (1, 2)
    schema = named_type("schema", NEWEST)
    for number, part in parts:
        if number == of_schema:
            return _value(part, schema)
    others = [part for number, part in parts if number == of_other]
    if name == "schema-or-bool":
        return any(others)
    return [_text(part) if name == "schema-or-strings" else _value(part, schema) for part in others]


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


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
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


def encode_protobuf(content: dict[str, Any]) -> bytes:
    """An object, or a list of objects, as a body.

    Raises:
        ProtobufError: it is of a kind that this server supports only as JSON.
    """
    api_version, kind = content.get("apiVersion", ""), content.get("kind", "")
    if "items" in content and kind.endswith("List"):
        of = _type_of(api_version, kind.removesuffix("List"))
        items = (bytes_field(2, _encoded(item, of)) for item in content["items"])
        head = bytes_field(1, _encoded(content.get("metadata") or {}, named_type("ListMeta", NEWEST)))
        message = b"".join((head, *items))
    else:
        message = _encoded(content, _type_of(api_version, kind))
    described = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    return MAGIC + bytes_field(1, described) + bytes_field(2, message)


def _encoded(content: dict[str, Any], of: Type) -> bytes:
    return _encoded_fields(content, _layout(of.name))


def _encoded_fields(content: dict[str, Any], layout: dict[int, Any]) -> bytes:
    parts = []
    for number, meaning in layout.items():
        if isinstance(meaning, dict):
            if inner := _encoded_fields(content, meaning):
                parts.append(bytes_field(number, inner))
            continue
        name, field = meaning
        part = content.get(name)
        if part is None:
            continue
        if field.type.name == "list":
            items = field.type.items
            parts += [_field_of(number, each, items) for each in part]
        elif field.type.name == "map":
            for key, each in part.items():
                entry = bytes_field(1, key.encode()) + _field_of(2, each, field.type.items)
                parts.append(bytes_field(number, entry))
        else:
            parts.append(_field_of(number, part, field.type))
    return b"".join(parts)


def _field_of(number: int, part: Any, of: Type) -> bytes:
    """A field with its number."""
    match of.name:
        case "boolean" | "int32" | "int64":
            return as_varint(number << 3 | _VARINT) + as_varint(int(part) % (1 << 64))
        case "number":
            return as_varint(number << 3 | _FIXED64) + struct.pack("<d", part)
    return bytes_field(number, _encoded_value(part, of))


def _encoded_value(part: Any, of: Type) -> bytes:
    match of.name:
        case "string":
            return str(part).encode()
        case "bytes":
            return b64decode(part)
        case "quantity":
            return bytes_field(1, str(part).encode())
        case "int-or-string":
            if isinstance(part, str):
                return _field_of(1, 1, named_type("int32")) + bytes_field(3, part.encode())
            return _field_of(2, part, named_type("int32"))
        case "time" | "microtime":
            moment = datetime.fromisoformat(part) - _EPOCH
            seconds, nanos = moment // timedelta(seconds=1), moment.microseconds * 1000
            return b"".join(_field_of(i, each, named_type("int64")) for i, each in ((1, seconds), (2, nanos)))
        case "list":
            assert of.items is not None
            return b"".join(_field_of(1, each, of.items) for each in part)
        case "any":
            return bytes_field(1, msgspec.json.encode(part))
        case "schema":
            return _encoded(part, named_type(_SCHEMA, NEWEST))
        case "schema-or-array" | "schema-or-bool" | "schema-or-strings":
            return _encoded_schema_or(part, of.name)
    return _encoded(part, of)


def _encoded_schema_or(part: Any, name: str) -> bytes:
    of_schema, of_other = (2, 1) if name == "schema-or-bool" else (1, 2)
    schema = named_type("schema", NEWEST)
    if isinstance(part, dict):
        allows = _field_of(of_other, True, named_type("boolean")) if name == "schema-or-bool" else b""
        return allows + _field_of(of_schema, part, schema)
    if isinstance(part, bool):
        return _field_of(of_other, part, named_type("boolean"))
    items = named_type("string") if name == "schema-or-strings" else schema
    return b"".join(_field_of(of_other, each, items) for each in part)


def decode_message(name: str, data: bytes) -> dict[str, Any]:
    """The content of a message that is part of others, such as a NodeSelector, as JSON has it.

    Raises:
        ProtobufError: it is malformed.
    """
    try:
        return _message(data, named_type(name, NEWEST))
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise ProtobufError(f"{name} cannot be read") from error


def bytes_field(number: int, data: bytes) -> bytes:
    """A field of a message whose value is bytes, text or a message."""
    return as_varint(number << 3 | _BYTES) + as_varint(len(data)) + data


def as_varint(number: int) -> bytes:
    """A number of a message."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
