"""`"%s has %d".format([name, count])`: clauses of a format string, checked when compiled and filled when
evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bayplan.cel import types
from bayplan.cel.errors import EvaluationError
from bayplan.cel.syntax import Expr, ListExpr
from bayplan.cel.timestamps import format_duration, format_timestamp
from bayplan.cel.types import Type
from bayplan.cel.values import Duration, Timestamp, TypeValue, Uint, Value, type_name

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(\d+))?([a-zA-Z]))|%")
_TEXTS: Final = frozenset({
    "string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "duration", "timestamp",
    "null",
})  # fmt: skip
_HEX: Final = (
    "only integers, byte buffers, and strings can be formatted as hex",
    frozenset({"int", "uint", "bytes", "string"}),
)
_ALLOWED: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "s": (
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
        "durations, and timestamps",
        _TEXTS,
    ),
    "d": ("decimal clause can only be used on integers", frozenset({"int", "uint"})),
    "f": ("fixed-point clause can only be used on doubles", frozenset({"double"})),
    "e": ("scientific clause can only be used on doubles", frozenset({"double"})),
    "b": ("only integers and bools can be formatted as binary", frozenset({"int", "uint", "bool"})),
    "x": _HEX,
    "X": _HEX,
    "o": ("octal clause can only be used on integers", frozenset({"int", "uint"})),
}
"""The types that each clause can format, and the error for other types."""
_FULL_NAMES: Final = {
    "any": "google.protobuf.Any",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "null": "null_type",
}
_KINDS: Final = {full: name for name, full in _FULL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class FormatProblem:
    expr: Expr
    message: str


def check_format(text: str, args: ListExpr, type_of: Callable[[Expr], Type]) -> FormatProblem | None:
    """The first problem of a literal format string with the static types of its arguments."""
    used = 0
    for _, clause, _ in _clauses(text):
        if clause is None:
            continue
        if used >= len(args.elements):
            return FormatProblem(args, f"index {used} out of range")
        arg = args.elements[used]
        used += 1
        if clause not in _ALLOWED:
            return FormatProblem(
                args, f'could not parse formatting clause: unrecognized formatting clause "{clause}"'
            )
        message, kinds = _ALLOWED[clause]
        found = type_of(arg)
        if found.kind not in kinds and found != types.DYN:
            return FormatProblem(arg, f"{message}, was given {_FULL_NAMES.get(found.kind, found.name)}")
    if used < len(args.elements):
        return FormatProblem(
            args, f"too many arguments supplied to string.format (expected {used}, got {len(args.elements)})"
        )
    return None


def format_string(text: str, args: tuple[Value, ...]) -> str:
    """The text with its clauses filled.

    Raises:
        EvaluationError: a clause does not fit its argument.
    """
    parts: list[str] = []
    used = 0
    for literal, clause, precision in _clauses(text):
        parts.append(literal)
        if clause is None:
            continue
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        parts.append(_fill(clause, precision, args[used]))
        used += 1
    return "".join(parts)


def _clauses(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Literal text followed by a clause and its precision; the clause is None if there is none."""
    position = 0
    for found in _CLAUSE.finditer(text):
        literal = text[position : found.start()]
        position = found.end()
        if found[0] == "%%":
            yield literal + "%", None, 0
        elif found[2] is None:
            raise EvaluationError("could not parse formatting clause: unexpected end of string")
        else:
            yield literal, found[2], int(found[1]) if found[1] else 6
    yield text[position:], None, 0


def _fill(clause: str, precision: int, value: Value) -> str:
    name = type_name(value)
    if clause not in _ALLOWED:
        raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')
    message, kinds = _ALLOWED[clause]
    if _KINDS.get(name, name) not in kinds:
        raise EvaluationError(f"error during formatting: {message}, was given {name}")
    if clause == "s":
        return _text(value)
    if clause in "fe":
        return f"{value:.{precision}{clause}}"
    if clause in "xX" and isinstance(value, str | bytes):
        digits = (value.encode() if isinstance(value, str) else value).hex()
        return digits.upper() if clause == "X" else digits
    return f"{int(value):{clause}}"


def _text(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case str():
            return value
        case bytes():
            return value.decode(errors="replace")
        case tuple():
            return f"[{', '.join(map(_nested, value))}]"
        case dict():
            entries = sorted((_nested(key), _nested(each)) for key, each in value.items())
            return "{" + ", ".join(f"{key}:{each}" for key, each in entries) + "}"
        case Duration():
            return format_duration(value)
        case Timestamp():
            return format_timestamp(value)
        case TypeValue():
            return value.name
        case Uint() | int():
            return str(int(value))
        case _:
            return f"{value:g}"


def _nested(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else _text(value)
