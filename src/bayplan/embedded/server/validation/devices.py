"""Rules that claims, classes and slices of devices share: names, limited lists, selectors, configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from bayplan.api.meta import Content
from bayplan.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from bayplan.cel import COST_LIMIT, CompileError, compile_selector
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_field,
    required,
    too_long,
    too_many,
    unsupported,
)
from bayplan.embedded.server.validation.values import node_term_problems

Check = Callable[[Any, str], list[FieldProblem]]

MAX_REQUESTS: Final = 32
_MAX_SELECTORS: Final = 32
_MAX_CONFIGS: Final = 32
_MAX_EXPRESSION: Final = 10 * 1024
_MAX_PARAMETERS: Final = 10 * 1024
_MAX_DRIVER: Final = 63
_MAX_POOL: Final = 253
_MAX_ID: Final = 32
_MAX_CONDITIONS: Final = 4
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_OPERATORS: Final = ("Equal", "Exists")

_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_is_identifier = re.compile(_IDENTIFIER, re.ASCII).fullmatch
_IDENTIFIER_RULE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    f"'{_IDENTIFIER}')"
)


# Lists and maps


def list_problems(items: Any, limit: int, check: Check, path: str) -> list[FieldProblem]:
    """The problems of all items; only the length if there are too many, so that long lists are cheap."""
    items = items or ()
    if len(items) > limit:
        return [too_many(path, len(items), limit)]
    return [problem for i, item in enumerate(items) for problem in check(item, f"{path}[{i}]")]


def set_problems(
    items: Any, limit: int, check: Check, path: str, key: Callable[[Any], Any] = lambda item: item
) -> list[FieldProblem]:
    """The same for a list without duplicates."""
    problems = list_problems(items, limit, check, path)
    if len(items or ()) > limit:
        return problems
    seen: list[Any] = []
    for i, item in enumerate(items or ()):
        if (mark := key(item)) in seen:
            problems.append(duplicate(f"{path}[{i}]", mark))
        else:
            seen.append(mark)
    return problems


def map_problems(
    items: Mapping[str, Any] | None, limit: int | None, check_key: Check, check: Check, path: str
) -> list[FieldProblem]:
    items = items or {}
    if limit is not None and len(items) > limit:
        return [too_many(path, len(items), limit)]
    problems = []
    for key, item in items.items():
        problems += check_key(key, path)
        problems += check(item, f"{path}[{key}]")
    return problems


# Names


def name_problems(name: str, path: str) -> list[FieldProblem]:
    """A name of a device, request or counter: a DNS label."""
    return [invalid_field(path, name, why) for why in dns_label_problems(name)]


def required_name_problems(name: str, path: str) -> list[FieldProblem]:
    return name_problems(name, path) if name else [required(path)]


def driver_problems(name: str, path: str) -> list[FieldProblem]:
    if not name:
        return [required(path)]
    problems = [too_long(path, _MAX_DRIVER)] if len(name.encode()) > _MAX_DRIVER else []
    return problems + [invalid_field(path, name, why) for why in dns_subdomain_problems(name.lower())]


def pool_problems(name: str, path: str) -> list[FieldProblem]:
    if not name:
        return [required(path)]
    problems = [too_long(path, _MAX_POOL)] if len(name.encode()) > _MAX_POOL else []
    for part in name.split("/"):
        problems += [invalid_field(path, part, why) for why in dns_subdomain_problems(part)]
    return problems


def class_name_problems(name: str, path: str) -> list[FieldProblem]:
    if not name:
        return [required(path)]
    return [invalid_field(path, name, why) for why in dns_subdomain_problems(name)]


def qualified_name_problems(name: str, path: str) -> list[FieldProblem]:
    """The name of an attribute or capacity: `id` or `domain/id`. Further parts are not checked."""
    parts = name.split("/")
    if len(parts) == 1:
        return _identifier_problems(name, path)
    if len(parts) > 2:
        return []
    domain, identifier = parts
    problems = driver_problems(domain, path) if domain else [_empty(path, "the domain must not be empty")]
    problems += (
        _identifier_problems(identifier, path) if identifier else [_empty(path, "the name must not be empty")]
    )
    return problems


def fully_qualified_name_problems(name: str, path: str) -> list[FieldProblem]:
    problems = qualified_name_problems(name, path)
    if "/" not in name:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        problems.append(invalid_field(path, name, why))
    return problems


def _empty(path: str, why: str) -> FieldProblem:
    return invalid_field(path, "", why)


def _identifier_problems(name: str, path: str) -> list[FieldProblem]:
    problems = [too_long(path, _MAX_ID)] if len(name.encode()) > _MAX_ID else []
    return problems if _is_identifier(name) else [*problems, invalid_field(path, name, _IDENTIFIER_RULE)]


def label_name_problems(name: str, path: str) -> list[FieldProblem]:
    return [invalid_field(path, name, why) for why in label_key_problems(name)]


# Selectors, configuration, tolerations, taints, conditions


def selectors_problems(selectors: Any, path: str) -> list[FieldProblem]:
    return list_problems(selectors, _MAX_SELECTORS, _selector_problems, path)


def _selector_problems(selector: Content, path: str) -> list[FieldProblem]:
    if selector.get("cel") is None:
        return [required(f"{path}.cel")]
    expression, at = selector["cel"].get("expression", ""), f"{path}.cel.expression"
    if len(expression.encode()) > _MAX_EXPRESSION:
        return [too_long(at, _MAX_EXPRESSION)]
    why, too_complex = _compiled(expression)
    if why:
        return [invalid_field(at, expression, why)]
    return [forbidden_field(at, "too complex, exceeds cost limit")] if too_complex else []


@lru_cache(maxsize=256)
def _compiled(expression: str) -> tuple[str, bool]:
    """Why an expression does not compile, and whether its cost can exceed the limit."""
    try:
        return "", compile_selector(expression).max_cost() > COST_LIMIT
    except CompileError as error:
        return str(error), False


def configs_problems(
    configs: Any, path: str, check: Check | None = None, limit: int = _MAX_CONFIGS
) -> list[FieldProblem]:
    """Opaque configuration; `check` validates further fields of a kind."""

    def problems_of(config: Content, at: str) -> list[FieldProblem]:
        problems = check(config, at) if check is not None else []
        opaque = config.get("opaque")
        if opaque is None:
            return [*problems, required(f"{at}.opaque")]
        problems += driver_problems(opaque.get("driver", ""), f"{at}.opaque.driver")
        return problems + json_object_problems(opaque.get("parameters"), f"{at}.opaque.parameters")

    return list_problems(configs, limit, problems_of, path)


def json_object_problems(content: Any, path: str) -> list[FieldProblem]:
    """Something opaque, which must be an object of limited size."""
    if content is None:
        return [required(path)]
    if len(msgspec.json.encode(content)) > _MAX_PARAMETERS:
        return [too_long(path, _MAX_PARAMETERS)]
    if not isinstance(content, dict):
        return [invalid_field(path, "<value omitted>", "must be a valid JSON object")]
    return []


def toleration_problems(toleration: Content, path: str) -> list[FieldProblem]:
    problems = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        problems += label_name_problems(key, f"{path}.key")
    if operator == "Exists":
        if value:
            problems.append(invalid_field(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        problems += _label_value_problems(value, f"{path}.value")
    else:
        problems.append(unsupported(f"{path}.operator", operator, _OPERATORS))
    if effect and effect not in _EFFECTS:
        problems.append(unsupported(f"{path}.effect", effect, _EFFECTS))
    return problems


def taint_problems(taint: Content, path: str) -> list[FieldProblem]:
    problems = label_name_problems(taint.get("key", ""), f"{path}.key")
    problems += _label_value_problems(taint.get("value", ""), f"{path}.value")
    effect = taint.get("effect", "")
    if not effect:
        problems.append(required(f"{path}.effect"))
    elif effect not in _EFFECTS:
        problems.append(unsupported(f"{path}.effect", effect, _EFFECTS))
    return problems


def _label_value_problems(value: str, path: str) -> list[FieldProblem]:
    return [invalid_field(path, value, why) for why in label_value_problems(value)]


def binding_condition_problems(item: Content, path: str) -> list[FieldProblem]:
    """The binding conditions of a device, or of an allocated one."""
    ready, failed = item.get("bindingConditions") or [], item.get("bindingFailureConditions") or []
    ready_path, failed_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    problems = list_problems(ready, _MAX_CONDITIONS, label_name_problems, ready_path)
    problems += list_problems(failed, _MAX_CONDITIONS, label_name_problems, failed_path)
    problems += _repeated(ready, ready_path)
    for i, condition in enumerate(failed):
        if condition in failed[:i]:
            problems.append(duplicate(f"{failed_path}[{i}]", condition))
        if condition in ready:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            problems.append(invalid_field(f"{failed_path}[{i}]", condition, why))
    if failed and not ready:
        why = "bindingConditions are required to use bindingFailureConditions"
        problems.append(invalid_field(ready_path, None, why))
    if ready and not failed:
        why = "bindingFailureConditions are required to use bindingConditions"
        problems.append(invalid_field(failed_path, None, why))
    return problems


def _repeated(items: Sequence[str], path: str) -> Iterable[FieldProblem]:
    return [duplicate(f"{path}[{i}]", item) for i, item in enumerate(items) if item in items[:i]]


def node_selector_problems(selector: Content, path: str) -> list[FieldProblem]:
    terms, at = selector.get("nodeSelectorTerms") or (), f"{path}.nodeSelectorTerms"
    if not terms:
        return [required(at, "must have at least one node selector term")]
    return [problem for i, term in enumerate(terms) for problem in node_term_problems(term, f"{at}[{i}]")]
