"""`"%s has %d".format([name, count])`: clauses of a format string, checked when compiled and filled when
evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bayplan.cel import types
from bayplan.cel.errors import EvaluationError
from bayplan.cel.operators import to_string
from bayplan.cel.syntax import Expr, ListExpr, MapExpr
from bayplan.cel.types import Type
from bayplan.cel.values import MAX_INT, Duration, Timestamp, TypeValue, Value, go_double, go_quoted, type_name

_SPECIAL_DOUBLES: Final = ("NaN", "Infinity", "-Infinity")
"""Texts that the clauses for doubles accept."""
_DEFAULT_PRECISION: Final = 6
_SUPERSCRIPTS: Final = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
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
    expr: Expr | None
    """The argument that does not fit; None for a problem of the call."""
    message: str


def check_format(text: str, args: ListExpr, type_of: Callable[[Expr], Type]) -> FormatProblem | None:
    """The first problem of a literal format string with the static types of its arguments."""
    used = 0
    try:
        for _, clause, _ in _clauses(text, len(args.elements)):
            if not clause:
                continue
            problem = _misfit(clause, args.elements[used], type_of)
            if problem is not None:
                return problem
            used += 1
    except EvaluationError as error:
        return FormatProblem(None, str(error))
    if used < len(args.elements):
        return FormatProblem(
            None, f"too many arguments supplied to string.format (expected {used}, got {len(args.elements)})"
        )
    return None


def _misfit(clause: str, arg: Expr, type_of: Callable[[Expr], Type]) -> FormatProblem | None:
    message, kinds = _ALLOWED[clause]
    found = type_of(arg)
    allowed = kinds | {"string"} if clause in "fe" else kinds
    if found.kind not in allowed and found != types.DYN:
        name = _FULL_NAMES.get(found.kind, found.name)
        return FormatProblem(arg, f"error during formatting: {message}, was given {name}")
    parts: list[Expr] = []
    if clause == "s" and isinstance(arg, ListExpr):
        parts = arg.elements
    elif clause == "s" and isinstance(arg, MapExpr):
        parts = [part for entry in arg.entries for part in (entry.key, entry.value)]
    return next(filter(None, (_misfit(clause, part, type_of) for part in parts)), None)


def format_string(text: str, args: tuple[Value, ...]) -> str:
    """The text with its clauses filled.

    Raises:
        EvaluationError: a clause does not fit its argument.
    """
    parts: list[str] = []
    remaining = iter(args)
    for literal, clause, precision in _clauses(text, len(args)):
        parts.append(literal)
        if clause:
            parts.append(_fill(clause, precision, next(remaining)))
    return "".join(parts)


def _clauses(text: str, count: int) -> Iterator[tuple[str, str, int]]:
    """Literal text followed by a clause, which is empty if there is none, and its precision.

    Raises:
        EvaluationError: there are fewer arguments than clauses, or something is no clause.
    """
    used = 0
    while (at := text.find("%")) >= 0:
        literal, rest = text[:at], text[at + 1 :]
        if rest.startswith("%"):
            yield literal + "%", "", 0
            text = rest[1:]
            continue
        if used >= count:
            raise EvaluationError(f"index {used} out of range")
        if not rest:
            raise EvaluationError("unexpected end of string")
        used += 1
        precision, rest = _precision(rest)
        if rest[0] not in _ALLOWED:
            # Upstream shows the first byte as a character.
            raise _no_clause(f'unrecognized formatting clause "{chr(rest.encode()[0])}"')
        yield literal, rest[0], precision
        text = rest[1:]
    yield text, "", 0


def _precision(text: str) -> tuple[int, str]:
    """The precision before a clause, and what follows it."""
    if not text.startswith("."):
        return _DEFAULT_PRECISION, text
    rest = text[1:].lstrip("0123456789")
    digits = text[1 : len(text) - len(rest)]
    if not rest:
        raise _no_clause("error while parsing precision: could not find end of precision specifier")
    problem = "" if digits else "invalid syntax"
    if digits and int(digits) > MAX_INT:
        problem = "value out of range"
    if problem:
        raise _no_clause(
            "error while parsing precision: error while converting precision to integer: "
            f'strconv.Atoi: parsing "{digits}": {problem}'
        )
    return int(digits), rest


def _no_clause(problem: str) -> EvaluationError:
    return EvaluationError(f"could not parse formatting clause: {problem}")


def _fill(clause: str, precision: int, value: Value) -> str:
    name = type_name(value)
    message, kinds = _ALLOWED[clause]
    if clause in "fe" and value in _SPECIAL_DOUBLES:
        return _double(clause, precision, float(value))
    if _KINDS.get(name, name) not in kinds:
        raise EvaluationError(f"error during formatting: {message}, was given {name}")
    if clause == "s":
        return _text(value)
    if clause in "fe":
        return _double(clause, precision, value)
    if clause in "xX" and isinstance(value, str | bytes):
        digits = (value.encode() if isinstance(value, str) else value).hex()
        return digits.upper() if clause == "X" else digits
    return f"{int(value):{clause}}"


def _double(clause: str, precision: int, value: float) -> str:
    """A double in the notation of American English. For `e` the precision is a width."""
    if math.isnan(value) or math.isinf(value):
        text = "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    elif clause == "f":
        return f"{value:,.{precision}f}"
    else:
        mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
        text = f"{mantissa}×10{exponent.removeprefix('+').translate(_SUPERSCRIPTS)}"
    return text.rjust(precision) if clause == "e" else text


def _text(value: Value) -> str:
    match value:
        case None:
            return "null"
        case tuple():
            return f"[{', '.join(map(_nested, value))}]"
        case dict():
            entries = sorted((_nested_key(key), _nested(each)) for key, each in value.items())
            return "{" + ", ".join(f"{key}:{each}" for key, each in entries) + "}"
        case TypeValue():
            return value.name
    try:
        return to_string(value)
    except EvaluationError as error:
        raise EvaluationError(
            f'error during formatting: could not convert argument "{error}" to string'
        ) from error


def _nested_key(key: Value) -> str:
    if not isinstance(key, str | int):
        raise EvaluationError(
            f"error during formatting: no formatting function for map key of type {type_name(key)}"
        )
    return _nested(key)


def _nested(value: Value) -> str:
    """A part of a list or map, written as in an expression."""
    name = type_name(value)
    if _KINDS.get(name, name) not in _TEXTS:
        raise EvaluationError(f"error during formatting: no formatting function for {name}")
    match value:
        case float():
            special = math.isnan(value) or math.isinf(value)
            return f'"{go_double(value)}"' if special else f"{value:.{_DEFAULT_PRECISION}f}"
        case str():
            return go_quoted(value)
        case bytes():
            return f"b{go_quoted(_text(value))}"
        case Timestamp():
            return f'timestamp("{_text(value)}")'
        case Duration():
            return f'duration("{_text(value)}")'
        case _:
            return _text(value)
