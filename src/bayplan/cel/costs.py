"""The cost of calls at run time, in CEL's cost units, and sizes of values for the estimate.

Kubernetes limits the cost of a selector, and the recorded test vectors contain it. A unit is about the work
of one field access; strings cost 0.1 units per character.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bayplan.cel.addresses import Address, Format, Network, Url
from bayplan.cel.scalars import Quantity, Semver
from bayplan.cel.syntax import Call, Expr, Ident, ListExpr, Literal, MapExpr, Select
from bayplan.cel.values import Optional, Value

LIST_BASE: Final = 10
MAP_BASE: Final = 30
STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25

NOMINAL: Final = frozenset({
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo",
    "add", "sub",
    "major", "minor", "patch", "masked", "prefixLength", "family", "isUnspecified", "isLoopback",
    "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "getScheme", "getHostname", "getHost",
    "getPort", "getEscapedPath", "getQuery", "format.named",
})  # fmt: skip
"""Functions that cost 1 whatever they are given."""
TRAVERSALS: Final = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
STRING_PASSES: Final = frozenset({
    "url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR", "ip", "quantity",
    "isQuantity",
    "semver", "isSemver",
})  # fmt: skip
_STRING_OVERLOADS: Final = frozenset({
    "starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote",
    "string_format",
})  # fmt: skip
_ORDERS: Final = ("less", "greater", "less_equals", "greater_equals")
COMPARED_OVERLOADS: Final = frozenset(
    {f"{order}_{kind}" for order in _ORDERS for kind in ("string", "bytes")} | {"equals", "not_equals"}
)
_SIZE_ONE: Final = (Quantity, Semver, Address, Network, Format, Url)


_CHEAP: Final = NOMINAL | {
    "_&&_", "_||_", "!_", "_?_:_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_[_]", "_[?_]",
    "_?._", "or", "orValue", "optional.of", "optional.none", "hasValue", "value", "quantity", "isQuantity",
    "semver", "isSemver", "startsWith", "endsWith",
}  # fmt: skip
"""Functions whose cost is at most 1, the size of a literal, or a tenth of the size of a string."""


def is_cheap(expr: Expr) -> bool:
    """Whether an expression within the API's limit of 10 KiB cannot reach the cost limit of selectors.

    It has no loops, and none of its values is larger than a literal or an attribute.
    """
    match expr:
        case Literal() | Ident():
            return True
        case Select():
            return is_cheap(expr.operand)
        case Call():
            operands = expr.args if expr.target is None else (expr.target, *expr.args)
            return expr.function in _CHEAP and all(map(is_cheap, operands))
        case ListExpr():
            return all(map(is_cheap, expr.elements))
        case MapExpr():
            return all(is_cheap(entry.key) and is_cheap(entry.value) for entry in expr.entries)
        case _:
            return False


class _Failed:
    """Replaces an argument or a result that is an error: it has size 1."""


FAILED: Final = _Failed()


def call_cost(function: str, overload: str, args: list[Value], result: Value) -> int:
    """The cost of one call with these arguments; `overload` is empty if the types do not determine it."""
    listed = _list_cost(overload, args, result)
    if listed is not None:
        return listed
    by_function = _function_cost(function, overload, args, result)
    return _overload_cost(overload, args) if by_function is None else by_function


def actual_size(value: Value) -> int:
    """The size for the costs of CEL's own functions, where an optional counts as its value."""
    while isinstance(value, Optional) and value.has_value:
        value = value.value
    return _size(value)


def _size(value: Value) -> int:
    """The size that costs depend on: the length of strings, bytes, lists and maps, otherwise 1."""
    if isinstance(value, str | bytes | tuple | dict):
        return len(value)
    return _prefix_bytes(value) if isinstance(value, Address | Network) else 1


def characters(size: float, factor: float = STRING_FACTOR) -> int:
    return math.ceil(size * factor)


def regex_cost(text_size: int, regex_size: int) -> int:
    return characters(1 + text_size) * characters(regex_size, REGEX_FACTOR)


def _prefix_bytes(value: Address | Network) -> int:
    if isinstance(value, Address):
        return value.address.max_prefixlen // 8
    return math.ceil(value.interface.network.prefixlen / 8)


def _list_cost(overload: str, args: list[Value], result: Value) -> int | None:
    match overload:
        case "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list":
            factor = 2 if overload == "list_sets_equivalent_list" else 1
            return actual_size(args[0]) * actual_size(args[1]) * factor + 1
        case "list_slice" | "lists_range" | "list_reverse":
            size, depth = actual_size(result), 1.0
        case "list_flatten" | "list_flatten_int":
            size, depth = actual_size(args[0]), float(args[1]) if len(args) == 2 else 1.0
        case "list_distinct":
            size, depth = _compared_with_itself(args[0])
        case _ if overload.endswith("_sort"):
            size, depth = _compared_with_itself(args[0])
        case _ if overload.endswith("_sortByAssociatedKeys"):
            size, depth = _compared_with_itself(args[1])
        case _:
            return None
    return int(size * depth) % 2**64 + 1 + LIST_BASE


