"""CEL's own functions for strings, times, lists, sets and optionals; see also `operators.py`.

Functions are found by name and check the types of their arguments themselves: the type of an attribute is
known only at run time, and a function that does not accept it fails with `no such overload`. Kubernetes' own
functions are in `extensions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Final

from bayplan.cel.extensions import KUBERNETES_FUNCTIONS, format_string, guarded
from bayplan.cel.operators import OPERATORS, add, contained, divide_integers
from bayplan.cel.scalars import ZERO_TIME, LocalTime, in_zone
from bayplan.cel.values import (
    NO_SUCH_OVERLOAD,
    NONE,
    ORDERED,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    Uint,
    Value,
    compare,
    equal_or_false,
    no_such_overload,
    size,
    type_name,
    unsupported,
)

Function = Callable[..., Value]


def _string_method(method: Callable[[str, str], Value]) -> Function:
    """A method of strings with one string argument."""

    def call(target: Value, argument: Value) -> Value:
        if type(target) is not str or type(argument) is not str:
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return method(target, argument)

    return call


def _index_of(target: Value, item: Value, *starts: Value) -> int:
    if type(target) is tuple and not starts:
        return next((index for index, each in enumerate(target) if equal_or_false(each, item)), -1)
    _check_text_search("indexOf", target, item, *starts)
    start = starts[0] if starts else 0
    if not item:
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return str(target).find(item, start)


def _last_index_of(target: Value, item: Value, *starts: Value) -> int:
    if type(target) is tuple and not starts:
        indices = range(len(target) - 1, -1, -1)
        return next((index for index in indices if equal_or_false(target[index], item)), -1)
    _check_text_search("lastIndexOf", target, item, *starts)
    if not starts:
        return str(target).rfind(item)
    (start,) = starts
    if not item:
        return int(start)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return -1 if start >= len(target) else str(target).rfind(item, 0, start + len(item))


def _check_text_search(name: str, *args: Value) -> None:
    if any(type(arg) is not kind for arg, kind in zip(args, (str, str, int), strict=False)):
        raise no_such_overload(name, *map(type_name, args))


def _ascii_case(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(char) if char.isascii() else char for char in text)


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start,) if end is None else (start, end):
        if not 0 <= index <= len(text):
            raise EvaluationError(f"index out of range: {index}")
    return text[start:end]


def _split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    if count == 0:
        return ()
    limit = -1 if count < 0 else count - 1
    if separator:
        return tuple(text.split(separator, limit))
    if limit < 0 or limit >= len(text):
        return tuple(text)
    return (*text[:limit], text[limit:])


def _join(parts: Value, *separators: Value) -> str:
    args = (parts, *separators)
    if type(parts) is not tuple or any(type(each) is not str for each in (*parts[:1], *separators)):
        raise no_such_overload("join", *map(type_name, args))
    for part in parts:
        if type(part) is not str:
            raise EvaluationError(f"join: invalid input: {part}")
    return "".join(separators).join(parts)


_QUOTED: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"', }  # fmt: skip


def _quote(text: str) -> str:
    return f'"{"".join(_QUOTED.get(char, char) for char in text)}"'


def _slice(values: tuple[Value, ...], start: int, end: int) -> tuple[Value, ...]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        text = f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        raise EvaluationError(text)
    if len(values) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flattened(values: Value, *depth: Value) -> tuple[Value, ...]:
    if type(values) is not tuple:
        target = "map(dyn, dyn)" if isinstance(values, dict) else type_name(values)
        raise EvaluationError(f"{NO_SUCH_OVERLOAD}: {target}.flatten({', '.join(map(type_name, depth))})")
    return _flatten(values, *depth)


def _flatten(values: tuple[Value, ...], depth: int = 1) -> tuple[Value, ...]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Value] = []
    for value in values:
        if type(value) is tuple and depth > 0:
            flat.extend(_flatten(value, depth - 1))
        else:
            flat.append(value)
    return tuple(flat)


def _sorted(values: Value, keys: Value = None) -> tuple[Value, ...]:
    if type(values) is not tuple:
        raise unsupported("sort" if keys is None else "@sortByAssociatedKeys", values)
    keys = values if keys is None else keys
    if type(keys) is not tuple:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    if len(values) != len(keys):
        text = (
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
        raise EvaluationError(text)
    if keys and type(keys[0]) not in ORDERED:
        raise EvaluationError("list elements must be comparable")
    if keys and any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    order = sorted(range(len(keys)), key=_Ordered.of(keys))
    return tuple(values[index] for index in order)


class _Ordered:
    """A sort key that compares as CEL does."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def __lt__(self, other: _Ordered) -> bool:
        return compare(self._value, other._value) < 0

    @classmethod
    def of(cls, keys: tuple[Value, ...]) -> Callable[[int], _Ordered]:
        return lambda index: cls(keys[index])


