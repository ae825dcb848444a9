"""Rules of custom resources in CEL (`x-kubernetes-validations`), within a cost budget.

A rule sees `self`, the value at its place in the schema, and `oldSelf` in an update. A rule with `oldSelf` is
evaluated only where there is an old value; entries of lists have none. Whether a rule could become too
expensive is not estimated when a definition is written: evaluation stops at the limit. `bayplan.cel` is the
language.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final, NamedTuple

from bayplan.cel import types
from bayplan.cel.checker import check, walk
from bayplan.cel.parser import parse
from bayplan.cel.planner import plan
from bayplan.cel.scalars import parse_duration, parse_timestamp
from bayplan.cel.steps import METER, Meter, Step
from bayplan.cel.syntax import Ident, Source
from bayplan.cel.types import Type
from bayplan.cel.values import CompileError, CostLimitError, EvaluationError
from bayplan.embedded.server.statuses import FieldProblem, invalid_field

Schema = Mapping[str, Any]

RULES: Final = "x-kubernetes-validations"
_PER_RULE: Final = 1_000_000
_PER_OBJECT: Final = 10_000_000
"""kube-apiserver's limits (apis/cel: PerCallLimit, RuntimeCELCostBudget), in CEL's units."""
_MAX_COMPILED: Final = 512
_KEYWORDS: Final = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let",
        "loop", "namespace", "null", "package", "return", "true", "var", "void", "while",
    }
)  # fmt: skip
_ABSENT: Final = object()
_REASONS: Final = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")
_ROOT: Final = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
    },
}


class _Rule(NamedTuple):
    text: str
    step: Step
    message: str
    message_step: Step | None
    reason: str
    field: str
    compares: bool
    """Whether it refers to `oldSelf`."""


class _Invalid(NamedTuple):
    """A rule that cannot be compiled: a definition in the data directory may have been written by another
    version."""

    problem: str


class _Compiled(NamedTuple):
    schema: Schema
    """Kept, so that its identity is not that of another one."""
    rules: list[_Rule | _Invalid]


_compiled: OrderedDict[int, _Compiled] = OrderedDict()
_compiled_lock: Final = Lock()
"""Large objects are validated in threads."""


def rule_problems(schema: Schema, path: str, *, is_root: bool = False) -> list[FieldProblem]:
    """The rules of one part of a schema that cannot be compiled."""
    problems = []
    for i, rule in enumerate(schema.get(RULES) or ()):
        at = f"{path}.{RULES}[{i}]"
        text = rule.get("rule") if isinstance(rule, dict) else None
        if not isinstance(text, str) or not text.strip():
            problems.append(invalid_field(f"{at}.rule", text, "rule is not specified"))
            continue
        try:
            _compile_rule(rule, _complete(schema, is_root))
        except CompileError as error:
            problems.append(invalid_field(f"{at}.rule", text, f"compilation failed: {error}"))
    return problems


def expression_problems(content: Any, schema: Schema, old: Any = None) -> Iterator[FieldProblem]:
    """The rules that an object, or a new version of one, breaks."""
    budget = Meter(_PER_OBJECT)
    try:
        yield from _problems(content, schema, _ABSENT if old is None else old, "", budget, is_root=True)
    except CostLimitError:
        why = "validation failed due to running out of cost budget, no further validation rules will be run"
        yield invalid_field("", "object", why)


def _problems(
    content: Any, schema: Schema, old: Any, path: str, budget: Meter, *, is_root: bool = False
) -> Iterator[FieldProblem]:
    if schema.get(RULES) and content is not None:
        yield from _broken(content, schema, old, path, budget, is_root)
    if isinstance(content, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, part in content.items():
            inner = properties.get(name) or (extra if isinstance(extra, dict) else None)
            if isinstance(inner, dict):
                before = old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT
                yield from _problems(part, inner, before, f"{path}.{name}" if path else name, budget)
    elif isinstance(content, list) and isinstance(items := schema.get("items"), dict):
        for i, part in enumerate(content):
            yield from _problems(part, items, _ABSENT, f"{path}[{i}]", budget)


def _broken(
    content: Any, schema: Schema, old: Any, path: str, budget: Meter, is_root: bool
) -> Iterator[FieldProblem]:
    complete = _complete(schema, is_root)
    kind = schema.get("type") or "object"
    try:
        variables: dict[str, Any] = {"self": _value(content, complete)}
        if old is not _ABSENT and old is not None:
            variables["oldSelf"] = _value(old, complete)
    except (EvaluationError, ValueError) as error:
        yield invalid_field(path, kind, f"a value does not have the format of the schema: {error}")
        return
    for rule in _rules_of(schema, complete):
        if isinstance(rule, _Invalid):
            yield invalid_field(path, kind, rule.problem)
            continue
        if rule.compares and "oldSelf" not in variables:
            continue
        meter = Meter(_PER_RULE)
        try:
            is_kept = rule.step({**variables, METER: meter}) is True
            why = "" if is_kept else _message(rule, variables)
        except CostLimitError:
            why = f"call cost exceeds limit for rule: {rule.text}"
        except EvaluationError as error:
            why = f"rule evaluation error: {error} evaluating rule: {rule.text}"
        budget.charge(min(meter.cost, _PER_RULE))
        if why:
            problem = invalid_field(f"{path}{rule.field}".lstrip("."), kind, why)
            yield replace(problem, reason=rule.reason)


def _message(rule: _Rule, variables: dict[str, Any]) -> str:
    if rule.message_step is not None:
        try:
            text = rule.message_step({**variables, METER: Meter(_PER_RULE)})
        except EvaluationError:
            text = ""  # as upstream: the message of the rule, or the rule itself
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text
    return rule.message or f"failed rule: {rule.text}"


def _complete(schema: Schema, is_root: bool) -> Schema:
    """The schema with the fields that every object has."""
    if not is_root and not schema.get("x-kubernetes-embedded-resource"):
        return schema
    return {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **_ROOT}}


def _rules_of(schema: Schema, complete: Schema) -> list[_Rule | _Invalid]:
    with _compiled_lock:
        known = _compiled.get(id(schema))
    if known is None or known.schema is not schema:
        known = _Compiled(schema, [_rule_or_problem(rule, complete) for rule in schema[RULES]])
        with _compiled_lock:
            _compiled[id(schema)] = known
            if len(_compiled) > _MAX_COMPILED:
                _compiled.popitem(last=False)
    return known.rules


def _rule_or_problem(rule: Any, schema: Schema) -> _Rule | _Invalid:
    text = rule.get("rule") if isinstance(rule, dict) else None
    if not isinstance(text, str) or not text.strip():
        return _Invalid("rule compile error: rule is not specified")
    try:
        return _compile_rule(rule, schema)
    except CompileError as error:
        return _Invalid(f"rule compile error: compilation failed: {error}")


def _compile_rule(rule: Mapping[str, Any], schema: Schema) -> _Rule:
    fields: dict[str, dict[str, Type]] = {}
    of = _type(schema, fields, "self")
    step, compares = _compile(rule["rule"], of, fields, types.BOOL)
    message_step = None
    if text := rule.get("messageExpression"):
        message_step, _ = _compile(text, of, fields, types.STRING)
    reason = rule.get("reason") or _REASONS[0]
    return _Rule(
        text=rule["rule"].strip(),
        step=step,
        message=rule.get("message") or "",
        message_step=message_step,
        reason=reason if reason in _REASONS else _REASONS[0],
        field=rule.get("fieldPath") or "",
        compares=compares,
    )


def _compile(text: str, of: Type, fields: dict[str, dict[str, Type]], wanted: Type) -> tuple[Step, bool]:
    source = Source(text)
    try:
        expr = parse(source)
        result = check(source, expr, {"self": of, "oldSelf": of}, fields)
        if result not in (wanted, types.DYN, types.ANY):
            raise CompileError(f"must evaluate to a {wanted.runtime_name}")
        compares = any(isinstance(each, Ident) and each.name == "oldSelf" for each in walk(expr))
        return plan(expr, metered=True), compares
    except RecursionError as error:
        raise CompileError("the expression is nested too deeply") from error


# Types and values


def _escaped(name: str) -> str:
    """A field's name as an identifier (apis/cel/escaping.go: Escape)."""
    if name in _KEYWORDS:
        return f"__{name}__"
    name = name.replace("__", "__underscores__")
    return name.replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")


