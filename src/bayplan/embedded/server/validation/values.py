"""Rules for common values: quantities, numbers, selectors, choices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from bayplan.api.names import label_key_problems, label_value_problems
from bayplan.api.quantity import NANO, is_extended_resource, parse_quantity
from bayplan.embedded.server.schema.types import Field, Type, named_type
from bayplan.embedded.server.statuses import (
    FieldProblem,
    forbidden_field,
    invalid_field,
    required,
    unsupported,
)

Content = dict[str, Any]

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ORDERED: Final = {
    tuple(sorted(choices)): choices
    for choices in (
        ("Always", "OnFailure", "Never"),
        ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
        EFFECTS,
        ("PreemptLowerPriority", "Never"),
    )
}
"""Choices that are not in alphabetical order in messages."""
_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def not_negative(content: Content, name: str, path: str) -> list[FieldProblem]:
    number = content.get(name)
    if isinstance(number, int) and number < 0:
        return [invalid_field(f"{path}.{name}", number, NOT_NEGATIVE)]
    return []


def choice_problems(content: Any, of: Type, path: str = "") -> list[FieldProblem]:
    """Values that their field does not allow."""
    if isinstance(content, dict) and of.fields is not None:
        problems = []
        choosing = _enum_fields(of.name)
        for name, part in content.items():
            if name in choosing and (path or name not in ("status", "metadata")):
                problems += _field_choices(part, of.fields[name], f"{path}.{name}" if path else name)
        return problems
    if isinstance(content, list) and of.items is not None:
        # A list of plain texts is one field in messages.
        is_plain = not of.items.is_struct
        return [
            problem
            for i, item in enumerate(content)
            for problem in choice_problems(item, of.items, path if is_plain else f"{path}[{i}]")
        ]
    if of.choices and isinstance(content, str) and content not in of.choices:
        if "operator" in path.rpartition(".")[2]:
            return []  # has rules of its own
        return [unsupported(path, content, _ORDERED.get(of.choices, of.choices))]
    return []


@cache
def _enum_fields(struct: str) -> frozenset[str]:
    """The fields of a struct that are enums, or contain one."""
    return _contains_enum(struct, frozenset())


def _contains_enum(struct: str, seen: frozenset[str]) -> frozenset[str]:
    found = set()
    for name, field in (named_type(struct).fields or {}).items():
        of = field.type
        while of.items is not None:
            of = of.items
        below = of.is_struct and of.name not in seen and _contains_enum(of.name, seen | {struct})
        if of.choices or below:
            found.add(name)
    return frozenset(found)


def _field_choices(part: Any, field: Field, path: str) -> list[FieldProblem]:
    return [] if part == "" and not field.required else choice_problems(part, field.type, path)


def resource_problems(resources: Content, path: str) -> list[FieldProblem]:
    """requests and limits: no negative amounts, and no request above its limit."""
    problems = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, quantity in amounts.items():
            at = f"{path}.{part}[{name}]"
            problems += _resource_name_problems(name, at)
            problems += quantity_problems(name, quantity, at)
    for name, quantity in requests.items():
        limit = limits.get(name)
        if limit is None:
            continue
        if parse_quantity(quantity) > parse_quantity(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            problems.append(invalid_field(f"{path}.requests", quantity, why))
        elif is_extended_resource(name) and parse_quantity(quantity) != parse_quantity(limit):
            why = f"must be equal to {name} limit of {limit}"
            problems.append(invalid_field(f"{path}.requests", quantity, why))
    for name in requests:
        if is_extended_resource(name) and name not in limits:
            problems.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
    return problems


def _resource_name_problems(name: str, path: str) -> list[FieldProblem]:
    if name in _STANDARD:
        return []
    problems = [invalid_field(path, name, why) for why in label_key_problems(name)]
    if "/" in name or name.startswith("hugepages-"):
        return problems
    if not problems:
        problems.append(invalid_field(path, name, "must be a standard resource type or fully qualified"))
    return [*problems, invalid_field(path, name, "must be a standard resource for containers")]


def quantity_problems(name: str, quantity: Any, path: str) -> list[FieldProblem]:
    amount = parse_quantity(quantity)
    if amount < 0:
        return [invalid_field(path, quantity, NOT_NEGATIVE)]
    if amount % NANO and (is_extended_resource(name) or name == "pods"):
        return [invalid_field(path, quantity, "must be an integer")]
    return []


def selector_problems(selector: Any, path: str) -> list[FieldProblem]:
    """A label selector, as written."""
    if not isinstance(selector, dict):
        return []
    problems = []
    for key, label in (selector.get("matchLabels") or {}).items():
        problems += [invalid_field(f"{path}.matchLabels", key, why) for why in label_key_problems(key)]
        problems += [invalid_field(f"{path}.matchLabels", label, why) for why in label_value_problems(label)]
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{i}]"
        problems += _expression_problems(expression, at, _SELECTOR_OPERATORS)
        for j, text in enumerate(expression.get("values") or ()):
            problems += [invalid_field(f"{at}.values[{j}]", text, why) for why in label_value_problems(text)]
    return problems


_SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_SELECTOR_OPERATORS, "Gt", "Lt")


def _expression_problems(expression: Content, path: str, operators: Sequence[str]) -> list[FieldProblem]:
    """Key, operator and number of values of a selector's expression."""
    problems = []
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator not in operators:
        problems.append(invalid_field(f"{path}.operator", operator, "not a valid selector operator"))
    elif operator in ("In", "NotIn"):
        if not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            problems.append(required(f"{path}.values", why))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            problems.append(forbidden_field(f"{path}.values", why))
    elif len(values) != 1:
        why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        problems.append(required(f"{path}.values", why))
    key = expression.get("key", "")
    return problems + [invalid_field(f"{path}.key", key, why) for why in label_key_problems(key)]


def node_term_problems(term: Content, path: str) -> list[FieldProblem]:
    """A term of a node selector."""
    problems = []
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{i}]"
        problems += _expression_problems(expression, at, _NODE_OPERATORS)
    for i, expression in enumerate(term.get("matchFields") or ()):
        at = f"{path}.matchFields[{i}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator not in ("In", "NotIn"):
            problems.append(invalid_field(f"{at}.operator", operator, "not a valid selector operator"))
        elif len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            problems.append(required(f"{at}.values", why))
        if expression.get("key") != "metadata.name":
            key = expression.get("key", "")
            problems.append(invalid_field(f"{at}.key", key, "not a valid field selector key"))
    return problems
