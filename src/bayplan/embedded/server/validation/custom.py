"""The rules of custom resources from their schemas: types, bounds, enums and required fields.

Rules in CEL are in `expressions.py`. Those that combine schemas (oneOf, anyOf, not) are not evaluated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from operator import ge, le
from typing import Any, Final

from bayplan.api.go_values import PatternError, compile_pattern
from bayplan.api.meta import Content
from bayplan.embedded.server.documents import copied
from bayplan.embedded.server.patching.ownership import identity
from bayplan.embedded.server.sizes import MAX_CUSTOM_VALUES, count_values
from bayplan.embedded.server.statuses import FieldProblem, invalid_field, required, too_large, unsupported
from bayplan.embedded.server.validation.expressions import expression_problems, rule_problems

Schema = Mapping[str, Any]

_NAMES: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
_KEYWORDS: Final[dict[str, type]] = {
    "enum": list,
    "exclusiveMaximum": bool,
    "exclusiveMinimum": bool,
    "format": str,
    "maxItems": int,
    "maxLength": int,
    "maximum": float,
    "minItems": int,
    "minLength": int,
    "minimum": float,
    "pattern": str,
    "properties": dict,
    "required": list,
    "x-kubernetes-list-map-keys": list,
    "x-kubernetes-list-type": str,
    "x-kubernetes-map-type": str,
    "x-kubernetes-validations": list,
    "type": str,
}
_Enums = dict[int, frozenset[Hashable]]
"""Choices by the identity of their list in the schema: each list is hashed once for each object."""
_MAX_NAMED_CHOICES: Final = 100
_MAX_FOUND: Final = 1000
"""Errors that are looked for. 30,000 entries of a list without 1,000 required fields each have 30 million."""
_MAX_TEXT: Final = 1000
"""Characters of a pattern or a choice in a message: they may have megabytes, and be named for every entry."""

_BOUNDS: Final = (
    ("minimum", "exclusiveMinimum", "greater than", ge),
    ("maximum", "exclusiveMaximum", "less than", le),
)


def fill_in(content: Any, schema: Schema) -> None:
    """Sets what is missing to the schema's defaults, in place.

    Raises:
        StatusError: the defaults would make an object that is too large; 413.
    """
    _Defaults().fill_in(content, schema)


class _Defaults:
    """The defaults of a schema, found once for each part of it: a list may have thousands of entries."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[str, Any, int]]] = {}
        """By the identity of a part of the schema: names, defaults, and how many values each has."""
        self._added = 0

    def fill_in(self, content: Any, schema: Schema) -> None:
        if isinstance(content, dict):
            self._set(content, schema)
            properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
            for name, part in content.items():
                if (known := properties.get(name)) is not None:
                    self.fill_in(part, known)
                elif isinstance(extra, dict):
                    self.fill_in(part, extra)
        elif isinstance(content, list):
            items = schema.get("items") or {}
            for part in content:
                self.fill_in(part, items)

    def _set(self, content: Content, schema: Schema) -> None:
        for name, default, size in self._of(schema):
            if name not in content:
                self._added += size
                if self._added > MAX_CUSTOM_VALUES:
                    raise too_large(f"more than {MAX_CUSTOM_VALUES} values with the defaults of the schema")
                content[name] = copied(default)

    def _of(self, schema: Schema) -> list[tuple[str, Any, int]]:
        found = self._known.get(id(schema))
        if found is None:
            found = self._known[id(schema)] = [
                (name, default, count_values(default))
                for name, part in (schema.get("properties") or {}).items()
                if (default := part.get("default")) is not None
            ]
        return found


def custom_problems(content: Content, schema: Schema, old: Content | None = None) -> list[FieldProblem]:
    """The errors of an object, or of a new version, by its schema; its metadata has been checked before.

    Rules in CEL are evaluated if there is no other error: they rely on the types.
    """
    body = {name: part for name, part in content.items() if name not in ("apiVersion", "kind", "metadata")}
    properties = {
        name: part
        for name, part in (schema.get("properties") or {}).items()
        if name not in ("apiVersion", "kind", "metadata")
    }
    found = _problems(body, {**schema, "type": "object", "properties": properties}, "", {})
    problems = list(islice(found, _MAX_FOUND))
    return problems or list(islice(expression_problems(content, schema, old), _MAX_FOUND))


