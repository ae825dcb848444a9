"""An upper bound of the cost of an expression, from its text alone.

The API server rejects selectors whose estimate exceeds the limit. Costs depend on sizes, so the estimator
tracks what is known about the size of every value: literals have a fixed size, parts of a device have the
maxima that the API allows, and everything else is unbounded. Only upper bounds are kept, apart from the few
lower bounds that they depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bayplan.cel import types
from bayplan.cel.checker import type_of
from bayplan.cel.costs import (
    COMPARED_OVERLOADS,
    LIST_BASE,
    MAP_BASE,
    NOMINAL,
    ONE,
    REGEX_FACTOR,
    STRING_FACTOR,
    TRAVERSALS,
    UNBOUNDED,
    UNKNOWN,
    Size,
    bounded,
    literal_size,
    no_item,
    regex_bound,
    replaced,
    scaled,
)
from bayplan.cel.declarations import CIDR, FORMAT, IP, QUANTITY, SEMVER, URL
from bayplan.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
)
from bayplan.cel.types import Type

Path = tuple[str, ...]
SizeOf = Callable[[Path], int | None]
"""The maximum size of the part of a variable at a path; None if it is unknown."""

_REGEX_OF_FORMATS: Final = 128
_MAX_FORMAT: Final = 64
_ADDRESS_BYTES: Final = (4, 16)
_PASSES: Final = frozenset(["quantity", "isQuantity", "semver", "isSemver", "cidr", "isIP", "isCIDR"])
_SAME_SIZE: Final = frozenset(["lowerAscii", "upperAscii", "substring", "trim"])


@dataclass(frozen=True, slots=True)
class _Entries:
    """Sizes of the keys (or indices) and values of a container."""

    is_list: bool
    key: Size
    value: Size

    def merged(self, other: _Entries | None) -> _Entries | None:
        return (
            None if other is None else _Entries(self.is_list, self.key | other.key, self.value | other.value)
        )


@dataclass(frozen=True, slots=True)
class _Local:
    path: Path | None
    size: Size | None = None
    entries: _Entries | None = None


@dataclass(frozen=True, slots=True)
class _Operand:
    """The part of one argument that the estimate of a function may use."""

    expr: Expr
    type: Type
    path: Path | None
    size: Size | None


def estimate(expr: Expr, size_of: SizeOf) -> int:
    """The maximum cost of a checked expression."""
    return _Estimator(size_of).cost(expr)


class _Estimator:
    def __init__(self, size_of: SizeOf) -> None:
        self._size_of = size_of
        self._paths: dict[int, Path | None] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, expr: Expr) -> int:
        match expr:
            case Literal():
                return 0
            case Ident():
                local = self._local(expr.name)
                self._paths[id(expr)] = (expr.name,) if local is None else local.path
                return 1
            case Select() if expr.operand.type is None:
                return 1  # the name of a type
            case Select():
                return self._select(expr)
            case Call():
                return self._call(expr)
            case ListExpr():
                return self._list(expr)
            case MapExpr():
                return self._map(expr)
            case Comprehension():
                return self._bind(expr) if expr.accu_var != ACCUMULATOR else self._fold(expr)
            case _:
                raise AssertionError(type(expr))

    def _local(self, name: str) -> _Local | None:
        found = self._locals.get(name)
        return found[-1] if found else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _path(self, expr: Expr) -> Path | None:
        if isinstance(expr, Ident):
            local = self._local(expr.name)
            if local is not None:
                return local.path
        return self._paths.get(id(expr))

    def _below(self, expr: Expr, part: str) -> Path:
        return (*(self._path(expr) or ()), part)

    def _size(self, expr: Expr) -> Size | None:
        """The size of a value, if it is known: computed, literal, declared, by type, or that of its
        variable."""
        known = self._sizes.get(id(expr)) or literal_size(expr)
        if known is not None:
            return known
        path = self._path(expr)
        declared = self._size_of(path) if path else None
        if declared is not None:
            return Size(0, declared)
        if types.is_scalar(type_of(expr)):
            return ONE
        local = self._local(expr.name) if isinstance(expr, Ident) else None
        return local.size if local is not None else None

    def _size_or_unknown(self, expr: Expr) -> Size:
        return self._size(expr) or UNKNOWN

    def _entries_of(self, expr: Expr) -> _Entries | None:
        found = self._entries.get(id(expr))
        if found is None and isinstance(expr, Ident):
            local = self._local(expr.name)
            return local.entries if local is not None else None
        return found

    def _select(self, expr: Select) -> int:
        cost = self.cost(expr.operand)
        if expr.test_only:
            return cost
        operand = type_of(expr.operand)
        if types.is_map(operand) or operand.kind in ("object", "parameter"):
            cost = bounded(cost + 1)
        self._paths[id(expr)] = self._below(expr.operand, expr.field_name)
        return cost

    def _call(self, call: Call) -> int:
        if call.function == "dyn":
            cost = self.cost(call.args[0])
            self._copy_sizes(call, call.args[0])
            return bounded(cost + 1)
        costs = [self.cost(arg) for arg in call.args]
        args = [self._operand(arg) for arg in call.args]
        target_cost, target = 0, None
        if call.target is not None:
            target_cost = self.cost(call.target)
            target = self._operand(call.target)
        most, size = 0, None
        for overload in call.overloads:
            one, one_size = self._overload(call, overload, target, args, costs)
            most = max(most, one)
            if one_size is not None:
                size = one_size if size is None else size | one_size
            if overload in ("index_list", "index_map"):
                entries = self._entries_of(call.args[0])
                size = entries.value if entries is not None else None
                part = "@items" if overload == "index_list" else "@values"
                self._paths[id(call)] = self._below(call.args[0], part)
            if size is None:
                size = self._size(call)
        if size is not None:
            self._sizes[id(call)] = size
        return bounded(target_cost + most)

    def _operand(self, expr: Expr) -> _Operand:
        path = self._path(expr)
        if path and path[0] == ACCUMULATOR:
            path = None
        return _Operand(expr, type_of(expr), path, self._size(expr))

    def _operand_size(self, operand: _Operand) -> Size:
        """The size in Kubernetes' library, which uses the declared one."""
        if operand.size is not None:
            return operand.size
        declared = self._size_of(operand.path) if operand.path else None
        return UNKNOWN if declared is None else Size(0, declared)

    def _overload(
        self, call: Call, overload: str, target: _Operand | None, args: list[_Operand], costs: list[int]
    ) -> tuple[int, Size | None]:
        """The cost of calling one overload, its arguments included, and the size of what it returns."""
        found = self._list_function(overload, target, args)
        if found is None:
            found = self._library(call.function, overload, target, args)
        if found is None:
            special = self._standard(call, overload, args, costs)
            if special is not None:
                return special
            found = self._by_overload(overload, target, args)
        cost, size = found
        return bounded(cost + sum(costs)), size

    def _list_function(
        self, overload: str, target: _Operand | None, args: list[_Operand]
    ) -> tuple[int, Size | None] | None:
        size: Size
        factor = 1.0
        if overload == "list_slice" and target is not None:
            known = self._operand_size(target)
            length = (_literal_int(args[1], known.most) - _literal_int(args[0], 0)) % 2**64
            size = Size(length, length)
        elif overload.startswith("list_sets_"):
            size = self._operand_size(args[0]) * self._operand_size(args[1])
            factor = 2.0 if overload == "list_sets_equivalent_list" else 1.0
            return bounded(scaled(size.most, factor) + 1), None
        elif overload == "lists_range":
            length = _literal_int(args[0], UNBOUNDED)
            size = Size(length, length)
        elif overload == "list_reverse" and target is not None:
            size = self._operand_size(target)
        elif overload in ("list_flatten", "list_flatten_int") and target is not None:
            size = self._operand_size(target)
            factor = float(_literal_int(args[0], UNBOUNDED)) if args else 1.0
        elif overload == "list_distinct" and target is not None:
            size = self._operand_size(target) * self._operand_size(target)
            factor = 2.0
        elif overload.endswith(("_sort", "_sortByAssociatedKeys")) and target is not None:
            keys = self._operand_size(args[0] if args else target)
            size = keys * keys
            factor = 2 + STRING_FACTOR if overload.startswith(("list_string", "list_bytes")) else 2.0
        else:
            return None
        return bounded(scaled(size.most, factor) + 1 + LIST_BASE), size

    def _library(
        self, function: str, overload: str, target: _Operand | None, args: list[_Operand]
    ) -> tuple[int, Size | None] | None:
        """Costs that Kubernetes declares, by function."""
        if function in NOMINAL or overload == "cidr_ip":
            return 1, None
        if function in TRAVERSALS and target is not None:
            return self._traversal(target), None
        if function in _PASSES or overload == "string_to_ip":
            return scaled(self._operand_size(args[0]).most, STRING_FACTOR), None
        if function == "url":
            size = self._operand_size(args[0])
            return scaled(size.most, STRING_FACTOR), size
        if function in _SAME_SIZE and target is not None:
            size = self._operand_size(target)
            return scaled(size.most, STRING_FACTOR), size
        if function == "ip.isCanonical":
            return scaled(self._operand_size(args[0]).most, 2 * STRING_FACTOR), None
        if function == "_==_":
            return _equality(args)
        if target is None:
            return None
        return self._method(function, overload, self._operand_size(target), target, args)

    def _method(
        self, function: str, overload: str, size: Size, target: _Operand, args: list[_Operand]
    ) -> tuple[int, Size | None] | None:
        match function:
            case "replace":
                result = replaced(size, self._operand_size(args[0]), self._operand_size(args[1]))
                return scaled(size.most, 2 * STRING_FACTOR), result
            case "split":
                most = size.most
                if len(args) == 2 and isinstance(count := args[1].expr, Literal) and type(count.value) is int:
                    most = count.value % 2**64
                return scaled(size.most, 2 * STRING_FACTOR), Size(0, most)
            case "join":
                joined = self._joined(size, target, args)
                return scaled(joined.most, STRING_FACTOR), joined
            case "find" | "findAll":
                return regex_bound(size, self._operand_size(args[0])), Size(0, size.most)
            case "validate":
                passes = scaled(self._operand_size(args[0]).most, STRING_FACTOR)
                return scaled(passes, _REGEX_OF_FORMATS * REGEX_FACTOR), None
            case "containsIP" | "containsCIDR":
                most = _ADDRESS_BYTES[1]
                cost = scaled(2 * most, STRING_FACTOR)
                if function == "containsCIDR":
                    cost += scaled(most, STRING_FACTOR) + 1
                if overload.endswith("_string"):
                    cost += scaled(self._operand_size(args[0]).most, STRING_FACTOR)
                return bounded(cost), None
        return None

    def _traversal(self, target: _Operand) -> int:
        size = self._operand_size(target)
        if not target.type.parameters:
            return scaled(size.most, STRING_FACTOR)
        element = 1
        if target.type.parameters[0] in (types.STRING, types.BYTES):
            element += scaled(self._element_size(target).most, STRING_FACTOR)
        return bounded(size.most * element)

    def _element_size(self, target: _Operand) -> Size:
        declared = self._size_of((*target.path, "@items")) if target.path else None
        return UNKNOWN if declared is None else Size(0, declared)

    def _joined(self, size: Size, target: _Operand, args: list[_Operand]) -> Size:
        joined = size * self._element_size(target) if target.type.parameters else Size(0, 0)
        if not args:
            return joined
        separators = Size(max(size.least - 1, 0), max(size.most - 1, 0))
        return joined + self._operand_size(args[0]) * separators

    def _standard(
        self, call: Call, overload: str, args: list[_Operand], costs: list[int]
    ) -> tuple[int, Size | None] | None:
        """Operators that do not simply add up the costs of their operands."""
        if overload in ("logical_and", "logical_or"):
            return bounded(sum(costs)), None
        if overload == "conditional":
            size = (args[1].size or UNKNOWN) | (args[2].size or UNKNOWN)
            entries = self._entries_of(args[1].expr)
            merged = entries.merged(self._entries_of(args[2].expr)) if entries is not None else None
            if merged is not None:
                self._entries[id(call)] = merged
            return bounded(costs[0] + max(costs[1], costs[2])), size
        if overload in ("add_string", "add_bytes", "add_list"):
            size = (args[0].size or UNKNOWN) + (args[1].size or UNKNOWN)
            entries = self._entries_of(args[0].expr)
            merged = entries.merged(self._entries_of(args[1].expr)) if entries is not None else None
            if merged is not None:
                self._entries[id(call)] = merged
            cost = 1 if overload == "add_list" else scaled(size.most, STRING_FACTOR)
            return bounded(cost + sum(costs)), size
        return None

    def _by_overload(
        self, overload: str, target: _Operand | None, args: list[_Operand]
    ) -> tuple[int, Size | None]:
        sizes = [arg.size or UNKNOWN for arg in args]
        if target is not None:
            size = target.size or UNKNOWN
            if overload == "string_format":
                return scaled(size.most, STRING_FACTOR), None
            if overload == "matches_string":
                return regex_bound(size, sizes[0]), None
            if overload == "contains_string":
                return bounded(scaled(size.most, STRING_FACTOR) * scaled(sizes[0].most, STRING_FACTOR)), None
        if overload in ("starts_with_string", "ends_with_string"):
            return scaled(sizes[0].most, STRING_FACTOR), None
        if overload == "string_to_bytes":
            return scaled(sizes[0].most, STRING_FACTOR), Size(sizes[0].least, sizes[0].most * 4 % 2**64)
        if overload == "bytes_to_string":
            return scaled(sizes[0].most, STRING_FACTOR), Size(sizes[0].least // 4, sizes[0].most)
        if overload == "strings_quote":
            quoted = Size(sizes[0].least + 2, (sizes[0].most * 2 + 2) % 2**64)
            return scaled(sizes[0].most, STRING_FACTOR), quoted
        if overload == "in_list":
            return sizes[1].most, None
        if overload in COMPARED_OVERLOADS:
            return scaled(min(sizes[0].most, sizes[1].most), STRING_FACTOR), None
        return 1, None

    def _list(self, expr: ListExpr) -> int:
        cost, item = LIST_BASE, no_item(expr.elements)
        for element in expr.elements:
            cost = bounded(cost + self.cost(element))
            item |= self._size_or_unknown(element)
        self._entries[id(expr)] = _Entries(True, ONE, item)
        return cost

    def _map(self, expr: MapExpr) -> int:
        cost, key, value = MAP_BASE, no_item(expr.entries), no_item(expr.entries)
        for entry in expr.entries:
            cost = bounded(cost + self.cost(entry.key) + self.cost(entry.value))
            key |= self._size_or_unknown(entry.key)
            value |= self._size_or_unknown(entry.value)
        self._entries[id(expr)] = _Entries(False, key, value)
        return cost

    def _fold(self, expr: Comprehension) -> int:
        cost = self.cost(expr.range) + self.cost(expr.accu_init)
        self._push_value(expr.accu_var, expr.accu_init)
        names = self._push_iteration_variables(expr)
        each = self.cost(expr.condition) + self.cost(expr.step)
        for name in names:
            self._pop(name)
        cost += self.cost(expr.result)
        self._pop(expr.accu_var)
        count = self._size_or_unknown(expr.range)
        if isinstance(expr.accu_init, Literal):
            size = self._size(expr.accu_init)
            if size is not None:
                self._sizes[id(expr)] = size
        elif isinstance(expr.accu_init, ListExpr | MapExpr):
            self._sizes[id(expr)] = count
            entries = self._entries_of(expr.step)
            if entries is not None:
                self._entries[id(expr)] = entries
        return bounded(cost + bounded(count.most * each))

    def _push_value(self, name: str, value: Expr) -> None:
        self._push(name, _Local(self._path(value), self._size(value), self._entries_of(value)))

    def _push_iteration_variables(self, expr: Comprehension) -> list[str]:
        entries = self._entries_of(expr.range)
        is_list = entries.is_list if entries is not None else types.is_list(type_of(expr.range))
        key = entries.key if entries is not None else None
        value = entries.value if entries is not None else None
        if expr.iter_var2:
            self._push(
                expr.iter_var, _Local(self._below(expr.range, "@indices" if is_list else "@keys"), key)
            )
            self._push(
                expr.iter_var2, _Local(self._below(expr.range, "@items" if is_list else "@values"), value)
            )
            return [expr.iter_var, expr.iter_var2]
        part, size = ("@items", value) if is_list else ("@keys", key)
        self._push(expr.iter_var, _Local(self._below(expr.range, part), size))
        return [expr.iter_var]

    def _bind(self, expr: Comprehension) -> int:
        cost = self.cost(expr.range) + self.cost(expr.accu_init)
        self._push_value(expr.accu_var, expr.accu_init)
        cost += self.cost(expr.result)
        self._pop(expr.accu_var)
        self._copy_sizes(expr, expr.result)
        return bounded(cost)

    def _copy_sizes(self, to: Expr, source: Expr) -> None:
        size, entries = self._size(source), self._entries_of(source)
        if size is not None:
            self._sizes[id(to)] = size
        if entries is not None:
            self._entries[id(to)] = entries


def _literal_int(operand: _Operand, default: int) -> int:
    value = operand.expr.value if isinstance(operand.expr, Literal) else None
    return max(value, 0) if type(value) is int else default


def _equality(args: list[_Operand]) -> tuple[int, Size | None] | None:
    if len(args) != 2 or args[0].type != args[1].type:
        return None
    if args[0].type in (QUANTITY, SEMVER, IP, CIDR):
        return 1, None
    if args[0].type == FORMAT:
        return scaled(_MAX_FORMAT, STRING_FACTOR), None
    if args[0].type == URL:
        size = args[1].size or ONE
        return scaled(size.most, STRING_FACTOR), None
    return None