def _distinct(values: tuple[Value, ...]) -> tuple[Value, ...]:
    unique: list[Value] = []
    for value in values:
        if not any(equal_or_false(value, each) for each in unique):
            unique.append(value)
    return tuple(unique)


def _of(name: str, kinds: Collection[type]) -> Callable[[Function], Function]:
    """Guards a function of a list by the type of its first element."""

    def decorate(function: Function) -> Function:
        def call(values: Value) -> Value:
            if type(values) is not tuple or (values and type(values[0]) not in kinds):
                raise no_such_overload(name, type_name(values))
            return function(values)

        return call

    return decorate


def _order(one: Value, other: Value) -> int:
    """The order of two elements; 0 for those that have none."""
    try:
        return compare(one, other)
    except EvaluationError:
        return 0


def _is_sorted(values: tuple[Value, ...]) -> bool:
    return all(_order(one, other) <= 0 for one, other in pairwise(values))


def _extreme(name: str, sign: int) -> Function:
    def call(values: tuple[Value, ...]) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if _order(value, best) == sign:
                best = value
        return best

    return call


def _sum(values: tuple[Value, ...]) -> Value:
    if not values:
        return 0
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total


def _sets_contains(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return all(contained(each, one) for each in other)


def _sets_intersects(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return any(contained(each, one) for each in other)


def _map_insert(entries: dict[Value, Value], *update: Value) -> dict[Value, Value]:
    added = {update[0]: update[1]} if len(update) == 2 else update[0]
    if not isinstance(added, dict):
        raise no_such_overload("cel.@mapInsert", "map", type_name(added))
    result = dict(entries)
    for key, value in added.items():
        if key in result:
            raise EvaluationError(f"insert failed: key {key} already exists")
        result[key] = value
    return result


def _of_non_zero(value: Value) -> Optional:
    kinds = (bool, int, Uint, float, str, bytes, tuple, dict)
    zero = value in (None, Duration(0), ZERO_TIME) or (type(value) in kinds and not value)
    return NONE if zero else Optional(value)


def _unwrap(values: tuple[Value, ...]) -> tuple[Value, ...]:
    for each in values:
        if type(each) is not Optional:
            raise EvaluationError(f"value {each} is not optional")
    return tuple(each.value for each in values if each.has_value)


def _time_part(name: str, part: Callable[[LocalTime], int], span: int = 0) -> Function:
    """A part of a timestamp in a zone, or a duration in whole units of so many nanoseconds."""

    def call(value: Value, *zones: Value) -> int:
        if type(value) is Duration and span and not zones:
            return divide_integers(value.nanoseconds, span)
        if type(value) is not Timestamp or any(type(zone) is not str for zone in zones):
            raise no_such_overload(name, type_name(value), *map(type_name, zones))
        return part(in_zone(value, *zones))

    return call


_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What Go takes for white space."""
_SECOND: Final = 10**9

FUNCTIONS: Final[dict[str, Function]] = {
    **OPERATORS,
    "size": size,
    "contains": _string_method(lambda text, part: part in text),
    "startsWith": _string_method(str.startswith),
    "endsWith": _string_method(str.endswith),
    "getFullYear": _time_part("getFullYear", lambda local: local.year),
    "getMonth": _time_part("getMonth", lambda local: local.time.month - 1),
    "getDayOfYear": _time_part("getDayOfYear", lambda local: local.time.timetuple().tm_yday - 1),
    "getDayOfMonth": _time_part("getDayOfMonth", lambda local: local.time.day - 1),
    "getDate": _time_part("getDate", lambda local: local.time.day),
    "getDayOfWeek": _time_part("getDayOfWeek", lambda local: local.time.isoweekday() % 7),
    "getHours": _time_part("getHours", lambda local: local.time.hour, 3600 * _SECOND),
    "getMinutes": _time_part("getMinutes", lambda local: local.time.minute, 60 * _SECOND),
    "getSeconds": _time_part("getSeconds", lambda local: local.time.second, _SECOND),
    "getMilliseconds": _time_part("getMilliseconds", lambda local: local.time.microsecond // 1000, 10**6),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "charAt": guarded("charAt", str, int)(_char_at),
    "lowerAscii": guarded("lowerAscii", str)(_ascii_case(str.lower)),
    "upperAscii": guarded("upperAscii", str)(_ascii_case(str.upper)),
    "replace": guarded("replace", str, str, str, int)(
        lambda text, old, new, count=-1: text.replace(old, new, count)
    ),
    "split": guarded("split", str, str, int)(_split),
    "substring": guarded("substring", str, int, int)(_substring),
    "trim": guarded("trim", str)(lambda text: text.strip(_SPACES)),
    "format": guarded("format", str, tuple)(format_string),
    "strings.quote": guarded("strings.quote", str)(_quote),
    "join": _join,
    "sets.contains": guarded("sets.contains", tuple, tuple)(_sets_contains),
    "sets.equivalent": guarded("sets.equivalent", tuple, tuple)(
        lambda one, other: _sets_contains(one, other) and _sets_contains(other, one)
    ),
    "sets.intersects": guarded("sets.intersects", tuple, tuple)(_sets_intersects),
    "slice": guarded("slice", tuple, int, int)(_slice),
    "flatten": _flattened,
    "lists.range": guarded("lists.range", int)(lambda count: tuple(range(count))),
    "reverse": guarded("reverse", tuple)(lambda values: values[::-1]),
    "distinct": guarded("distinct", tuple)(_distinct),
    "sort": _sorted,
    "@sortByAssociatedKeys": _sorted,
    "isSorted": _of("isSorted", ORDERED)(_is_sorted),
    "min": _of("min", ORDERED)(_extreme("min", -1)),
    "max": _of("max", ORDERED)(_extreme("max", 1)),
    "sum": _of("sum", (int, Uint, float, Duration))(_sum),
    "cel.@mapInsert": _map_insert,
    "optional.of": Optional,
    "optional.ofNonZeroValue": _of_non_zero,
    "optional.none": lambda: NONE,
    "optional.unwrap": _of("optional.unwrap", (Optional,))(_unwrap),
    "unwrapOpt": _of("unwrapOpt", (Optional,))(_unwrap),
    "value": guarded("value", Optional)(Optional.get),
    "hasValue": guarded("hasValue", Optional)(lambda optional: optional.has_value),
    "first": guarded("first", tuple)(lambda values: Optional(values[0]) if values else NONE),
    "last": guarded("last", tuple)(lambda values: Optional(values[-1]) if values else NONE),
    **KUBERNETES_FUNCTIONS,
}
"""Every function that is called with the values of its arguments. The planner has `&&`, `||`, `?:`, `==`,
`!=`, indexing, `or` and `orValue`, which evaluate their operands in other ways."""
