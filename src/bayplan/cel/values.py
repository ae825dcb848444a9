"""Values at run time, and what they have in common: names of types, size, equality and order.

CEL's values are Python's where possible: bool, int, float, str, bytes, None, tuple for lists and dict for
maps. This has two pitfalls, which everything below avoids: `True == 1` in Python but not in CEL, and an int
may be any size in Python but has 64 bits in CEL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, TypeAlias

from bayplan.errors import BayplanError

NO_SUCH_OVERLOAD: Final = "no such overload"


class CelError(BayplanError):
    """Base of all errors of expressions."""


class CompileError(CelError):
    """The expression cannot be compiled: syntax, unknown names or types that do not fit."""


class EvaluationError(CelError):
    """The expression failed for this input, e.g. because a key does not exist."""

    cost: int = 0
    """The cost of the evaluation up to the error, if it was counted."""


class AbortedError(EvaluationError):
    """The evaluation was stopped. No operator may swallow it."""


class CostLimitError(AbortedError):
    """The evaluation exceeded its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def no_such_key(key: object) -> EvaluationError:
    return EvaluationError(f"no such key: {format_key(key)}")


def no_such_overload(function: str = "", *type_names: str) -> EvaluationError:
    """`no such overload`, with the function and the types of its arguments where upstream names them."""
    if not function:
        return EvaluationError(NO_SUCH_OVERLOAD)
    return EvaluationError(f"{NO_SUCH_OVERLOAD}: {function}({', '.join(type_names)})")


def format_key(key: object) -> str:
    """A key as Go prints it: booleans in lower case, doubles without a needless fraction."""
    if isinstance(key, bool):
        return str(key).lower()
    return str(key).removesuffix(".0") if isinstance(key, float) else str(key)


MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1

Value: TypeAlias = Any
"""A value of any CEL type. It is dynamic by nature: selectors read attributes whose type is known at run
time.
"""


class Uint(int):
    """An unsigned integer; a plain int is signed."""

    __slots__ = ()


class DefaultMap(dict[str, Value]):
    """A map in which an unknown key leads to an empty map; everything else sees real keys only."""

    __slots__ = ()
    EMPTY: Final[dict[str, Value]] = {}


class Growing(list[Value]):
    """The list that a comprehension builds. Only its fold uses it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional.of(value)`; `NONE` is `optional.none()`."""

    value: Value = None
    has_value: bool = True

    def get(self) -> Value:
        if not self.has_value:
            raise EvaluationError("optional.none() dereference")
        return self.value


NONE: Final = Optional(has_value=False)


@dataclass(frozen=True, slots=True)
class Duration:
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    time: datetime
    nanoseconds: int = 0
    """The part below a microsecond."""


@dataclass(frozen=True, slots=True)
class TypeValue:
    """The value of `type(x)`, and of names such as `int`."""

    name: str


class Comparable:
    """Base of values that compare with their own kind only: anything else is an error, not "unequal"."""

    __slots__ = ()
    TYPE_NAME: ClassVar[str]

    def equals(self, other: Value) -> bool:
        raise NotImplementedError

    def go_type_name(self) -> str:
        return f"cel.{self.TYPE_NAME.rpartition('.')[2].removeprefix('Named')}"


_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    DefaultMap: "map",
    Optional: "optional_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
}
_NUMBERS: Final = frozenset({int, Uint, float})
_SELF_EQUAL: Final = frozenset({bool, str, bytes, type(None), Duration, Timestamp, TypeValue})


def type_name(value: Value) -> str:
    """The name of a value's type, as error messages show it."""
    kind = type(value)
    return _NAMES[kind] if kind in _NAMES else str(kind.TYPE_NAME)


_GO_NAMES: Final = {
    tuple: "*types.baseList", dict: "*types.baseMap", type(None): "types.Null", Optional: "*types.Optional",
    TypeValue: "*types.Type", DefaultMap: "cel.mapper",
}  # fmt: skip


def go_type_name(value: Value) -> str:
    """The name of the Go type that upstream has for a value, which some error messages show."""
    if isinstance(value, Comparable):
        return value.go_type_name()
    return _GO_NAMES.get(type(value)) or f"types.{type_name(value).rpartition('.')[2].capitalize()}"