def _type(schema: Schema, fields: dict[str, dict[str, Type]], name: str) -> Type:
    if schema.get("x-kubernetes-int-or-string"):
        return types.DYN
    match schema.get("type"):
        case "object":
            if isinstance(extra := schema.get("additionalProperties"), dict):
                return types.map_of(types.STRING, _type(extra, fields, f"{name}.@values"))
            if properties := schema.get("properties"):
                fields[name] = own = {}
                for each, part in properties.items():
                    own[_escaped(each)] = _type(part, fields, f"{name}.{each}")
                return types.object_type(name)
            return types.map_of(types.STRING, types.DYN)
        case "array":
            return types.list_of(_type(schema.get("items") or {}, fields, f"{name}.@items"))
        case "string":
            return _FORMATS.get(schema.get("format") or "", types.STRING)
        case "integer":
            return types.INT
        case "number":
            return types.DOUBLE
        case "boolean":
            return types.BOOL
    return types.DYN


_FORMATS: Final = {"date-time": types.TIMESTAMP, "duration": types.DURATION, "byte": types.BYTES}


def _value(content: Any, schema: Schema) -> Any:
    """A value of an object as rules see it."""
    if isinstance(content, dict):
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(extra, dict):
            return {name: _value(part, extra) for name, part in content.items()}
        if properties:
            known = ((name, part) for name, part in content.items() if name in properties)
            return {_escaped(name): _value(part, properties[name]) for name, part in known}
        return {name: _value(part, {}) for name, part in content.items()}
    if isinstance(content, list):
        items = schema.get("items") or {}
        return tuple(_value(part, items) for part in content)
    if isinstance(content, str):
        match schema.get("format"):
            case "date-time":
                return parse_timestamp(content)
            case "duration":
                return parse_duration(content)
            case "byte":
                return base64.b64decode(content)
        return content
    if isinstance(content, int) and not isinstance(content, bool) and schema.get("type") == "number":
        return float(content)
    return content
