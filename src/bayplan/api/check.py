"""Checks the texts inside an object: quantities, selectors, ranges of numbers.

Decoding only checks types: a quantity stays text until it is used. Objects from an API server have passed its
validation; objects from files are checked here, so that an error is reported with object and field, and not
in the middle of a scheduling cycle.

The checks are derived from the types of the records, so a new field needs no new line. This is not
Kubernetes' whole validation: only what would make scheduling fail or silently change its result.
"""

from __future__ import annotations

import types
import typing
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from bayplan.api.meta import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorTerm,
    Object,
    Quantity,
    Record,
    ResourceList,
)
from bayplan.api.names import label_key_problems
from bayplan.api.quantity import parse_quantity
from bayplan.api.selectors import Operator, compile_selector
from bayplan.errors import DecodeError, InputError, QuantityError, SelectorError

_INT64_FIELDS: Final = frozenset(
    {
        "count",
        "generation",
        "int",
        "observedGeneration",
        "resourceSliceCount",
        "sizeBytes",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    }
)
"""Integers with 64 bits in the Kubernetes API; all others have 32."""

_MAPS: Final = frozenset({"resources", "map"})
_LISTS: Final = frozenset({"quantities", "records"})

_NEGATIVE: Final = '"{quantity}" is negative'
_OUT_OF_RANGE: Final = "{number} does not fit into {bits} bits"
_NO_NAME: Final = "the object has no name"
_NO_OPERATOR: Final = '"{operator}" is not a valid node selector operator'
_NEEDS_VALUES: Final = "{operator} needs at least one value"
_NEEDS_ONE_VALUE: Final = "{operator} needs exactly one value"
_TAKES_NO_VALUES: Final = "{operator} takes no values"

_OPERATORS: Final = frozenset(operator.value for operator in Operator)
_FIELD_OPERATORS: Final = frozenset({Operator.IN.value, Operator.NOT_IN.value})


def object_key(obj: Object) -> str:
    """How messages name the object: kind, and namespace and name."""
    return f"{type(obj).__name__} {obj.key}".rstrip()


def check_object(obj: Object) -> None:
    """Checks every quantity, selector and number in the object.

    Raises:
        InputError: one of them is malformed; the error names the object and the field.
    """
    try:
        if not obj.name and not obj.metadata.generate_name:
            raise DecodeError(_NO_NAME, field="metadata.name")
        _check_record(obj, "")
    except InputError as error:
        raise error.at(object_key=object_key(obj)) from error.__cause__


def check_decoded(obj: Object) -> None:
    """The same for an object that was just decoded, at a tenth of the cost: decoding has checked the numbers.

    Raises:
        InputError: as `check_object`.
    """
    if not (obj.name or obj.metadata.generate_name) or not is_sound(obj):
        check_object(obj)


class _Step(NamedTuple):
    """One field of a record that needs a check, and the check."""

    attribute: str
    wire_name: str
    kind: str


@cache
def _plan(record: type[Record]) -> tuple[_Step, ...]:
    hints = _hints(record)
    steps = []
    for name, wire_name in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        kind = _kind(hints[name])
        if kind:
            steps.append(_Step(name, wire_name, kind))
    return tuple(steps)


@cache
def _hints(record: type[Record]) -> dict[str, Any]:
    """The types of the fields. A start waits for this, and evaluating them takes most of its time."""
    return typing.get_type_hints(record)


def _kind(hint: Any) -> str:
    """The check that a field of this type needs; "" for none."""
    if hint == ResourceList:
        return "resources"
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        members = [member for member in typing.get_args(hint) if member is not types.NoneType]
        if set(members) == set(typing.get_args(Quantity)):
            return "quantity"
        return _kind(members[0]) if len(members) == 1 else ""
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        if item == Quantity:
            return "quantities"
        return "records" if _has_work(item) else ""
    if typing.get_origin(hint) is dict:
        return "map" if _has_work(typing.get_args(hint)[1]) else ""
    if hint is int:
        return "integer"
    return "record" if _has_work(hint) else ""