def _compared_with_itself(values: Value) -> tuple[int, float]:
    has_text = bool(values) and isinstance(values[0], str | bytes)
    return len(values) ** 2, 2 + STRING_FACTOR if has_text else 2


def _function_cost(function: str, overload: str, args: list[Value], result: Value) -> int | None:
    """The cost of Kubernetes' functions."""
    if function in NOMINAL or overload == "cidr_ip":
        return 1
    if function in TRAVERSALS:
        return _traversal(args[0])
    if function in STRING_PASSES:
        return characters(_size(args[0]))
    match function:
        case "replace" | "split" | "ip.isCanonical":
            return characters(_size(args[0]), 2 * STRING_FACTOR)
        case "join":
            return characters(_size(result), 2 * STRING_FACTOR)
        case "find" | "findAll":
            return regex_cost(_size(args[0]), _size(args[1]))
        case "validate" if isinstance(args[0], Format):
            return regex_cost(_size(args[1]), args[0].regex_size)
        case "containsIP" | "containsCIDR":
            return _containment(function, overload, args)
        case "_==_" if isinstance(args[0], _SIZE_ONE):
            return 1
    return None


def _containment(function: str, overload: str, args: list[Value]) -> int:
    prefix = _size(args[0])
    cost = characters(2 * prefix)
    if function == "containsCIDR":
        cost += characters(prefix) + 1
    return cost + characters(_size(args[1])) if overload.endswith("_string") else cost


def _overload_cost(overload: str, args: list[Value]) -> int:
    if overload in _STRING_OVERLOADS:
        return characters(actual_size(args[0]))
    if overload == "in_list":
        return actual_size(args[1])
    if overload in COMPARED_OVERLOADS:
        return characters(min(actual_size(args[0]), actual_size(args[1])))
    if overload in ("add_string", "add_bytes"):
        return characters(actual_size(args[0]) + actual_size(args[1]))
    if overload == "matches_string":
        return regex_cost(actual_size(args[0]), actual_size(args[1]))
    if overload == "contains_string":
        return characters(actual_size(args[0])) * characters(actual_size(args[1]))
    return 1


def _traversal(value: Value) -> int:
    """One for each scalar of a value, a tenth of the bytes for text."""
    if isinstance(value, str | bytes):
        size = len(value.encode()) if isinstance(value, str) else len(value)
        return int(size * STRING_FACTOR)
    if isinstance(value, tuple):
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(each) for key, each in value.items())
    return 1


UNBOUNDED: Final = 2**64 - 1


def bounded(number: int) -> int:
    return min(number, UNBOUNDED)


def scaled(number: int, factor: float) -> int:
    product = math.ceil(float(number) * factor)
    return UNBOUNDED if product >= 2**64 else product


@dataclass(frozen=True, slots=True)
class Size:
    """The minimum and maximum size of a value."""

    least: int
    most: int

    def __add__(self, other: Size) -> Size:
        return Size(bounded(self.least + other.least), bounded(self.most + other.most))

    def __mul__(self, other: Size) -> Size:
        return Size(bounded(self.least * other.least), bounded(self.most * other.most))

    def __or__(self, other: Size) -> Size:
        """Either of the two."""
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = Size(0, UNBOUNDED)
ONE: Final = Size(1, 1)


def no_item(items: Sequence[object]) -> Size:
    """The size of an item before any was seen: anything else takes its place."""
    return Size(UNBOUNDED, 0) if items else Size(0, 0)


def literal_size(expr: Expr) -> Size | None:
    match expr:
        case Literal():
            length = len(expr.value) if isinstance(expr.value, str | bytes) else 1
        case ListExpr():
            length = len(expr.elements)
        case MapExpr():
            length = len(expr.entries)
        case _:
            return None
    return Size(length, length)


def regex_bound(text: Size, expression: Size) -> int:
    return bounded(scaled(bounded(text.most + 1), STRING_FACTOR) * scaled(expression.most, REGEX_FACTOR))


def replaced(text: Size, old: Size, new: Size) -> Size:
    """The size of a text after `replace`."""
    if old.least == 0:
        most = bounded(bounded(text.most + 1) * new.most) + text.most
    elif new.most <= old.least:
        most = text.most
    else:
        most = bounded(math.ceil(float(text.most) / old.least)) * new.most
    if old.most == 0:
        least = (text.least + 1) * new.least + text.least
    elif old.most <= new.least:
        least = text.least
    else:
        least = math.ceil(text.least / old.most) * new.least
    return Size(bounded(least), bounded(most))
