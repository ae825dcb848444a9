"""From checked syntax to closures: `plan` returns a function that evaluates an expression.

Every node becomes a function of the variables. Constant parts are computed once, while planning. A chain
such as `device.attributes["d"].model` is one *attribute*: a base value and the keys that are looked up in it,
one after the other; optional keys make the rest of the chain optional.

With a meter the same plan also counts its cost. Counting takes longer than evaluating, so an expression that
cannot reach the limit (`costs.is_cheap`) is planned without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from bayplan.cel.checker import type_of
from bayplan.cel.costs import LIST_BASE, MAP_BASE
from bayplan.cel.declarations import type_names
from bayplan.cel.extensions import pattern
from bayplan.cel.library import FUNCTIONS
from bayplan.cel.steps import (
    KEY_TYPES,
    METER,
    REGEX_FUNCTIONS,
    UNHASHABLE,
    Attribute,
    Conditional,
    Step,
    Variables,
    alternative,
    among_constants,
    charged,
    compared_with,
    constant_lookup,
    counted,
    logical,
    look_up,
    metered_call,
    no_list,
    plain_call,
    unhashable,
)
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
    qualified_name,
)
from bayplan.cel.values import (
    NO_SUCH_OVERLOAD,
    AbortedError,
    CompileError,
    EvaluationError,
    Growing,
    Optional,
    TypeValue,
    Value,
    equal,
    equal_or_false,
    go_type_name,
)

_CONVERSIONS: Final = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
_FOLDED: Final = frozenset({"quantity", "semver", "ip", "cidr"})
"""Functions of constants that are computed while planning, if costs are not counted."""
_SELF_COMPARING: Final = {"distinct": 0, "sort": 0, "@sortByAssociatedKeys": 1}
"""Functions that compare the elements of a list with each other: which argument it is."""
_INDEXING: Final = frozenset({"_[_]", "_[?_]", "_?._"})


class _Lazy:
    """The value of `cel.bind`: computed once, when first used. An error is cached like a value."""

    __slots__ = ("_error", "_step", "_value", "_variables")

    def __init__(self, step: Step, variables: Variables) -> None:
        self._step: Step | None = step
        self._variables = variables
        self._value: Value = None
        self._error: EvaluationError | None = None

    def get(self) -> Value:
        if self._step is not None:
            try:
                self._value = self._step(self._variables)
            except AbortedError:
                raise
            except EvaluationError as error:
                self._error = error
            self._step = None
        if self._error is not None:
            raise self._error
        return self._value


class _Constant:
    """A node whose value is known while planning."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def step(self) -> Step:
        value = self.value
        return lambda _: value


