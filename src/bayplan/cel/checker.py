"""The type checker: sets the type of every node and the overloads of every call, or reports errors.

All errors are collected; the type of an invalid node is ERROR, which is assignable to everything, so that one
mistake is not reported twice.
"""

from __future__ import annotations

from bayplan.cel import types
from bayplan.cel.declarations import Overload, functions, type_names
from bayplan.cel.extensions import check_format, pattern
from bayplan.cel.operators import OPERATORS
from bayplan.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    Source,
    Struct,
    qualified_name,
)
from bayplan.cel.types import Bindings, Type
from bayplan.cel.values import EvaluationError, Uint

Fields = dict[str, dict[str, Type]]
"""Fields of object types, by the type's name."""


def check(source: Source, expr: Expr, variables: dict[str, Type], fields: Fields) -> Type:
    """Types the tree in place and returns the type of the whole.

    Raises:
        CompileError: types do not match; it lists every problem with its location.
    """
    checker = _Checker(source, variables, fields)
    checker.check(expr)
    checker.finish(expr)
    source.raise_problems()
    _Validator(source).visit(expr)
    source.raise_problems()
    return type_of(expr)


def type_of(expr: Expr) -> Type:
    """The type of a node that was checked."""
    assert expr.type is not None, "checked"
    return expr.type


