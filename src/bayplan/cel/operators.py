"""Operators and conversions: arithmetic with overflow checks, `in`, and functions such as `int("3")`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from bayplan.cel.addresses import address_text
from bayplan.cel.scalars import (
    between,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    shifted,
)
from bayplan.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NO_SUCH_OVERLOAD,
    ORDERED,
    Duration,
    EvaluationError,
    Growing,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    checked_int,
    checked_uint,
    compare,
    equal_or_false,
    go_double,
    is_same_key,
    itself,
    no_such_overload,
    type_name,
    unsupported,
)

_NAMED_DOUBLE: Final = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_DECIMAL_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEXADECIMAL_DOUBLE: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+", re.ASCII
)


def _arithmetic(
    name: str, integers: Callable[[int, int], int], doubles: Callable[[float, float], float] | None
) -> Callable[[Value, Value], Value]:
    """An operator on two numbers of one type, with overflow checks."""
    supported = (int, Uint) if doubles is None else (int, Uint, float)
    if name == "_+_":
        supported = (*supported, bytes, tuple)

    def operate(one: Value, other: Value) -> Value:
        kind = type(one)
        if kind is not type(other):
            raise unsupported(name, one, *supported)
        if kind is int:
            return checked_int(integers(one, other))
        if kind is Uint:
            return checked_uint(integers(int(one), int(other)))
        if kind is float and doubles is not None:
            return doubles(one, other)
        raise unsupported(name, one, *supported)

    return operate


def divide_integers(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _modulo_integers(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("modulus by zero")
    return one - other * divide_integers(one, other)


def _divide_doubles(one: float, other: float) -> float:
    if other:
        return one / other
    if one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


_add_numbers = _arithmetic("_+_", lambda one, other: one + other, lambda one, other: one + other)
_subtract_numbers = _arithmetic("_-_", lambda one, other: one - other, lambda one, other: one - other)


def add(one: Value, other: Value) -> Value:
    kind, other_kind = type(one), type(other)
    if kind is Growing:
        one.extend(other)
        return one
    if kind is other_kind and kind in (str, bytes, tuple):
        return one + other
    if kind is Duration and other_kind is Duration:
        return Duration(checked_int(one.nanoseconds + other.nanoseconds))
    if kind is Timestamp and other_kind is Duration:
        return shifted(one, other.nanoseconds)
    if kind is Duration and other_kind is Timestamp:
        return shifted(other, one.nanoseconds)
    return _add_numbers(one, other)


def _subtract(one: Value, other: Value) -> Value:
    kind, other_kind = type(one), type(other)
    if kind is Duration and other_kind is Duration:
        return Duration(checked_int(one.nanoseconds - other.nanoseconds))
    if kind is Timestamp and other_kind is Duration:
        return shifted(one, -other.nanoseconds)
    if kind is Timestamp and other_kind is Timestamp:
        return between(one, other)
    return _subtract_numbers(one, other)


def _ordered(name: str, answer: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    def operate(one: Value, other: Value) -> bool:
        if type(one) not in ORDERED:
            raise unsupported(name, one)
        return answer(compare(one, other))

    return operate


def _negate(value: Value) -> Value:
    if type(value) is int:
        return checked_int(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return Duration(checked_int(-value.nanoseconds))
    raise unsupported("-_", value, bool)


def _not(value: Value) -> Value:
    if type(value) is not bool:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return not value


def contained(value: Value, container: Value) -> bool:
    if isinstance(container, dict):
        if type(value) is str:
            return value in container
        return any(is_same_key(name, value) for name in container)
    if type(container) is not tuple:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return any(equal_or_false(value, each) for each in container)


def _to_int(value: Value) -> int:
    match value:
        case bool():
            pass
        case Uint():
            return checked_int(int(value))
        case int():
            return value
        case float():
            if not MIN_INT < value < MAX_INT:
                raise EvaluationError("integer overflow")
            return int(value)
        case str():
            return _parsed(value, "int", MIN_INT, MAX_INT)
        case Timestamp():
            return math.floor(value.time.timestamp())
        case Duration():
            return value.nanoseconds
    raise _no_conversion("int", value)


def _to_uint(value: Value) -> Uint:
    match value:
        case bool():
            pass
        case int():
            return checked_uint(value)
        case float():
            if not 0 <= value < MAX_UINT:
                raise EvaluationError("unsigned integer overflow")
            return Uint(int(value))
        case str():
            return Uint(_parsed(value, "uint", 0, MAX_UINT))
    raise _no_conversion("uint", value)


def _to_double(value: Value) -> float:
    if type(value) in (int, Uint, float):
        return float(value)
    if type(value) is str:
        number = _parsed_double(value)
        if number is None:
            raise _conversion_error(value, "double")
        return number
    raise _no_conversion("double", value)


def _parsed_double(text: str) -> float | None:
    """The number in a text as Go reads it; None if there is none, or one too large for a double."""
    if _NAMED_DOUBLE.fullmatch(text):
        return float(text)
    if _HEXADECIMAL_DOUBLE.fullmatch(text):
        return float.fromhex(text)
    number = float(text) if _DECIMAL_DOUBLE.fullmatch(text) else math.inf
    return None if math.isinf(number) else number


def to_string(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(int(value))
        case float():
            return go_double(value, 6)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error
        case Duration():
            return format_duration(value)
        case Timestamp():
            return format_timestamp(value)
    text = address_text(value)
    if text is None:
        raise _no_conversion("string", value)
    return text


def _to_bytes(value: Value) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    raise _no_conversion("bytes", value)


_BOOLS: Final = {
    "1": True, "t": True, "T": True, "true": True, "TRUE": True, "True": True,
    "0": False, "f": False, "F": False, "false": False, "FALSE": False, "False": False,
}  # fmt: skip


def _to_bool(value: Value) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str:
        if value not in _BOOLS:
            raise _conversion_error(value, "bool")
        return _BOOLS[value]
    raise _no_conversion("bool", value)


def _to_duration(value: Value) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is int:
        raise _conversion_error(value, "google.protobuf.Duration")
    if type(value) is str:
        return parse_duration(value)
    raise _no_conversion("duration", value)


def _to_timestamp(value: Value) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return shifted(parse_timestamp("1970-01-01T00:00:00Z"), value * 10**9)
    if type(value) is str:
        return parse_timestamp(value)
    raise _no_conversion("timestamp", value)


def _parsed(text: str, target: str, least: int, greatest: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") and target == "int" else text
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 30 else greatest + 1
    if not least <= number <= greatest:
        raise _conversion_error(text, target)
    return number


def _conversion_error(value: Value, target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{target}'")


def _no_conversion(function: str, value: Value) -> EvaluationError:
    return no_such_overload(function, type_name(value))


OPERATORS: Final[dict[str, Callable[..., Value]]] = {
    "_+_": add,
    "_-_": _subtract,
    "_*_": _arithmetic("_*_", lambda one, other: one * other, lambda one, other: one * other),
    "_/_": _arithmetic("_/_", divide_integers, _divide_doubles),
    "_%_": _arithmetic("_%_", _modulo_integers, None),
    "_<_": _ordered("_<_", lambda order: order < 0),
    "_<=_": _ordered("_<=_", lambda order: order <= 0),
    "_>_": _ordered("_>_", lambda order: order > 0),
    "_>=_": _ordered("_>=_", lambda order: order >= 0),
    "-_": _negate,
    "!_": _not,
    "@in": contained,
    "type": lambda value: TypeValue(type_name(value)),
    "dyn": itself,
    "bool": _to_bool,
    "bytes": _to_bytes,
    "double": _to_double,
    "duration": _to_duration,
    "int": _to_int,
    "string": to_string,
    "timestamp": _to_timestamp,
    "uint": _to_uint,
}
