"""Macros: calls that are rewritten into other expressions while parsing.

Most become a `Comprehension` that folds over a list or the keys of a map with an accumulator. `optMap` and
`cel.bind` become one over an empty list, whose accumulator is the named value: it is computed when first
used, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bayplan.cel.syntax import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select

ACCUMULATOR: Final = "@result"
_UNUSED: Final = "#unused"
_SORT_INPUT: Final = "@__sortBy_input__"


class MacroError(Exception):
    """A macro was given something it cannot expand."""

    def __init__(self, expr: Expr, message: str) -> None:
        super().__init__(message)
        self.offset = expr.offset
        self.message = message


def expand(call: Call) -> Expr:
    """The expansion of a macro call; other calls are returned unchanged."""
    is_receiver = call.target is not None
    macro = _MACROS.get((call.function, is_receiver, len(call.args)))
    return call if macro is None else macro(call) or call


def _has(call: Call) -> Expr:
    (arg,) = call.args
    if not isinstance(arg, Select):
        raise MacroError(arg, "invalid argument to has() macro")
    return Select(call.offset, arg.operand, arg.field_name, test_only=True)


def _quantifier(call: Call, init: Literal, condition: Expr, step: Expr, result: Expr) -> Expr:
    names = [_iteration_variable(arg, "argument must be a simple name") for arg in call.args[:-1]]
    if len(names) == 2 and names[0] == names[1]:
        raise MacroError(call.args[1], f"duplicate variable name: {names[0]}")
    second = names[1] if len(names) == 2 else ""
    return Comprehension(
        call.offset, _target(call), names[0], second, ACCUMULATOR, init, condition, step, result
    )


def _all(call: Call) -> Expr:
    at = call.offset
    condition = Call(at, "@not_strictly_false", [_accumulator(at)])
    step = Call(at, "_&&_", [_accumulator(at), call.args[-1]])
    return _quantifier(call, Literal(at, True), condition, step, _accumulator(at))


def _exists(call: Call) -> Expr:
    at = call.offset
    condition = Call(at, "@not_strictly_false", [Call(at, "!_", [_accumulator(at)])])
    step = Call(at, "_||_", [_accumulator(at), call.args[-1]])
    return _quantifier(call, Literal(at, False), condition, step, _accumulator(at))


def _exists_one(call: Call) -> Expr:
    at = call.offset
    counted = Call(at, "_+_", [_accumulator(at), Literal(at, 1)])
    step = Call(at, "_?_:_", [call.args[-1], counted, _accumulator(at)])
    result = Call(at, "_==_", [_accumulator(at), Literal(at, 1)])
    return _quantifier(call, Literal(at, 0), Literal(at, True), step, result)


def _map(call: Call) -> Expr:
    at = call.offset
    step = Call(at, "_+_", [_accumulator(at), ListExpr(at, [call.args[-1]])])
    condition = call.args[1] if len(call.args) == 3 else None
    return _collect(call, call.args[:1], ListExpr(at, []), step, condition)


def _filter(call: Call) -> Expr:
    at = call.offset
    step = Call(at, "_+_", [_accumulator(at), ListExpr(at, [call.args[0].copy()])])
    return _collect(call, call.args[:1], ListExpr(at, []), step, call.args[1])


def _transform_list(call: Call) -> Expr:
    at = call.offset
    step = Call(at, "_+_", [_accumulator(at), ListExpr(at, [call.args[-1]])])
    return _collect(call, call.args[:2], ListExpr(at, []), step, _condition(call))


def _transform_map(call: Call) -> Expr:
    at = call.offset
    key = _iteration_variable(call.args[0], "argument must be a simple name")
    step = Call(at, "cel.@mapInsert", [_accumulator(at), Ident(at, key), call.args[-1]])
    return _collect(call, call.args[:2], MapExpr(at, []), step, _condition(call))


def _transform_map_entry(call: Call) -> Expr:
    at = call.offset
    step = Call(at, "cel.@mapInsert", [_accumulator(at), call.args[-1]])
    return _collect(call, call.args[:2], MapExpr(at, []), step, _condition(call))


def _condition(call: Call) -> Expr | None:
    return call.args[2] if len(call.args) == 4 else None


def _collect(call: Call, variables: list[Expr], init: Expr, step: Expr, condition: Expr | None) -> Expr:
    """A fold that collects results, for all elements or for those that meet a condition."""
    message = "argument is not an identifier" if len(variables) == 1 else "argument must be a simple name"
    names = [_iteration_variable(each, message) for each in variables]
    if len(names) == 2 and names[0] == names[1]:
        raise MacroError(call.args[1], f"duplicate variable name: {names[0]}")
    at = call.offset
    if condition is not None:
        step = Call(at, "_?_:_", [condition, step, _accumulator(at)])
    second = names[1] if len(names) == 2 else ""
    return Comprehension(
        at, _target(call), names[0], second, ACCUMULATOR, init, Literal(at, True), step, _accumulator(at)
    )


def _opt_map(call: Call) -> Expr:
    at = call.offset
    bound = _opt_bind(call, "optMap() variable name must be a simple identifier")
    return _opt_conditional(call, Call(at, "optional.of", [bound]))


def _opt_flat_map(call: Call) -> Expr:
    return _opt_conditional(call, _opt_bind(call, "optFlatMap() variable name must be a simple identifier"))


def _opt_bind(call: Call, message: str) -> Expr:
    name = _simple_name(call.args[0], message)
    value = Call(call.offset, "value", [], _target(call).copy())
    return _bind_to(call.offset, name, value, call.args[1])


def _opt_conditional(call: Call, then: Expr) -> Expr:
    at = call.offset
    has_value = Call(at, "hasValue", [], _target(call))
    return Call(at, "_?_:_", [has_value, then, Call(at, "optional.none", [])])


def _bind(call: Call) -> Expr | None:
    if not isinstance(call.target, Ident) or call.target.name != "cel":
        return None
    name = _simple_name(call.args[0], "cel.bind() variable names must be simple identifiers")
    return _bind_to(call.offset, name, call.args[1], call.args[2])


def _bind_to(at: int, name: str, value: Expr, result: Expr) -> Expr:
    return Comprehension(
        at, ListExpr(at, []), _UNUSED, "", name, value, Literal(at, False), Ident(at, name), result
    )


def _sort_by(call: Call) -> Expr:
    at = call.offset
    target = _target(call)
    if not isinstance(target, ListExpr | Select | Ident | Comprehension | Call):
        raise MacroError(
            target,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        )
    keys = _map(Call(at, "map", call.args, Ident(at, _SORT_INPUT)))
    ordered = Call(at, "@sortByAssociatedKeys", [keys], Ident(at, _SORT_INPUT))
    return _bind_to(at, _SORT_INPUT, target, ordered)


def _target(call: Call) -> Expr:
    assert call.target is not None, "receiver macros have a target"
    return call.target


def _accumulator(at: int) -> Ident:
    return Ident(at, ACCUMULATOR)


def _iteration_variable(arg: Expr, message: str) -> str:
    name = _simple_name(arg, message)
    if name in (ACCUMULATOR, "__result__"):
        raise MacroError(arg, "iteration variable overwrites accumulator variable")
    return name


def _simple_name(arg: Expr, message: str) -> str:
    if not isinstance(arg, Ident):
        raise MacroError(arg, message)
    return arg.name


_MACROS: Final[dict[tuple[str, bool, int], Callable[[Call], Expr | None]]] = {
    ("has", False, 1): _has,
    ("all", True, 2): _all,
    ("all", True, 3): _all,
    ("exists", True, 2): _exists,
    ("exists", True, 3): _exists,
    ("exists_one", True, 2): _exists_one,
    ("exists_one", True, 3): _exists_one,
    ("existsOne", True, 3): _exists_one,
    ("map", True, 2): _map,
    ("map", True, 3): _map,
    ("filter", True, 2): _filter,
    ("transformList", True, 3): _transform_list,
    ("transformList", True, 4): _transform_list,
    ("transformMap", True, 3): _transform_map,
    ("transformMap", True, 4): _transform_map,
    ("transformMapEntry", True, 3): _transform_map_entry,
    ("transformMapEntry", True, 4): _transform_map_entry,
    ("optMap", True, 2): _opt_map,
    ("optFlatMap", True, 2): _opt_flat_map,
    ("bind", True, 3): _bind,
    ("sortBy", True, 2): _sort_by,
}
"""By name, whether it is called on a target, and number of arguments."""
