"""Rules of all kinds: names, labels, annotations, owners, finalizers, quantities and selectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
    path_segment_problems,
)
from bayplan.api.quantity import NANO, is_extended_resource, parse_quantity
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.schema.types import Field, Type, named_type
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_field,
    required,
    too_long,
    unsupported,
)

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


_STANDARD_FINALIZERS: Final = ("foregroundDeletion", "kubernetes", "orphan")
_RBAC: Final = "rbac.authorization.k8s.io"
_MAX_ANNOTATIONS: Final = 256 * 1024
_CONDITION_STATUSES: Final = ("False", "True", "Unknown")
_MAX_REASON: Final = 1024
_MAX_MESSAGE: Final = 32 * 1024
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_reason = re.compile(_REASON, re.ASCII).fullmatch
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  "
    "or 'MY_NAME',  "
    f"or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)


def metadata_problems(resource: Resource, content: Content) -> list[FieldProblem]:
    meta = content["metadata"]
    problems = []
    name = meta.get("name", "")
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    else:
        problems += [invalid_field("metadata.name", name, why) for why in name_problems(resource, name)]
    problems += label_problems(meta.get("labels"), "metadata.labels")
    problems += annotation_problems(meta.get("annotations"), "metadata.annotations")
    problems += _owner_problems(meta.get("ownerReferences") or ())
    for i, finalizer in enumerate(meta.get("finalizers") or ()):
        problems += [
            invalid_field("metadata.finalizers", finalizer, why) for why in label_key_problems(finalizer)
        ]
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(invalid_field(f"metadata.finalizers[{i}]", finalizer, why))
    return problems


def name_problems(resource: Resource, name: str) -> list[str]:
    """The problems of an object's name."""
    if resource in (kinds.NAMESPACES, kinds.SERVICES):
        return dns_label_problems(name)
    if resource.group == _RBAC:
        return path_segment_problems(name)
    return dns_subdomain_problems(name)


def label_problems(labels: dict[str, str] | None, path: str) -> list[FieldProblem]:
    problems = []
    for key, label in (labels or {}).items():
        problems += [invalid_field(path, key, why) for why in label_key_problems(key)]
        problems += [invalid_field(path, label, why) for why in label_value_problems(label)]
    return problems


def annotation_problems(annotations: dict[str, str] | None, path: str) -> list[FieldProblem]:
    problems = []
    size = 0
    for key, text in (annotations or {}).items():
        problems += [invalid_field(path, key, why) for why in label_key_problems(key.lower())]
        size += len(key) + len(text)
    if size > _MAX_ANNOTATIONS:
        problems.append(too_long(path, _MAX_ANNOTATIONS))
    return problems


def condition_problems(conditions: Sequence[Content], path: str) -> list[FieldProblem]:
    """Conditions of the common form (type, status, reason, message and times)."""
    problems = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at, kind, reason = f"{path}[{i}]", condition.get("type", ""), condition.get("reason", "")
        if kind in seen:
            problems.append(duplicate(f"{at}.type", kind))
        seen.add(kind)
        problems += [invalid_field(f"{at}.type", kind, why) for why in label_key_problems(kind)]
        if (status := condition.get("status", "")) not in _CONDITION_STATUSES:
            problems.append(unsupported(f"{at}.status", status, _CONDITION_STATUSES))
        if (generation := condition.get("observedGeneration", 0)) < 0:
            why = "must be greater than or equal to zero"
            problems.append(invalid_field(f"{at}.observedGeneration", generation, why))
        problems += [
            required(f"{at}.{name}") for name in ("lastTransitionTime", "reason") if not condition.get(name)
        ]
        if reason and not _is_reason(reason):
            problems.append(invalid_field(f"{at}.reason", reason, _REASON_RULE))
        problems += [
            too_long(f"{at}.{name}", limit)
            for name, limit in (("reason", _MAX_REASON), ("message", _MAX_MESSAGE))
            if len(condition.get(name, "").encode()) > limit
        ]
    return problems


def _owner_problems(owners: Any) -> list[FieldProblem]:
    path = "metadata.ownerReferences"
    problems = []
    controllers = []
    for owner in owners:
        if not owner.get("apiVersion"):
            problems.append(invalid_field(f"{path}.apiVersion", "", "version must not be empty"))
        problems += [
            invalid_field(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        problems.append(
            invalid_field(
                path,
                list(owners),
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{controllers[0]} and {controllers[1]}",
            )
        )
    return problems


def metadata_update_problems(content: Content, old: Content) -> list[FieldProblem]:
    """What cannot change: an object that is being deleted gets no new finalizers."""
    meta, known = content["metadata"], old["metadata"]
    if "deletionTimestamp" not in known:
        return []
    there = set(known.get("finalizers") or ())
    added = [name for name in meta.get("finalizers") or () if name not in there]
    if not added:
        return []
    names = ", ".join(f'"{name}"' for name in added)
    why = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
    problem = forbidden_field("metadata.finalizers", f"{why}{{{names}}}")
    return [problem, problem]  # a real server names it twice among the causes
