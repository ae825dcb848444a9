"""The closures that an expression is planned as, and their cost: chains of lookups, logic and calls.

A chain such as `device.attributes["d"].model` has a base value and keys that are looked up in it, one after
the other; from the first optional key on a missing one makes the whole chain `optional.none()`.
`condition ? a.b : c` is a chain too: keys that follow are looked up in the branch that is taken. `planner.py`
puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from bayplan.cel.addresses import Format
from bayplan.cel.costs import FAILED, call_cost
from bayplan.cel.declarations import SINGLE_IMPLEMENTATION
from bayplan.cel.scalars import Semver
from bayplan.cel.syntax import Call
from bayplan.cel.values import (
    NO_SUCH_OVERLOAD,
    NONE,
    AbortedError,
    CostLimitError,
    DefaultMap,
    EvaluationError,
    Optional,
    Uint,
    Value,
    equal_or_false,
    go_double,
    go_type_name,
    is_same_key,
    no_such_key,
    type_name,
)

Variables: TypeAlias = dict[str, Value]
Step: TypeAlias = Callable[[Variables], Value]
Lookup: TypeAlias = Callable[[Variables, Value, bool], Value]
"""Looks a key up in a value; the flag says that a missing key is `MISSING` and not an error."""

METER: Final = "#meter"
"""The name of the meter among the variables; it is not valid in an expression."""


KEY_TYPES: Final = frozenset({str, int, Uint, float, bool})


class _Missing:
    """The result of an optional lookup of a missing key."""


MISSING: Final = _Missing()


class Meter:
    """Counts the cost of one evaluation and stops it at a limit."""

    __slots__ = ("cost", "limit")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        # As upstream's, the sum has 64 bits: a huge cost may make it small again.
        self.cost = (self.cost + cost) % 2**64
        if self.cost > self.limit:
            raise CostLimitError


class Attribute:
    """A base and the keys looked up in it."""

    def __init__(self, base: Step, metered: bool, base_cost: int = 1) -> None:
        self._base = base
        self._metered = metered
        self._base_cost = base_cost
        self._lookups: list[tuple[Lookup, bool]] = []
        self._names: list[str] = []
        """The leading keys that are constant strings and not optional."""
        self._test_only = False

    def add(self, lookup: Lookup, optional: bool, key: Value = None) -> Attribute:
        """Adds a key; its value is given if it is constant."""
        self._lookups.append((lookup, optional))
        if type(key) is str and not optional:
            self._names.append(key)
        return self

    def test(self, lookup: Lookup) -> Attribute:
        """Makes it a presence test of one more key."""
        self._lookups.append((lookup, False))
        self._test_only = True
        return self

    def step(self) -> Step:
        return self._build(self._base_cost, is_part=False)

    def branch_step(self) -> Step:
        """As a branch of a conditional or as a key, where upstream does not charge for the base."""
        return self._build(0, is_part=True)

    def _build(self, base_cost: int, *, is_part: bool) -> Step:
        base, lookups = self._base, tuple(self._lookups)
        if self._test_only:
            resolve = _presence(lookups, self._metered, is_part)
        else:
            resolve = _chain(lookups, self._metered)
        cost = 0 if self._test_only else base_cost
        if not self._metered:
            if len(self._names) == len(lookups):
                return _named_chain(base, tuple(self._names), resolve)
            return lambda variables: resolve(variables, base(variables))

        def metered(variables: Variables) -> Value:
            try:
                return resolve(variables, base(variables))
            finally:
                variables[METER].cost += cost

        return metered


class Conditional:
    """`condition ? then : otherwise`; keys looked up in it are looked up in the branch that is taken."""

    def __init__(
        self,
        condition: Step,
        then: Attribute | Conditional,
        otherwise: Attribute | Conditional,
        *,
        metered: bool,
    ) -> None:
        self._condition = condition
        self._branches = (then, otherwise)
        self._metered = metered
        self._test_only = False

    def add(self, lookup: Lookup, optional: bool, key: Value = None) -> Conditional:
        for branch in self._branches:
            branch.add(lookup, optional, key)
        return self

    def test(self, lookup: Lookup) -> Conditional:
        for branch in self._branches:
            branch.test(lookup)
        self._test_only = True
        return self

    def step(self) -> Step:
        choose, metered = self.branch_step(), self._metered
        if not self._test_only:
            return choose

        def test(variables: Variables) -> Value:
            try:
                found = choose(variables)
                return found.has_value if type(found) is Optional else found
            finally:
                if metered:
                    # Upstream takes back the cost of the base, which it does not charge here.
                    variables[METER].charge(-1)

        return test

    def branch_step(self) -> Step:
        condition = self._condition
        then, otherwise = (branch.branch_step() for branch in self._branches)

        def choose(variables: Variables) -> Value:
            value = condition(variables)
            if value is True:
                return then(variables)
            if value is False:
                return otherwise(variables)
            raise EvaluationError(NO_SUCH_OVERLOAD)

        return choose


def constant_lookup(key: Value) -> Lookup:
    if type(key) is str:

        def find(variables: Variables, value: Value, test: bool) -> Value:
            found = value.get(key, MISSING) if type(value) is dict else MISSING
            return found if found is not MISSING else look_up(value, key, test)

        return find
    return lambda variables, value, test: look_up(value, key, test)


def look_up(value: Value, key: Value, test: bool) -> Value:
    """The value at a key or index. Maps take numbers of any type by value; a missing key is `MISSING` in a
    test.
    """
    if type(key) not in KEY_TYPES:
        raise EvaluationError(f"invalid qualifier type: {go_type_name(key)}")
    if isinstance(value, dict):
        found = _find(value, key)
        if found is not MISSING or test:
            return found
        raise no_such_key(key)
    if type(value) is tuple:
        index = _index(key)
        if 0 <= index < len(value):
            return value[index]
        if test:
            return MISSING
        raise EvaluationError(f"index out of bounds: {index}")
    if test:
        return MISSING
    raise no_such_key(key)


def _find(entries: dict[Value, Value], key: Value) -> Value:
    if type(key) is str:
        found = entries.get(key, MISSING)
    else:
        found = next((each for name, each in entries.items() if is_same_key(name, key)), MISSING)
    return DefaultMap.EMPTY if found is MISSING and type(entries) is DefaultMap else found


def _index(key: Value) -> int:
    kind = type(key)
    if kind in (int, Uint) or (kind is float and key.is_integer()):
        return int(key)
    if kind is float:
        raise EvaluationError(f"unsupported index value {go_double(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")


def _chain(lookups: tuple[tuple[Lookup, bool], ...], metered: bool) -> Callable[[Variables, Value], Value]:
    """Looks up all keys in turn; from the first optional one on a missing key gives `optional.none()`."""

    def resolve(variables: Variables, value: Value) -> Value:
        is_optional = False
        if type(value) is Optional and lookups:
            if not value.has_value:
                return value
            value, is_optional = value.value, True
        for lookup, optional in lookups:
            is_optional = is_optional or optional
            if metered and not is_optional:
                variables[METER].charge(1)
            value = lookup(variables, value, is_optional)
            if value is MISSING:
                return NONE
            if metered and is_optional:
                variables[METER].charge(1)
        return Optional(value) if is_optional else value

    return resolve


def _named_chain(base: Step, names: tuple[str, ...], resolve: Callable[[Variables, Value], Value]) -> Step:
    """The chain that selectors are made of, `device.attributes["d"].model`, in one loop without calls."""
    if not names:
        return base

    def find(variables: Variables) -> Value:
        value = base(variables)
        if type(value) is Optional:
            return resolve(variables, value)
        for name in names:
            kind = type(value)
            if kind is DefaultMap:
                value = value.get(name, DefaultMap.EMPTY)
            elif kind is dict and name in value:
                value = value[name]
            else:
                value = look_up(value, name, False)
        return value

    return find


def _presence(
    lookups: tuple[tuple[Lookup, bool], ...], metered: bool, is_part: bool
) -> Callable[[Variables, Value], Value]:
    """Whether the last key exists; the keys before it have to exist, unless they are optional.

    In a part of another chain upstream does not test an optional key: the result is its optional value.
    """
    before = _chain(lookups[:-1], metered)
    last = lookups[-1][0]

    def resolve(variables: Variables, value: Value) -> Value:
        value = before(variables, value)
        if type(value) is not Optional:
            if metered:
                variables[METER].charge(1)
            return last(variables, value, True) is not MISSING
        found = last(variables, value.value, True) if value.has_value else MISSING
        if found is MISSING:
            return NONE if is_part else False
        if metered:
            variables[METER].charge(1)
        return Optional(found) if is_part else True

    return resolve


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