class _Computed:
    """A node that is a call, a literal with parts to compute, or a fold."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def step(self) -> Step:
        return self._step


_Plan: TypeAlias = _Constant | _Computed | Attribute | Conditional


def plan(expr: Expr, metered: bool = False) -> Step:
    """A function that evaluates the expression with variables.

    Raises:
        CompileError: a constant part of it fails.
    """
    return _Planner(metered).plan(expr).step()


class _Planner:
    def __init__(self, metered: bool) -> None:
        self._metered = metered
        self._bound: frozenset[str] = frozenset()
        """Names that `cel.bind` and its relatives define here."""

    def plan(self, expr: Expr) -> _Plan:
        match expr:
            case Literal():
                return _Constant(expr.value)
            case Ident():
                return self._type(expr) or self._variable(expr)
            case Select():
                return self._select(expr)
            case Call():
                return self._call(expr)
            case ListExpr():
                return self._list(expr)
            case MapExpr():
                return self._map(expr)
            case Comprehension():
                return self._comprehension(expr)
            case _:
                raise AssertionError(type(expr))

    def _step(self, expr: Expr) -> Step:
        return self.plan(expr).step()

    def _type(self, expr: Expr) -> _Constant | None:
        """The value of a type name, such as `int`."""
        name = qualified_name(expr)
        if name not in type_names() or type_of(expr).kind != "type":
            return None
        if name in ("duration", "timestamp"):
            raise _failed_to_plan(f"reference to undefined type: {name}")
        return _Constant(TypeValue(str(name)))

    def _variable(self, expr: Ident) -> _Plan:
        name = expr.name.removeprefix(".")
        if type_of(expr).kind == "type":
            raise _failed_to_plan(f"reference to undefined type: {name}")
        if name in self._bound:
            return Attribute(lambda variables: variables[name].get(), self._metered)
        if name == ACCUMULATOR:
            return Attribute(_accumulator, self._metered)
        return Attribute(lambda variables: variables[name], self._metered)

    def _select(self, expr: Select) -> _Plan:
        named = self._type(expr)
        if named is not None:
            return named
        operand = self._attribute(expr.operand)
        lookup = constant_lookup(expr.field_name)
        return operand.test(lookup) if expr.test_only else operand.add(lookup, False, expr.field_name)

    def _attribute(self, expr: Expr) -> Attribute | Conditional:
        """The plan of an operand whose keys are looked up: itself if it is a chain already."""
        planned = self.plan(expr)
        if isinstance(planned, Attribute | Conditional):
            return planned
        return Attribute(planned.step(), self._metered)

    def _call(self, call: Call) -> _Plan:
        match call.function:
            case "_&&_":
                return _Computed(logical(list(map(self._step, call.args)), False))
            case "_||_":
                return _Computed(logical(list(map(self._step, call.args)), True))
            case "_?_:_":
                return self._conditional(call)
            case "or" | "orValue" if call.target is not None:
                return _Computed(
                    alternative(self._step(call.target), self._step(call.args[0]), call.function)
                )
            case "@not_strictly_false":
                return _Computed(self._not_strictly_false(call))
        if call.function in _INDEXING:
            return self._index(call)
        return self._function(call)

    def _conditional(self, call: Call) -> _Plan:
        condition, then, otherwise = map(self.plan, call.args)
        branches = [
            each if isinstance(each, Attribute | Conditional) else Attribute(each.step(), self._metered, 0)
            for each in (then, otherwise)
        ]
        return Conditional(condition.step(), *branches, metered=self._metered)

    def _not_strictly_false(self, call: Call) -> Step:
        operand, metered = self._step(call.args[0]), self._metered

        def evaluate(variables: Variables) -> bool:
            try:
                value = operand(variables)
            except AbortedError:
                raise
            except EvaluationError:
                value = True
            if metered:
                variables[METER].charge(1)
            return value is not False

        return evaluate

    def _index(self, call: Call) -> _Plan:
        operand = self._attribute(call.args[0])
        key = self.plan(call.args[1])
        optional = call.function != "_[_]"
        if isinstance(key, _Constant):
            if type(key.value) not in KEY_TYPES:
                raise _failed_to_plan(f"invalid qualifier type: {go_type_name(key.value)}")
            return operand.add(constant_lookup(key.value), optional, key.value)
        step = key.branch_step() if isinstance(key, Attribute | Conditional) else key.step()
        return operand.add(lambda variables, value, test: look_up(value, step(variables), test), optional)

    def _function(self, call: Call) -> _Plan:
        operands = ([call.target] if call.target is not None else []) + call.args
        plans = [self.plan(operand) for operand in operands]
        if call.function == "@in" and call.overloads == ["in_list"] and isinstance(plans[1], _Constant):
            if not plans[1].value:
                return _Constant(False)
            membership = among_constants(plans[0].step(), plans[1].value)
            if membership is not None:
                return _Computed(membership)
        if call.function in _CONVERSIONS and len(plans) == 1 and isinstance(plans[0], _Constant):
            return _Constant(_converted(call.function, plans[0].value))
        if (
            call.function in _FOLDED
            and not self._metered
            and all(isinstance(each, _Constant) for each in plans)
        ):
            return self._folded(_implementation(call), [each.step()({}) for each in plans])
        steps = [each.step() for each in plans]
        if len(call.overloads) == 1 and call.function in _SELF_COMPARING:
            at = _SELF_COMPARING[call.function]
            steps[at] = counted(steps[at], no_list, tuple if call.function == "distinct" else None)
        if call.overloads == ["list_flatten_int"]:
            steps[1] = counted(steps[1], "ref.Val is {}, not types.Int".format, int)
        constant: Value = plans[1].value if len(plans) > 1 and isinstance(plans[1], _Constant) else None
        has_pattern = call.function in REGEX_FUNCTIONS and type(constant) is str
        if has_pattern:
            function: Callable[..., Value] = _with_pattern(call.function, constant)
        elif call.function == "_==_":
            function = equal
        elif call.function == "_!=_":
            function = _not_equal
        else:
            function = _implementation(call)
        if self._metered:
            return _Computed(metered_call(call, function, steps, has_pattern))
        if call.function in ("_==_", "_!=_") and type(constant) in (str, int):
            return _Computed(compared_with(steps[0], constant, function, call.function == "_==_"))
        return _Computed(plain_call(function, steps))

    def _folded(self, function: Callable[..., Value], args: list[Value]) -> _Plan:
        """The value of a call such as `quantity("40Gi")`, which is no constant for upstream.

        An error is raised when it is evaluated.
        """
        try:
            value = function(*args)
        except EvaluationError:
            return _Computed(lambda _: function(*args))
        return _Computed(lambda _: value)

    def _list(self, expr: ListExpr) -> _Plan:
        plans = [self.plan(element) for element in expr.elements]
        if all(isinstance(each, _Constant) for each in plans) and not expr.optional:
            return _Constant(tuple(each.value for each in plans if isinstance(each, _Constant)))
        steps = [(each.step(), index in expr.optional) for index, each in enumerate(plans)]

        def build(variables: Variables) -> Value:
            values: list[Value] = []
            for step, optional in steps:
                value = step(variables)
                if not optional:
                    values.append(value)
                elif _optional(value, "list element").has_value:
                    values.append(value.value)
            return tuple(values)

        return _Computed(charged(build, LIST_BASE) if self._metered else build)

    def _map(self, expr: MapExpr) -> _Plan:
        plans = [(self.plan(entry.key), self.plan(entry.value), entry.optional) for entry in expr.entries]
        steps = [(key.step(), value.step(), optional) for key, value, optional in plans]

        def build(variables: Variables) -> Value:
            entries: dict[Value, Value] = {}
            for key_step, value_step, optional in steps:
                key, value = key_step(variables), value_step(variables)
                if type(key) in (*UNHASHABLE, tuple, dict):
                    raise unhashable(key)
                if optional and not _optional(value, f"entry '{key}'").has_value:
                    entries.pop(key, None)
                    continue
                entries[key] = value.value if optional else value
            return entries

        parts = [each for key, value, _ in plans for each in (key, value)]
        if all(isinstance(each, _Constant) for each in parts) and not any(each[2] for each in plans):
            try:
                return _Constant(build({}))
            except EvaluationError as error:
                raise _failed_to_plan(str(error)) from error
        return _Computed(charged(build, MAP_BASE) if self._metered else build)

    def _comprehension(self, expr: Comprehension) -> _Plan:
        if expr.accu_var != ACCUMULATOR:
            return self._binding(expr)
        fold_range, init = self._step(expr.range), self._step(expr.accu_init)
        outside = self._bound
        self._bound = outside - {expr.iter_var, expr.iter_var2}
        condition, body = self._step(expr.condition), self._step(expr.step)
        self._bound = outside
        result = self._step(expr.result)
        first, second = expr.iter_var, expr.iter_var2
        grows = isinstance(expr.accu_init, ListExpr)

        def fold(variables: Variables) -> Value:
            entries = _entries(fold_range(variables), bool(second))
            scope = dict(variables)
            scope[ACCUMULATOR] = Growing() if grows else init(variables)
            for entry in entries:
                if second:
                    scope[first], scope[second] = entry
                else:
                    scope[first] = entry
                try:
                    if condition(scope) is False:
                        break
                    scope[ACCUMULATOR] = body(scope)
                except AbortedError:
                    raise
                except EvaluationError as error:
                    scope[ACCUMULATOR] = error
            scope = {**variables, ACCUMULATOR: scope[ACCUMULATOR]}
            found = result(scope)
            return tuple(found) if type(found) is Growing else found

        return _Computed(fold)

    def _binding(self, expr: Comprehension) -> _Plan:
        name, value = expr.accu_var, self._step(expr.accu_init)
        outside = self._bound
        self._bound = outside | {name}
        result = self._step(expr.result)
        self._bound = outside
        return _Computed(lambda variables: result({**variables, name: _Lazy(value, variables)}))


def _accumulator(variables: Variables) -> Value:
    value = variables[ACCUMULATOR]
    if isinstance(value, EvaluationError):
        raise value
    return value


def _entries(value: Value, with_values: bool) -> Iterable[Value]:
    if isinstance(value, dict):
        return list(value.items()) if with_values else list(value)
    if type(value) is tuple:
        return enumerate(value) if with_values else value
    if with_values:
        raise EvaluationError(f"unsupported comprehension range type: {go_type_name(value)}")
    raise EvaluationError(f"got '{go_type_name(value)}', expected iterable type")


def _converted(function: str, value: Value) -> Value:
    try:
        return FUNCTIONS[function](value)
    except EvaluationError as error:
        raise _failed_to_plan(str(error)) from error


def _failed_to_plan(problem: str) -> CompileError:
    return CompileError(f"program instantiation failed: {problem}")


def _implementation(call: Call) -> Callable[..., Value]:
    """Of the functions with this name, the one that is called on a value or the one that is not."""
    method = FUNCTIONS.get(f".{call.function}") if call.target is not None else None
    return FUNCTIONS[call.function] if method is None else method


def _with_pattern(function: str, expression: str) -> Callable[..., Value]:
    """A function whose regular expression is constant: upstream compiles it at once, and does not name the
    types of other arguments that do not fit.
    """
    try:
        pattern(expression)
    except EvaluationError as error:
        raise _failed_to_plan(str(error)) from error

    def call(text: Value, _: Value, *limit: Value) -> Value:
        while type(text) is Optional and text.has_value:
            text = text.value
        text = text.name if type(text) is TypeValue else text
        if type(text) is not str or (limit and type(limit[0]) is not int):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return FUNCTIONS[function](text, expression, *limit)

    return call


def _not_equal(one: Value, other: Value) -> bool:
    return not equal_or_false(one, other)


def _optional(value: Value, what: str) -> Optional:
    if type(value) is not Optional:
        raise EvaluationError(f"cannot initialize optional {what} from non-optional value {value}")
    return value