class _Checker:
    def __init__(self, source: Source, variables: dict[str, Type], fields: Fields) -> None:
        self._source = source
        self._fields = fields
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._bindings = Bindings()

    def check(self, expr: Expr) -> Type:
        match expr:
            case Literal():
                found = _literal_type(expr)
            case Ident():
                found = self._ident(expr)
            case Select():
                found = self._select(expr)
            case Call():
                found = self._call(expr)
            case ListExpr():
                found = self._list(expr)
            case MapExpr():
                found = self._map(expr)
            case Comprehension():
                found = self._comprehension(expr)
            case Struct():
                found = self._struct(expr)
            case _:
                raise AssertionError(type(expr))
        expr.type = found
        return found

    def finish(self, expr: Expr) -> None:
        """Replaces type parameters by their bound types, or by `dyn` if they are not bound."""
        for node in walk(expr):
            if node.type is not None:
                node.type = self._bindings.substitute(node.type, unbound_to_dyn=True)

    def _report(self, expr: Expr, message: str) -> Type:
        self._source.report(expr.offset, message)
        return types.ERROR

    def _lookup(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        named = type_names().get(name)
        return None if named is None else types.type_of(named)

    def _ident(self, expr: Ident) -> Type:
        found = self._lookup(expr.name.removeprefix("."))
        return found or self._undeclared(expr, expr.name)

    def _undeclared(self, expr: Expr, name: str) -> Type:
        return self._report(expr, f"undeclared reference to '{name}' (in container '')")

    def _select(self, expr: Select) -> Type:
        name = qualified_name(expr)
        found = self._lookup(name) if name is not None else None
        if found is not None:
            return found
        result = self._field(expr, expr.operand, expr.field_name, optional=False)
        return types.BOOL if expr.test_only else result

    def _field(self, expr: Expr, operand: Expr, field: str, optional: bool) -> Type:
        operand_type = self._bindings.substitute(self.check(operand))
        inner = types.unwrap_optional(operand_type)
        target = operand_type if inner is None else inner
        result = types.ERROR
        if types.is_map(target):
            result = target.parameters[1]
        elif target.kind == "object":
            fields = self._fields.get(target.name)
            if fields is None:
                self._report(expr, f"unexpected failed resolution of '{target.name}'")
            elif field in fields:
                result = fields[field]
            else:
                self._report(expr, f"undefined field '{field}'")
        else:
            if types.is_parameter(target):
                self._bindings.assignable([types.DYN], [target])
            elif not types.is_dyn_or_error(target):
                self._report(expr, f"type '{target}' does not support field selection")
            result = types.DYN
        return types.optional_of(result) if optional or inner is not None else result

    def _call(self, call: Call) -> Type:
        if call.function == "_?._":
            field = call.args[1]
            assert isinstance(field, Literal)
            call.overloads = ["select_optional_field"]
            field.type = types.STRING
            return self._bindings.substitute(self._field(call, call.args[0], field.value, optional=True))
        arg_types = [self.check(arg) for arg in call.args]
        if call.target is None:
            name = call.function.removeprefix(".")
            overloads = functions().get(name)
            if overloads is None:
                return self._undeclared(call, call.function)
            call.function = name
            return self._resolve(call, overloads, arg_types)
        prefix = qualified_name(call.target)
        if prefix is not None and f"{prefix}.{call.function}" in functions():
            call.function, call.target = f"{prefix}.{call.function}", None
            return self._resolve(call, functions()[call.function], arg_types)
        target_type = self.check(call.target)
        overloads = functions().get(call.function)
        if overloads is None:
            return self._undeclared(call, call.function)
        return self._resolve(call, overloads, [target_type, *arg_types])

    def _resolve(self, call: Call, overloads: list[Overload], arg_types: list[Type]) -> Type:
        if call.function in ("_&&_", "_||_"):
            return self._logical(call, overloads[0], arg_types)
        result: Type | None = None
        for overload in overloads:
            if overload.is_member != (call.target is not None):
                continue
            args, overload_result = self._instantiate(overload)
            if not self._bindings.assignable(arg_types, args):
                continue
            call.overloads.append(overload.id)
            one = self._bindings.substitute(overload_result)
            if result is None:
                result = one
            elif not types.is_dyn(result) and one != result:
                result = types.DYN
        if result is not None:
            return result
        shown = [str(self._bindings.substitute(each, unbound_to_dyn=True)) for each in arg_types]
        target = f"{shown.pop(0)}." if call.target is not None else ""
        signature = f"{target}({', '.join(shown)})"
        return self._report(
            call, f"found no matching overload for '{call.function}' applied to '{signature}'"
        )

    def _logical(self, call: Call, overload: Overload, arg_types: list[Type]) -> Type:
        call.overloads.append(overload.id)
        fits = True
        for arg, arg_type in zip(call.args, arg_types, strict=True):
            if not self._bindings.assignable([arg_type], [types.BOOL]):
                self._mismatch(arg, types.BOOL, arg_type)
                fits = False
        return types.BOOL if fits else types.ERROR

    def _instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        """An overload's types with fresh type parameters."""
        fresh: dict[Type, Type] = {}

        def replace(each: Type) -> Type:
            if types.is_parameter(each):
                if each not in fresh:
                    fresh[each] = self._bindings.fresh()
                return fresh[each]
            return Type(each.kind, each.name, tuple(map(replace, each.parameters)))

        args = [replace(each) for each in overload.args]
        return args, replace(overload.result)

    def _mismatch(self, expr: Expr, expected: Type, found: Type) -> Type:
        return self._report(expr, f"expected type '{expected}' but found '{found}'")

    def _list(self, expr: ListExpr) -> Type:
        joined: Type | None = None
        for index, element in enumerate(expr.elements):
            found = self._maybe_optional(element, index in expr.optional)
            joined = self._join(joined, found)
        return types.list_of(joined or self._bindings.fresh())

    def _map(self, expr: MapExpr) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in expr.entries:
            key_type = self._join(key_type, self.check(entry.key))
            value_type = self._join(value_type, self._maybe_optional(entry.value, entry.optional))
        return types.map_of(key_type or self._bindings.fresh(), value_type or self._bindings.fresh())

    def _maybe_optional(self, expr: Expr, optional: bool) -> Type:
        found = self.check(expr)
        if not optional:
            return found
        inner = types.unwrap_optional(found)
        if inner is None:
            if not types.is_dyn(found):
                self._mismatch(expr, types.optional_of(found), found)
            return found
        return inner

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self._bindings.assignable([previous], [current]):
            return types.most_general(previous, current)
        return types.DYN

    def _struct(self, expr: Struct) -> Type:
        for value in expr.values:
            self.check(value)
        if self._lookup(expr.type_name) is None:
            return self._undeclared(expr, expr.type_name)
        return self._report(expr, f"'{expr.type_name}' is not a message type")

    def _comprehension(self, expr: Comprehension) -> Type:
        range_type = self._bindings.substitute(self.check(expr.range))
        accu_type = self.check(expr.accu_init)
        self._scopes.append({expr.accu_var: accu_type})
        self._scopes.append(self._iteration_variables(expr, range_type))
        for part, expected in ((expr.condition, types.BOOL), (expr.step, accu_type)):
            found = self.check(part)
            if not self._bindings.assignable([expected], [found]):
                self._mismatch(part, expected, found)
        self._scopes.pop()
        result = self.check(expr.result)
        self._scopes.pop()
        return self._bindings.substitute(result)

    def _iteration_variables(self, expr: Comprehension, range_type: Type) -> dict[str, Type]:
        if types.is_list(range_type):
            (element,) = range_type.parameters
            first, second = (types.INT, element) if expr.iter_var2 else (element, element)
        elif types.is_map(range_type):
            first, second = range_type.parameters
        elif (types.is_dyn_or_error(range_type) and range_type != types.ANY) or types.is_parameter(
            range_type
        ):
            self._bindings.assignable([types.DYN], [range_type])
            first = second = types.DYN
        else:
            must = "cannot be range of a comprehension (must be list, map, or dynamic)"
            first = second = self._report(expr.range, f"expression of type '{range_type}' {must}")
        return {expr.iter_var: first, expr.iter_var2: second} if expr.iter_var2 else {expr.iter_var: first}


class _Validator:
    """What upstream checks once all types are known: functions with literal arguments, such as regular
    expressions, do not fail later, and the elements of a list or map have one type."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def visit(self, expr: Expr) -> None:
        pending = [(expr, False)]
        while pending:
            node, is_formatted = pending.pop()
            match node:
                case Call():
                    self._call(node)
                    is_formatted = is_formatted or node.function == "format"
                case ListExpr() if not is_formatted:
                    self._list(node)
                case MapExpr() if not is_formatted:
                    self._map(node)
            pending.extend((each, is_formatted) for each in children(node))

    def _call(self, call: Call) -> None:
        if not call.args:
            return
        first = call.args[0]
        if call.function == "format" and isinstance(call.target, Literal) and isinstance(first, ListExpr):
            problem = check_format(call.target.value, first, type_of)
            if problem is not None:
                self._source.report((problem.expr or call).offset, problem.message)
        if not isinstance(first, Literal):
            return
        if call.function == "matches" and isinstance(first.value, str) and not _is_pattern(first.value):
            self._source.report(first.offset, "invalid matches argument")
        if call.function in ("duration", "timestamp"):
            try:
                OPERATORS[call.function](first.value)
            except EvaluationError:
                self._source.report(first.offset, f"invalid {call.function} argument")

    def _list(self, expr: ListExpr) -> None:
        found = [_element_type(each, index in expr.optional) for index, each in enumerate(expr.elements)]
        for element, each in zip(expr.elements, found, strict=True):
            if each != found[0]:
                self._mismatch(element, found[0], each)
                return

    def _map(self, expr: MapExpr) -> None:
        keys = [type_of(entry.key) for entry in expr.entries]
        values = [_element_type(entry.value, entry.optional) for entry in expr.entries]
        for entry, key, value in zip(expr.entries, keys, values, strict=True):
            if key != keys[0]:
                self._mismatch(entry.key, keys[0], key)
            if value != values[0]:
                self._mismatch(entry.value, values[0], value)

    def _mismatch(self, expr: Expr, expected: Type, found: Type) -> None:
        self._source.report(expr.offset, f"expected type '{expected}' but found '{found}'")


def _element_type(expr: Expr, is_optional: bool) -> Type:
    found = type_of(expr)
    return (types.unwrap_optional(found) or found) if is_optional else found


def _is_pattern(text: str) -> bool:
    try:
        pattern(text)
    except EvaluationError:
        return False
    return True


def walk(expr: Expr) -> list[Expr]:
    """All nodes of a tree, operands first."""
    found: list[Expr] = []
    pending = [expr]
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(children(node))
    found.reverse()
    return found


def children(expr: Expr) -> list[Expr]:
    match expr:
        case Select():
            return [expr.operand]
        case Call():
            return [*([expr.target] if expr.target else []), *expr.args]
        case ListExpr():
            return list(expr.elements)
        case MapExpr():
            return [each for entry in expr.entries for each in (entry.key, entry.value)]
        case Comprehension():
            return [expr.range, expr.accu_init, expr.condition, expr.step, expr.result]
        case _:
            return []


def _literal_type(expr: Literal) -> Type:
    kinds: dict[type, Type] = {
        bool: types.BOOL,
        int: types.INT,
        Uint: types.UINT,
        float: types.DOUBLE,
        str: types.STRING,
        bytes: types.BYTES,
        type(None): types.NULL,
    }
    return kinds[type(expr.value)]