def schema_problems(schema: Any, path: str, *, is_root: bool = True) -> list[FieldProblem]:
    """The problems of a schema itself: each keyword must have its type, or be null."""
    if not isinstance(schema, dict):
        return [invalid_field(path, _NAMES.get(type(schema), "null"), "must be of type object")]
    problems = [
        invalid_field(f"{path}.{name}", _NAMES.get(type(part), "null"), f"must be of type {_NAMES[kind]}")
        for name, kind in _KEYWORDS.items()
        if (part := schema.get(name)) is not None
        and type(part) is not kind
        and not (kind is float and type(part) is int)
    ]
    problems = problems or [
        invalid_field(f"{path}.{name}[{i}]", _NAMES.get(type(each), "null"), "must be of type string")
        for name in ("required", "x-kubernetes-list-map-keys")
        for i, each in enumerate(schema.get(name) or ())
        if not isinstance(each, str)
    ]
    if problems:
        return problems
    try:
        compile_pattern(schema.get("pattern") or "")
    except PatternError as error:
        why = f"must be a valid regular expression, but isn't: {error}"
        problems.append(invalid_field(f"{path}.pattern", schema["pattern"], why))
    for name, part in (schema.get("properties") or {}).items():
        problems += schema_problems(part, f"{path}.properties[{name}]", is_root=False)
    if (items := schema.get("items")) is not None:
        problems += schema_problems(items, f"{path}.items", is_root=False)
    extra = schema.get("additionalProperties")
    if extra is not None and not isinstance(extra, bool):
        problems += schema_problems(extra, f"{path}.additionalProperties", is_root=False)
    return problems or rule_problems(schema, path, is_root=is_root)


def _problems(content: Any, schema: Schema, path: str, enums: _Enums) -> Iterator[FieldProblem]:
    if wrong := _type_problem(content, schema, path):
        yield wrong
        return
    if (choices := schema.get("enum")) and not _is_choice(content, choices, enums):
        named = [str(choice)[:_MAX_TEXT] for choice in choices[:_MAX_NAMED_CHOICES]]
        yield unsupported(path, content, named)
    if isinstance(content, dict):
        yield from _object_problems(content, schema, path, enums)
    elif isinstance(content, list):
        yield from _length_problems(len(content), schema, path, "Items", "items")
        items = schema.get("items") or {}
        for i, part in enumerate(content):
            yield from _problems(part, items, f"{path}[{i}]", enums)
    elif isinstance(content, str):
        yield from _length_problems(len(content), schema, path, "Length", "chars long")
        pattern = schema.get("pattern")
        if pattern and compile_pattern(pattern).search(content) is None:
            yield invalid_field(path, content, f"{path} in body should match '{pattern[:_MAX_TEXT]}'")
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield from _bound_problems(content, schema, path)


def _is_choice(content: Any, choices: list[Any], enums: _Enums) -> bool:
    known = enums.get(id(choices))
    if known is None:
        known = enums[id(choices)] = frozenset(map(identity, choices))
    return identity(content) in known


def _type_problem(content: Any, schema: Schema, path: str) -> FieldProblem | None:
    wanted = schema.get("type")
    if content is None or wanted is None or schema.get("x-kubernetes-int-or-string"):
        return None
    actual = _NAMES.get(type(content), "null")
    if actual == wanted or (wanted == "number" and actual == "integer"):
        return None
    return invalid_field(path, actual, f'{path} in body must be of type {wanted}: "{actual}"')


def _object_problems(content: Content, schema: Schema, path: str, enums: _Enums) -> Iterator[FieldProblem]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in content:
            yield required(f"{prefix}{name}")
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name, part in content.items():
        inner = properties.get(name) or (extra if isinstance(extra, dict) else None)
        if inner is not None:
            yield from _problems(part, inner, f"{prefix}{name}", enums)


def _length_problems(length: int, schema: Schema, path: str, suffix: str, unit: str) -> list[FieldProblem]:
    minimum, maximum = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if minimum is not None and length < minimum:
        return [invalid_field(path, length, f"{path} in body should have at least {minimum} {unit}")]
    if maximum is not None and length > maximum:
        return [invalid_field(path, length, f"{path} in body should have at most {maximum} {unit}")]
    return []


def _bound_problems(number: float, schema: Schema, path: str) -> list[FieldProblem]:
    problems = []
    for name, exclusive, words, holds in _BOUNDS:
        bound = schema.get(name)
        if bound is None:
            continue
        if schema.get(exclusive):
            if number == bound or not holds(number, bound):
                problems.append(invalid_field(path, number, f"{path} in body should be {words} {bound}"))
        elif not holds(number, bound):
            problems.append(
                invalid_field(path, number, f"{path} in body should be {words} or equal to {bound}")
            )
    return problems
