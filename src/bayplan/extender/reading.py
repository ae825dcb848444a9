"""Reading JSON the way Go's decoder does, because extenders were written against it.

Keys match in any case, unknown ones are ignored, null means absent, and anything after the first JSON value
is ignored. A value of the wrong type is an error that names its field, in our own words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from bayplan.extender.errors import MalformedResponseError

ResponseT = TypeVar("ResponseT")

_INT64: Final = range(-(2**63), 2**63)
_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_NULL: Final = b"null"
_DECODE_ERRORS: Final = (ValueError, RecursionError)
"""What decoders raise for invalid JSON: msgspec's and json's errors are ValueErrors, as is invalid UTF-8."""

_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number with a fraction",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def read(data: bytes, decode: Callable[[bytes], ResponseT]) -> ResponseT:
    """The result of `decode` for an answer, or for its first JSON value if more follows.

    (A handler that forgets to return after writing an error writes two, and kube-scheduler accepts that.)

    Raises:
        MalformedResponseError: it is not JSON, or not of the expected form.
    """
    try:
        return decode(data)
    except _DECODE_ERRORS as error:
        try:
            return decode(_first_value(data))
        except _DECODE_ERRORS:
            raise MalformedResponseError("", f"the response is not JSON: {_why(data, error)}") from error


def members(data: bytes | Raw, place: str) -> dict[str, Raw]:
    """The members of a JSON object, undecoded, under lower-case keys and without those that are null.

    Of several spellings of a key the last one wins. null itself has no members.
    """
    try:
        entries = _RAW_OBJECT.decode(data)
    except msgspec.ValidationError as error:
        value = msgspec.json.decode(data)
        if value is None:
            return {}
        raise mismatch(value, dict, place) from error
    return {key.lower(): entry for key, entry in entries.items() if not _is_null(entry)}


def decoded(keys: Mapping[str, Raw], name: str) -> Any:
    """The value of one member; None if it is absent."""
    raw = keys.get(name.lower())
    return None if raw is None else msgspec.json.decode(raw)


def in_any_case(value: Any, place: str) -> dict[str, Any]:
    """The members of an object that is already decoded, in the form of `members`."""
    entries = checked(value, dict, place) or {}
    return {key.lower(): entry for key, entry in entries.items() if entry is not None}


def checked(value: Any, wanted: type, place: str) -> Any:
    """The value, if it is null or has the type that the protocol requires."""
    if value is None or type(value) is wanted:
        if wanted is int and value is not None and value not in _INT64:
            raise MalformedResponseError(place, f"{value} does not fit into 64 bits")
        return value
    raise mismatch(value, wanted, place)


def mismatch(value: Any, wanted: type, place: str) -> MalformedResponseError:
    actual = _TYPE_NAMES.get(type(value), "null")
    return MalformedResponseError(place, f"expected {_TYPE_NAMES[wanted]}, got {actual}")


def _is_null(raw: Raw) -> bool:
    # The length first: a list of nodes is not copied only to check its type.
    return memoryview(raw).nbytes == len(_NULL) and bytes(raw) == _NULL


def _first_value(data: bytes) -> bytes:
    """Without what follows it, and with a replacement character for bytes that are not UTF-8, as in Go."""
    text = data.decode(errors="replace").lstrip(" \t\r\n")
    return text[: json.JSONDecoder().raw_decode(text)[1]].encode()


def _why(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "it is empty"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
