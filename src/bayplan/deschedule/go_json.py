"""Decodes plain values into records as Go's JSON package does, with the same errors.

A policy is written for descheduler, and its users know descheduler's errors. Two modes: *lenient* ignores
unknown fields (the policy itself), *strict* reports them all (arguments of plugins). Names are case-sensitive
in both. The first value of a wrong type is the error; `null` is "not given".

    json: cannot unmarshal string into Go struct field DefaultEvictorArgs.nodeFit of type bool

bayplan's own files are read by `bayplan.config.decoding`, whose errors name lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from bayplan.api.meta import LabelSelector, LabelSelectorRequirement
from bayplan.errors import DecodeError
from bayplan.framework.args import Duration, quoted

T = TypeVar("T")

Uint = Annotated[int, "uint"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Percentage = Annotated[float, "api.Percentage"]

_RANGES: Final = {
    "uint": (0, 2**64 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "int": (-(2**63), 2**63 - 1),
}
_TYPE_META: Final = frozenset({"apiVersion", "kind"})
_DURATION_PART: Final = re.compile(r"([0-9]*\.?[0-9]*)([^0-9.]*)")


def go_decode(value: Any, into: type[T], *, strict: bool, name: str = "") -> T:
    """The value as a record.

    Args:
        name: the name of Go's type, for errors; by default that of the class.

    Raises:
        DecodeError: Go would not decode it; `problem` is Go's text.
    """
    decoder = _Decoder(strict)
    record: T = decoder.struct(value, into, name or into.__name__, ())
    if decoder.mismatch is not None:
        raise decoder.mismatch
    if decoder.unknown:
        listed = ", ".join(f"unknown field {quoted(path)}" for path in decoder.unknown)
        raise DecodeError(f"strict decoding error: {listed}")
    return record


class _MismatchError(DecodeError):
    """A value has the wrong type. Go decodes the rest of the text before it reports the first one."""


@dataclass(slots=True)
class _Decoder:
    strict: bool
    unknown: list[str] = field(default_factory=list)
    mismatch: _MismatchError | None = None

    def struct(self, value: Any, into: Any, name: str, path: tuple[str, ...], at: str = "") -> Any:
        if value is None:
            return into()
        known = _fields(into)
        arguments = {}
        for key, child in value.items():
            place = f"{at}.{key}" if at else key
            if key not in known:
                if self.strict and not (not path and key in _TYPE_META):
                    self.unknown.append(place)
                continue
            if child is not None:
                attribute, hint = known[key]
                try:
                    arguments[attribute] = self._decode(child, hint, name, (*path, key), place)
                except _MismatchError as error:
                    self.mismatch = self.mismatch or error
        return into(**arguments)

    def _decode(self, value: Any, hint: Any, name: str, path: tuple[str, ...], at: str) -> Any:
        if get_origin(hint) in (Union, UnionType):
            (hint,) = (choice for choice in get_args(hint) if choice is not NoneType)
        go = _go_type(hint)
        if get_origin(hint) is Annotated and get_origin(get_args(hint)[0]) is dict:
            hint = get_args(hint)[0]
        origin = get_origin(hint)
        if hint is Any:
            return value
        if hint is Duration:
            return _duration(value, name, path)
        if origin is tuple:
            if not isinstance(value, list):
                raise _mismatch(value, name, path, go)
            item = get_args(hint)[0]
            return tuple(
                _zero(item) if child is None else self._decode(child, item, name, path, f"{at}[{i}]")
                for i, child in enumerate(value)
            )
        if origin is dict:
            if not isinstance(value, dict):
                raise _mismatch(value, name, path, go)
            item = get_args(hint)[1]
            return {
                key: _zero(item) if child is None else self._decode(child, item, name, path, f"{at}.{key}")
                for key, child in value.items()
            }
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            if not isinstance(value, dict):
                raise _mismatch(value, name, path, go)
            return self.struct(value, hint, go.rpartition(".")[2], path, at)
        return _scalar(value, hint, name, path)


def _scalar(value: Any, hint: Any, name: str, path: tuple[str, ...]) -> Any:
    base, go = (get_args(hint)[0], get_args(hint)[1]) if get_origin(hint) is Annotated else (hint, "")
    go = go or _go_type(base)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if base is float and is_number:
        return float(value)
    if base is int and is_number:
        low, high = _RANGES[go]
        if isinstance(value, int) and low <= value <= high:
            return value
        raise _mismatch(value, name, path, go, shows_number=True)
    if base in (str, bool) and type(value) is base:
        return value
    raise _mismatch(value, name, path, go)


def _duration(value: Any, name: str, path: tuple[str, ...]) -> Duration:
    if not isinstance(value, str):
        # Go calls a method of the type, and does not continue after its error.
        raise DecodeError(_mismatch(value, name, path, "string").problem)
    try:
        return Duration.parse(value)
    except ValueError:
        raise DecodeError(f"time: {duration_problem(value)}") from None


def duration_problem(text: str) -> str:
    """What Go's time.ParseDuration says about a text that is no duration."""
    rest = text[1:] if text[:1] in ("-", "+") else text
    while rest:
        part = _DURATION_PART.match(rest)
        assert part is not None
        number, unit = part.groups()
        if not any(map(str.isdigit, number)):
            break
        if not unit:
            return f"missing unit in duration {_quoted_bytes(text)}"
        if unit not in ("ns", "us", "µs", "μs", "ms", "s", "m", "h"):
            return f"unknown unit {_quoted_bytes(unit)} in duration {_quoted_bytes(text)}"
        rest = rest[part.end() :]
    return f"invalid duration {_quoted_bytes(text)}"


def _quoted_bytes(text: str) -> str:
    """Quoted as the time package does: what is not printable ASCII is written byte by byte."""
    found = ""
    for one in text.encode():
        is_plain = 0x20 <= one < 0x80
        found += ("\\" * (chr(one) in '"\\') + chr(one)) if is_plain else f"\\x{one:02x}"
    return f'"{found}"'


def _zero(hint: Any) -> Any:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return base()


_GO_KINDS: Final = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
_GO_TYPES: Final[dict[Any, str]] = {
    str: "string",
    bool: "bool",
    int: "int",
    float: "float64",
    Duration: "string",
    LabelSelector: "v1.LabelSelector",
    LabelSelectorRequirement: "v1.LabelSelectorRequirement",
}


def go_kind(value: Any) -> str:
    """What Go calls the kind of a JSON value."""
    return _GO_KINDS[type(value)]


def _go_type(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    if get_origin(hint) is tuple:
        return f"[]{_go_type(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return f"map[string]{_go_type(get_args(hint)[1])}"
    return _GO_TYPES.get(hint, getattr(hint, "go_type", getattr(hint, "__name__", "")))


def _mismatch(
    value: Any, name: str, path: tuple[str, ...], go: str, *, shows_number: bool = False
) -> _MismatchError:
    kind = f"number {value}" if shows_number else go_kind(value)
    place = f"Go struct field {name}.{'.'.join(path)}" if path else "Go value"
    return _MismatchError(f"json: cannot unmarshal {kind} into {place} of type {go}")


@lru_cache(maxsize=64)
def _fields(record: Any) -> dict[str, tuple[str, Any]]:
    """The name in the file of each field, its attribute and its type."""
    hints = get_type_hints(record, include_extras=True)
    if record is LabelSelectorRequirement:
        hints["operator"] = Annotated[str, "v1.LabelSelectorOperator"]
    return {f.encode_name: (f.name, hints[f.name]) for f in msgspec.structs.fields(record)}