def is_same_key(known: Value, key: Value) -> bool:
    """Whether a key finds this entry of a map: integers by value, doubles also integers, not the reverse."""
    kind, known_kind = type(key), type(known)
    if kind is known_kind:
        return bool(known == key)
    return kind in _NUMBERS and known_kind in (int, Uint) and bool(known == key)


def equal(one: Value, other: Value) -> bool:
    """CEL's `==`: numbers by value, lists and maps by element, different kinds are unequal.

    Raises:
        EvaluationError: the left side is a value that compares with its own kind only (Quantity, Semver, …).
    """
    kind, other_kind = type(one), type(other)
    if kind in _NUMBERS:
        if kind is float or other_kind is float:
            return other_kind in _NUMBERS and float(one) == float(other)
        return other_kind in _NUMBERS and bool(one == other)
    if kind in _SELF_EQUAL:
        return other_kind is kind and bool(one == other)
    if kind is tuple:
        return other_kind is tuple and len(one) == len(other) and all(map(_not_unequal, one, other))
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        return all(key in other and _not_unequal(value, other[key]) for key, value in one.items())
    if kind is Optional:
        if other_kind is not Optional or one.has_value != other.has_value:
            return False
        return not one.has_value or equal(one.value, other.value)
    if one is None or other is None:
        return False
    assert isinstance(one, Comparable), f"a value of type {kind}"
    return one.equals(other)


def _not_unequal(one: Value, other: Value) -> bool:
    """Equality of parts of a list or map: upstream takes those that cannot be compared for equal."""
    try:
        return equal(one, other)
    except EvaluationError:
        return True


def equal_or_false(one: Value, other: Value) -> bool:
    """Equality where values that cannot be compared count as unequal: `in`, `!=`, `indexOf`."""
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def compare(one: Value, other: Value) -> int:
    """-1, 0 or 1 for values that have an order.

    Raises:
        EvaluationError: they have none.
    """
    kind, other_kind = type(one), type(other)
    if kind is int and other_kind is int:
        return int(one > other) - int(one < other)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        if math.isnan(one) or math.isnan(other):
            raise EvaluationError("NaN values cannot be ordered")
        if kind is float or other_kind is float:
            one, other = float(one), float(other)
        return int(one > other) - int(one < other)
    key = _ORDER.get(kind)
    if kind is not other_kind or key is None:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    left, right = key(one), key(other)
    return int(left > right) - int(left < right)


def itself(value: Value) -> Value:
    return value


_ORDER: Final[dict[type, Callable[[Value], Value]]] = {
    bool: itself,
    str: str.encode,
    bytes: itself,
    Duration: lambda value: value.nanoseconds,
    Timestamp: lambda value: (value.time, value.nanoseconds),
}


ORDERED: Final = _NUMBERS | _ORDER.keys()
"""Types whose values can be compared with `<`."""


def size(value: Value) -> int:
    """The number of characters, bytes, elements or entries.

    Raises:
        EvaluationError: the value has no size.
    """
    if isinstance(value, str | bytes | tuple | dict):
        return len(value)
    raise unsupported("size", value)


RECEIVERS: Final = frozenset({str, Duration, Timestamp})
"""Types that upstream asks for a method before it reports which operator they do not support."""


def unsupported(function: str, value: Value, *kinds: type) -> EvaluationError:
    """The error of an operator that a value does not support; `kinds` support it with other operands."""
    named = type(value) not in RECEIVERS and type(value) not in kinds
    return EvaluationError(f"{NO_SUCH_OVERLOAD}: {function}" if named else NO_SUCH_OVERLOAD)


def checked_int(value: int) -> int:
    """The value, if it fits into a signed integer of 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise EvaluationError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        raise EvaluationError("unsigned integer overflow")
    return Uint(value)


def go_double(value: float, max_exponent: int = 21) -> str:
    """A double in Go's shortest form: `%v` writes an exponent from 21 on, `%g` from 6 on."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    exponent = math.floor(math.log10(abs(value))) if value else 0
    if -5 < exponent < max_exponent:
        return f"{value:.0f}" if value.is_integer() else repr(value)
    digits = len(repr(value).partition("e")[0].strip("-0.").replace(".", ""))
    mantissa, _, power = f"{value:.{max(digits - 1, 0)}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(power):+03d}"


_ESCAPED: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
    "\\": r"\\", '"': r"\"",
}  # fmt: skip


def go_quoted(text: str) -> str:
    """A string in double quotes with Go's escapes (`%q`)."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
