"""The functions that evaluate operators and calls, composed of the functions of their operands.

With `metered` they also charge the meter among the variables, as upstream counts costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bayplan.cel.attributes import METER, Step, Variables
from bayplan.cel.costs import FAILED, call_cost
from bayplan.cel.declarations import SINGLE_IMPLEMENTATION
from bayplan.cel.errors import NO_SUCH_OVERLOAD, AbortedError, EvaluationError
from bayplan.cel.formats import Format
from bayplan.cel.semver import Semver
from bayplan.cel.syntax import Call
from bayplan.cel.values import Optional, Uint, Value, equal_or_false, go_type_name

UNHASHABLE: Final = (bytes, Semver, Format)
"""Values that upstream cannot look up in a hash table."""
_WITH_ADD: Final = frozenset({"Bytes", "Double", "Duration", "Int", "String", "Timestamp", "Uint"})
"""Go types that have the first method of a list, which is Add."""
REGEX_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})


def logical(terms: list[Step], deciding: bool) -> Step:
    """`||` (decided by True) or `&&` (by False): an error matters only if no operand decides."""
    other = not deciding

    def evaluate(variables: Variables) -> Value:
        first_error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(variables)
            except AbortedError:
                raise
            except EvaluationError as error:
                first_error = first_error or error
                continue
            if value is deciding:
                return deciding
            if value is not other and first_error is None:
                first_error = EvaluationError(NO_SUCH_OVERLOAD)
        if first_error is not None:
            raise first_error
        return other

    return evaluate


def alternative(optional: Step, alternative: Step, function: str) -> Step:
    """`or` and `orValue`: the alternative is evaluated only if it is needed."""
    unwrap = function == "orValue"

    def evaluate(variables: Variables) -> Value:
        value = optional(variables)
        if type(value) is not Optional:
            return value
        if value.has_value:
            return value.value if unwrap else value
        return alternative(variables)

    return evaluate


def plain_call(function: Callable[..., Value], steps: list[Step]) -> Step:
    match steps:
        case []:
            return lambda variables: function()
        case [one]:
            return lambda variables: function(one(variables))
        case [one, other]:
            return lambda variables: function(one(variables), other(variables))
        case _:
            return lambda variables: function(*[step(variables) for step in steps])


def compared_with(step: Step, constant: str | int, function: Callable[..., Value], wanted: bool) -> Step:
    """`x == "constant"` or `!=`, the most common comparison: values of the same type are compared at once."""
    kind = type(constant)

    def evaluate(variables: Variables) -> Value:
        value = step(variables)
        return (value == constant) is wanted if type(value) is kind else function(value, constant)

    return evaluate


def metered_call(call: Call, function: Callable[..., Value], steps: list[Step], has_pattern: bool) -> Step:
    """A call that is charged for whether it fails or not, as upstream does.

    With up to two arguments all of them are evaluated even if the first fails. With more arguments, with a
    constant regular expression, or where the overload is found at run time, evaluation ends there, and the
    call costs nothing if arguments are left.
    """
    name = call.function
    overload = call.overloads[0] if len(call.overloads) == 1 else ""
    ends_at_error = len(steps) > 2 or has_pattern
    ends_at_error = ends_at_error or (not overload and name not in SINGLE_IMPLEMENTATION)

    def evaluate(variables: Variables) -> Value:
        args: list[Value] = []
        failed: EvaluationError | None = None
        for step in steps:
            try:
                args.append(step(variables))
            except AbortedError:
                raise
            except EvaluationError as error:
                if ends_at_error and len(args) + 1 < len(steps):
                    raise
                failed = failed or error
                args.append(FAILED)
        result: Value = FAILED
        if failed is None:
            try:
                result = function(*args)
            except EvaluationError as error:
                failed = error
        variables[METER].charge(call_cost(name, overload, args, result))
        if failed is not None:
            raise failed
        return result

    return evaluate


def charged(step: Step, cost: int) -> Step:
    """A list or map literal, which is charged for even if one of its elements fails."""

    def evaluate(variables: Variables) -> Value:
        try:
            value = step(variables)
        except AbortedError:
            raise
        except EvaluationError:
            variables[METER].charge(cost)
            raise
        variables[METER].charge(cost)
        return value

    return evaluate


def among_constants(operand: Step, values: tuple[Value, ...]) -> Step | None:
    """`x in [constants]` as a lookup, for which upstream charges nothing; None if the list does not allow
    it.
    """
    kinds = {type(value) for value in values}
    if not kinds <= {bool, int, Uint, float, str}:
        return None
    texts = frozenset(values) if kinds == {str} else frozenset()

    def among(variables: Variables) -> bool:
        value = operand(variables)
        if type(value) is str and texts:
            return value in texts
        if type(value) in UNHASHABLE:
            raise unhashable(value)
        return any(equal_or_false(value, each) for each in values)

    return among


def unhashable(value: Value) -> AbortedError:
    """The error of a lookup that ends the evaluation."""
    return AbortedError(f"internal error: runtime error: hash of unhashable type {go_type_name(value)}")


def counted(step: Step, problem: Callable[[str], str], kind: type | None) -> Step:
    """An argument that upstream uses to count the cost even if it failed or has another type, which ends the
    evaluation.
    """

    def evaluate(variables: Variables) -> Value:
        go_type = "*types.Err"
        try:
            value = step(variables)
            if kind is None or type(value) is kind:
                return value
            go_type = go_type_name(value)
        except AbortedError:
            raise
        except EvaluationError:
            pass
        raise AbortedError(f"internal error: interface conversion: {problem(go_type)}")

    return evaluate


def no_list(go_type: str) -> str:
    missing = "Contains" if go_type.rpartition(".")[2] in _WITH_ADD else "Add"
    return f"{go_type} is not traits.Lister: missing method {missing}"
