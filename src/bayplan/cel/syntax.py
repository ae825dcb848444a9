"""The text of an expression, its abstract syntax, and the macros that rewrite it while it is parsed.

The parser makes the nodes, and the checker fills in `type` and, for calls, `overloads`. Nodes are compared by
identity: the same text in two places is two nodes. Problems are collected while an expression is parsed or
checked and reported together, in the order in which they occur in the text, each with its line and a caret
under the column, as cel-go does.

Most macros become a `Comprehension` that folds over a list or the keys of a map with an accumulator:
`x.all(e, p)`. `optMap` and `cel.bind` become one over an empty list, whose accumulator is the named value: it
is computed when first used, and once.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bayplan.cel.values import CompileError

if TYPE_CHECKING:
    from bayplan.cel.types import Type
    from bayplan.cel.values import Value

_MAX_SNIPPET: Final = 16384
_WIDE_DOT: Final = "．"
_WIDE_CARET: Final = "＾"


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    column: int
    message: str


class Source:
    """An expression's text, with the problems found in it so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self._starts = [0, *(index + 1 for index, char in enumerate(text) if char == "\n")]

    def report(self, offset: int, message: str) -> None:
        line = bisect_right(self._starts, offset)
        self.problems.append(Problem(line, offset - self._starts[line - 1], message))

    def report_at_end(self, message: str) -> None:
        """Reports a problem at the end of the text; for an empty text upstream's parser has no column."""
        if self.text:
            self.report(len(self.text), message)
        else:
            self.problems.append(Problem(1, -1, message))

    def raise_problems(self) -> None:
        """Raises all problems as one error, if there are any."""
        if self.problems:
            ordered = sorted(self.problems, key=lambda problem: (problem.line, problem.column))
            raise CompileError("compilation failed: " + "\n".join(map(self._display, ordered)))

    def _display(self, problem: Problem) -> str:
        text = f"ERROR: <input>:{problem.line}:{problem.column + 1}: {problem.message}"
        lines = self.text.split("\n")
        if not self.text or problem.line > len(lines):
            return text
        line = lines[problem.line - 1].replace("\t", " ")
        if len(line.encode()) > _MAX_SNIPPET:
            return text
        pointer = "".join("." if char.isascii() else _WIDE_DOT for char in line[: problem.column])
        here = line[problem.column : problem.column + 1]
        return f"{text}\n | {line}\n | {pointer}{'^' if here.isascii() else _WIDE_CARET}"


@dataclass(slots=True, eq=False)
class Expr:
    offset: int
    """Where the node is in the source: an operator's own position, not the start of its operands."""
    type: Type | None = field(default=None, init=False, repr=False)
    """Filled in by the checker."""

    def copy(self) -> Expr:
        """An equal tree of new nodes, for macros that use an operand twice."""
        return copy.deepcopy(self)


@dataclass(slots=True, eq=False)
class Literal(Expr):
    value: Value


@dataclass(slots=True, eq=False)
class Ident(Expr):
    name: str


@dataclass(slots=True, eq=False)
class Select(Expr):
    operand: Expr
    field_name: str
    test_only: bool = False
    """`has(operand.field)`."""


@dataclass(slots=True, eq=False)
class Call(Expr):
    function: str
    args: list[Expr]
    target: Expr | None = None
    overloads: list[str] = field(default_factory=list, init=False)
    """The overloads that fit the static types, filled in by the checker."""


@dataclass(slots=True, eq=False)
class ListExpr(Expr):
    elements: list[Expr]
    optional: frozenset[int] = frozenset()
    """Indices of elements written as `?e`."""


@dataclass(slots=True, eq=False)
class MapEntry:
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapExpr(Expr):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class Struct(Expr):
    """`Name{field: value}`. Selectors have no such types; the checker reports it."""

    type_name: str
    values: list[Expr]


@dataclass(slots=True, eq=False)
class Comprehension(Expr):
    """A fold over a list or the keys of a map; `cel.bind` is one over an empty list."""

    range: Expr
    iter_var: str
    iter_var2: str
    """Empty unless both key (or index) and value are named."""
    accu_var: str
    accu_init: Expr
    condition: Expr
    step: Expr
    result: Expr


def qualified_name(expr: Expr) -> str | None:
    """`a.b.c` for a chain of field selections on a name, else None."""
    if isinstance(expr, Ident):
        return expr.name
    if isinstance(expr, Select) and not expr.test_only:
        prefix = qualified_name(expr.operand)
        return None if prefix is None else f"{prefix}.{expr.field_name}"
    return None


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