def _has_work(hint: Any) -> bool:
    if not isinstance(hint, type) or not issubclass(hint, Record):
        return False
    return hint in (LabelSelector, NodeSelectorTerm) or bool(_plan(hint))


def _check_record(record: Record, path: str) -> None:
    if isinstance(record, LabelSelector):
        _check_selector(record, path)
        return
    if isinstance(record, NodeSelectorTerm):
        _check_node_term(record, path)
        return
    prefix = f"{path}." if path else ""
    for attribute, wire_name, kind in _plan(type(record)):
        content = getattr(record, attribute)
        if content is None:
            continue
        at = f"{prefix}{wire_name}"
        if kind == "integer":
            _check_integer(content, at, 64 if wire_name in _INT64_FIELDS else 32)
            continue
        for inside, part in _parts(kind, content, at):
            if isinstance(part, Record):
                _check_record(part, inside)
            else:
                _check_quantity(part, inside)


def _parts(kind: str, content: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The records or quantities in a field, each with its path."""
    if kind in _MAPS:
        yield from ((f"{path}[{key}]", part) for key, part in content.items())
    elif kind in _LISTS:
        yield from ((f"{path}[{i}]", part) for i, part in enumerate(content))
    else:
        yield path, content


def _check_quantity(quantity: Quantity, path: str) -> None:
    try:
        amount = parse_quantity(quantity)
    except QuantityError as error:
        raise error.at(field=path) from error.__cause__
    if amount < 0:
        raise QuantityError(_NEGATIVE.format(quantity=quantity), field=path)


def quantity_problems(obj: Object) -> tuple[QuantityError, ...]:
    """The errors of unreadable quantities in the object, each with its field; empty if all can be read.

    Every object that is watched comes through here, so only what leads to quantities is read, and the paths
    are determined only for invalid ones.
    """
    try:
        quantity_check(type(obj))(obj)
    except QuantityError:
        return tuple(_located_problems(obj))
    return ()


def is_sound(record: Record) -> bool:
    """Whether all quantities and selectors are valid. Without paths this is much cheaper than finding out
    which are not."""
    try:
        _soundness_check(type(record))(record)
    except InputError:
        return False
    return True


_Check = Callable[[Any], object]
"""Raises an InputError if the record is invalid."""


@cache
def quantity_check(record: type[Record]) -> _Check:
    """A function that reads all quantities of such a record; it raises a QuantityError if it cannot."""
    return _compiled(_fields(record, {}), quantity_check, _readable, parse_quantity)


@cache
def _soundness_check(record: type[Record]) -> _Check:
    """The same with negative quantities and invalid selectors as errors."""
    check = _SELECTOR_CHECKS.get(record)
    if check is None:
        fields = _fields(record, _SELECTOR_CHECKS)
        check = _compiled(fields, _soundness_check, _not_negative, lambda one: _check_quantity(one, ""))
    return check


class _Field(NamedTuple):
    """A field with something to check: quantities, or records with some inside."""

    path: str
    """Its attribute; for a field of a record that is always there, with that of the record."""
    kind: str
    record: type[Record] | None


def _fields(record: type[Record], checked: Collection[type[Record]]) -> Iterator[_Field]:
    """The fields with quantities or with records among `checked`, however deep."""
    hints = _hints(record)
    for step in _plan(record):
        hint = hints[step.attribute]
        inner = next(_records_in(hint), None)
        if inner is None:
            if step.kind != "integer":
                yield _Field(step.attribute, step.kind, None)
        elif inner is hint and inner not in checked:
            for field in _fields(inner, checked):
                yield field._replace(path=f"{step.attribute}.{field.path}")
        elif inner in checked or any(_fields(inner, checked)):
            yield _Field(step.attribute, step.kind, inner)


def _records_in(hint: Any) -> Iterator[type[Record]]:
    if isinstance(hint, type) and issubclass(hint, Record):
        yield hint
    for argument in typing.get_args(hint):
        yield from _records_in(argument)


def _compiled(
    fields: Iterable[_Field],
    check_of: Callable[[type[Record]], _Check],
    known: set[Quantity],
    check_quantity: Callable[[Quantity], object],
) -> _Check:
    """A function that checks these fields: quantities that are not `known`, and records by `check_of`.

    Its source is generated, as that of a dataclass: every watched object is checked and nearly all fields are
    empty, so a loop over the fields would take four times as long as a line for each of them.
    """

    def check_all(quantities: Collection[Quantity]) -> None:
        for quantity in quantities:
            check_quantity(quantity)
        if len(known) > MAX_KNOWN:
            known.clear()
        known.update(quantities)

    names: dict[str, Any] = {"known": known, "check_all": check_all}
    lines = ["def check(record):", "  pass"]
    for number, (path, kind, inner) in enumerate(fields):
        parts = _PARTS[kind].format(f"record.{path}")
        lines.append(f"  if record.{path}:")
        if inner is None:
            lines.append(f"    if not known.issuperset({parts}): check_all({parts})")
        else:
            names[f"check_{number}"] = check_of(inner)
            lines.append(f"    for part in {parts}: check_{number}(part)")
    exec("\n".join(lines), names)
    check: _Check = names["check"]
    return check


_PARTS: Final = {
    "resources": "{}.values()",
    "map": "{}.values()",
    "quantities": "{}",
    "records": "{}",
    "quantity": "({},)",
    "record": "({},)",
}
"""The quantities or records in a field of each kind."""

MAX_KNOWN: Final = 16384

_readable: Final[set[Quantity]] = set()
"""Quantities that could be read: a cluster has few different ones."""
_not_negative: Final[set[Quantity]] = set()
"""Those that are not negative, either."""


def _located_problems(obj: Object) -> Iterator[QuantityError]:
    waiting: deque[tuple[str, Any]] = deque([("", obj)])
    while waiting:
        path, record = waiting.popleft()
        if not isinstance(record, Record):
            try:
                parse_quantity(record)
            except QuantityError as error:
                yield error.at(field=path)
            continue
        prefix = f"{path}." if path else ""
        for attribute, wire_name, kind in _plan(type(record)):
            at, content = f"{prefix}{wire_name}", getattr(record, attribute)
            if content is not None and kind != "integer":
                waiting.extend(_parts(kind, content, at))


def _check_integer(number: int, path: str, bits: int) -> None:
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise DecodeError(_OUT_OF_RANGE.format(number=number, bits=bits), field=path)


def _check_selector(selector: LabelSelector, path: str) -> None:
    try:
        compile_selector(selector)
    except SelectorError as error:
        raise error.at(field=path) from None


def _check_node_term(term: NodeSelectorTerm, path: str) -> None:
    """Rejects what an API server rejects. A bound that is not a number is accepted there, and never
    matches."""
    for i, expression in enumerate(term.match_expressions):
        at = f"{path}.matchExpressions[{i}]"
        if problems := label_key_problems(expression.key):
            raise SelectorError("; ".join(problems), field=f"{at}.key")
        _check_expression(expression, at, _OPERATORS)
    for i, expression in enumerate(term.match_fields):
        _check_expression(expression, f"{path}.matchFields[{i}]", _FIELD_OPERATORS)


def _check_expression(expression: LabelSelectorRequirement, path: str, operators: frozenset[str]) -> None:
    operator, values = expression.operator, len(expression.values)
    if operator not in operators:
        raise SelectorError(_NO_OPERATOR.format(operator=operator), field=f"{path}.operator")
    problem = ""
    if operators is _FIELD_OPERATORS or operator in (Operator.GT, Operator.LT):
        problem = _NEEDS_ONE_VALUE if values != 1 else ""
    elif operator in (Operator.IN, Operator.NOT_IN):
        problem = _NEEDS_VALUES if not values else ""
    elif values:
        problem = _TAKES_NO_VALUES
    if problem:
        raise SelectorError(problem.format(operator=operator), field=f"{path}.values")


_SELECTOR_CHECKS: Final[dict[type[Record], _Check]] = {
    LabelSelector: compile_selector,
    NodeSelectorTerm: lambda term: _check_node_term(term, ""),
}
