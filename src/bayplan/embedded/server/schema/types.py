"""The fields of kinds: names, types, and how lists are merged.

Those of built-in kinds are in `fields.txt`, for the first release of Kubernetes that is supported, and in
`fields-1.37.txt` where they differ in that release. Those of custom resources are in the schemas of their
CustomResourceDefinitions.

There are five users: decoding (`clean`: unknown fields, wrong types, canonical quantities), protobuf,
strategic merge patches, server-side apply, and OpenAPI. `go_struct` is for messages that quote a whole
object, as Go prints the API server's internal structs: fields in the order of their protobuf numbers, with
the names of the Go fields; an absent field is null if it is a pointer, a list or a map, and the type's zero
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from bayplan.api.go_values import GoValueError, canonical_time
from bayplan.api.quantity import canonical_quantity
from bayplan.api.releases import RELEASES
from bayplan.embedded.server.kinds import Resource
from bayplan.errors import QuantityError

_SCALARS: Final = frozenset(
    {
        "any", "boolean", "bytes", "int-or-string", "int32", "int64", "microtime", "number", "quantity",
        "schema", "schema-or-array", "schema-or-bool", "schema-or-strings", "string", "time",
    }
)  # fmt: skip
_METADATA: Final = "ObjectMeta"
MAX_UNKNOWN: Final = 100
"""Unknown fields that are named, as in kube-apiserver."""
OLDEST, *_, NEWEST = RELEASES


@dataclass(slots=True)
class Type:
    """A type of value: a scalar by its name, a list or map of others, or a struct with fields."""

    name: str
    items: Type | None = None
    """The element type of a list (`name` is "list") or a map ("map")."""
    fields: dict[str, Field] | None = None
    choices: tuple[str, ...] = ()
    atomic: bool = False
    open: bool = False
    """Whether a struct keeps unknown fields (x-kubernetes-preserve-unknown-fields)."""

    @property
    def is_struct(self) -> bool:
        return self.fields is not None


@dataclass(slots=True)
class Field:
    """A field of a struct, and how patches treat it."""

    type: Type
    number: tuple[int, ...] = ()
    """Its number in protobuf, with those of enclosing messages that JSON omits."""
    optional: bool = False
    """Whether absent and zero differ."""
    required: bool = False
    keys: tuple[str, ...] = ()
    """The keys of the entries of a list in server-side apply."""
    is_set: bool = False
    merge_key: str = ""
    """The keys of the entries of a list in a strategic merge patch."""
    merges: bool = False
    retains_keys: bool = False
    atomic: bool = False


ANYTHING: Final = Type("any")


@cache
def _types(release: str) -> Mapping[str, Type]:
    """All types of a release, by name."""
    heads = _blocks("fields.txt")
    if files(__package__).joinpath(name := f"fields-{release}.txt").is_file():
        heads |= _blocks(name)
    types = {name: Type(name) for name in _SCALARS}
    for name, (flags, _) in heads.items():
        types[name] = Type(name, fields={}, atomic="atomic" in flags)
    for name, (_, lines) in heads.items():
        fields = types[name].fields
        assert fields is not None
        for line in lines:
            words = line.split()
            fields[words[0]] = _field(words[1], words[2:], types)
    return types


def _blocks(file: str) -> dict[str, tuple[list[str], list[str]]]:
    """The types in a file by name: the words after the name, and the lines of their fields."""
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    found = {}
    for block in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, *flags = head.split()
        found[name] = flags, lines
    return found


def _field(text: str, words: list[str], types: Mapping[str, Type]) -> Field:
    options = dict(word.partition("=")[::2] for word in words)
    return Field(
        _type(text, types),
        number=tuple(int(step) for word in words if word[0] == "#" for step in word[1:].split(".")),
        optional="optional" in options,
        required="required" in options,
        keys=tuple(options["keys"].split(",")) if "keys" in options else (),
        is_set="set" in options,
        merges="merge" in options,
        merge_key=options.get("merge", ""),
        retains_keys="retain" in options,
        atomic="atomic" in options,
    )


def _type(text: str, types: Mapping[str, Type]) -> Type:
    if text[0] == "[":
        return Type("list", items=_type(text[1:-1], types))
    if text[0] == "{":
        return Type("map", items=_type(text[1:-1], types))
    name, parenthesis, choices = text.partition("(")
    if parenthesis:
        return Type(name, choices=tuple(choices[:-1].split(",")))
    return types[name]


@cache
def _descriptions() -> Mapping[str, str]:
    text = files(__package__).joinpath("descriptions.txt").read_text(encoding="utf-8")
    lines = (line.partition(": ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: description for name, _, description in lines}


def description(of: str, field: str = "") -> str:
    """The description of a type, or of a field; empty if there is none."""
    known = _descriptions()
    if not field:
        return known.get(of, "")
    return known.get(f"{of}.{field}") or known.get(f"*.{field}", "")


def described() -> Iterator[str]:
    """The names with a description."""
    return iter(_descriptions())


def named_type(name: str, release: str = OLDEST) -> Type:
    """A type of a release by its name in `fields.txt`."""
    return _types(release)[name]


def all_types(release: str) -> Iterator[Type]:
    return (each for each in _types(release).values() if each.is_struct)


def type_of(resource: Resource, kind: str = "") -> Type:
    """The type of a resource's objects, or of another kind that belongs to it (`Binding`, `Scale`)."""
    if kind:
        return named_type("authentication.TokenRequest" if kind == "TokenRequest" else kind)
    if resource.schema is not None:
        return custom_type(resource)
    return named_type(type_name(resource), resource.release or NEWEST)


def type_name(resource: Resource) -> str:
    """The name of a built-in resource's type in `fields.txt`."""
    return kind_type_name(resource.group, resource.version, resource.kind)


def kind_type_name(group: str, version: str, kind: str) -> str:
    """The name of a kind's type; the group, and the version, are a prefix if the kind alone is ambiguous.

    Raises:
        KeyError: there is no such type.
    """
    first, types = group.partition(".")[0], _types(NEWEST)
    candidates = (f"{first}.{version}.{kind}", f"{first}.{kind}", kind)
    found = next((name for name in candidates if name in types), None)
    if found is None:
        raise KeyError(kind)
    return found


class TypeMismatchError(Exception):
    """A value has the wrong type; the message is that of Go's decoder."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path
        """The path; empty if it is unknown."""


@dataclass(slots=True)
class Cleaning:
    """What `clean` found."""

    unknown: list[str] = field(default_factory=list)
    """Paths of fields that the type does not have, up to MAX_UNKNOWN."""
    lenient: bool = False
    """Whether wrong types are ignored: for custom resources the validation of the schema reports them."""

    def add_unknown(self, path: str) -> None:
        if len(self.unknown) < MAX_UNKNOWN:
            self.unknown.append(path)


def clean(content: Any, of: Type, *, lenient: bool = False) -> tuple[Any, list[str]]:
    """The value as it is stored, and the paths of unknown fields.

    Fields that are unknown or null are omitted, and quantities get their canonical form.

    Raises:
        TypeMismatchError: something has the wrong type.
    """
    found = Cleaning(lenient=lenient)
    return _clean(content, of, "", of.name, "", found), found.unknown


def _clean(content: Any, of: Type, path: str, struct: str, dotted: str, found: Cleaning) -> Any:
    if of.fields is not None:
        if not isinstance(content, dict):
            if found.lenient and dotted and of.name != _METADATA:
                return content
            raise _mismatch(content, struct, dotted, path, of)
        return _clean_struct(content, of, path, dotted, found)
    name = of.name
    if name == "string":
        if isinstance(content, str):
            return content
    elif name == "list":
        if isinstance(content, list):
            assert of.items is not None
            items = of.items
            return [
                _clean(part, items, f"{path}[{i}]", struct, dotted, found)
                for i, part in enumerate(content)
                if part is not None
            ]
    elif name == "map":
        if isinstance(content, dict):
            assert of.items is not None
            items = of.items
            return {
                key: _null_in_map(items)
                if part is None
                else _clean(part, items, f"{path}.{key}", struct, dotted, found)
                for key, part in content.items()
            }
    elif name in ("int32", "int64"):
        if isinstance(content, int) and not isinstance(content, bool):
            limit = 2**31 if name == "int32" else 2**63
            if -limit <= content < limit:
                return content
    elif name == "boolean":
        if isinstance(content, bool):
            return content
    elif name == "quantity":
        return _clean_quantity(content, path)
    elif name == "int-or-string":
        if isinstance(content, str | int) and not isinstance(content, bool):
            return content
    elif name == "number":
        if isinstance(content, int | float) and not isinstance(content, bool):
            return content
    elif name in ("time", "microtime"):
        if isinstance(content, str):
            return _clean_time(content, path, micro=name == "microtime")
    elif name == "bytes":
        if isinstance(content, str):
            return content
    else:
        return content
    if found.lenient:
        return content
    raise _mismatch(content, struct, dotted, path, of)


def _clean_struct(content: dict[str, Any], of: Type, path: str, dotted: str, found: Cleaning) -> Any:
    assert of.fields is not None
    kept = {}
    fields = of.fields
    if of.name == _METADATA:
        found = replace(found, lenient=False)
    for key, part in content.items():
        known = fields.get(key)
        if known is None:
            if of.open:
                kept[key] = part
            else:
                found.add_unknown(f"{path}.{key}" if path else key)
        elif part is not None:
            cleaned = _clean(
                part,
                known.type,
                f"{path}.{key}" if path else key,
                of.name,
                f"{dotted}.{key}" if dotted else key,
                found,
            )
            if cleaned is not None:
                kept[key] = cleaned
    return kept


def _null_in_map(items: Type) -> Any:
    """The value of a null entry of a map: the type's zero."""
    return {"string": "", "quantity": "0", "bytes": "", "boolean": False}.get(items.name, {})


def _clean_time(content: str, path: str, *, micro: bool) -> str | None:
    try:
        return canonical_time(content, micro=micro)
    except GoValueError as error:
        raise TypeMismatchError(str(error), path) from error


def _clean_quantity(content: Any, path: str) -> str:
    if not isinstance(content, str | int | float) or isinstance(content, bool):
        raise TypeMismatchError(_QUANTITY_RULE, path)
    try:
        return canonical_quantity(content)
    except QuantityError as error:
        raise TypeMismatchError(_QUANTITY_RULE, path) from error


_QUANTITY_RULE: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_GO_KINDS: Final = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}


_GO_TYPES: Final = {
    "boolean": "bool",
    "bytes": "[]uint8",
    "microtime": "string",
    "number": "float64",
    "time": "string",
}


def _mismatch(content: Any, struct: str, dotted: str, path: str, of: Type) -> TypeMismatchError:
    kind = _GO_KINDS.get(type(content), "null")
    if kind == "number" and of.name in ("int32", "int64"):
        kind = f"number {content}"
    place = f"Go struct field {struct}.{dotted}" if dotted else "Go value"
    return TypeMismatchError(f"json: cannot unmarshal {kind} into {place} of type {_go_type(of)}", path)


def _go_type(of: Type) -> str:
    if of.items is not None:
        return f"[]{_go_type(of.items)}" if of.name == "list" else f"map[string]{_go_type(of.items)}"
    if of.fields is not None:
        return f"v1.{of.name.rpartition('.')[2]}"
    return _GO_TYPES.get(of.name, of.name)


def custom_type(resource: Resource) -> Type:
    """The type of a custom resource's objects."""
    assert resource.schema is not None
    made = type_from(resource.schema, resource.kind)
    if made.fields is None:
        made = Type(resource.kind, fields={}, open=True)
    assert made.fields is not None
    made.fields.update(
        apiVersion=Field(named_type("string")),
        kind=Field(named_type("string")),
        metadata=Field(named_type("ObjectMeta")),
    )
    return made


def type_from(schema: Mapping[str, Any], name: str) -> Type:
    """The type that a structural schema describes; `name` is for messages."""
    if schema.get("x-kubernetes-int-or-string"):
        return named_type("int-or-string")
    kind = schema.get("type")
    if kind == "object":
        keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        if "properties" in schema or keeps_unknown:
            fields = {key: _custom_field(part, key) for key, part in (schema.get("properties") or {}).items()}
            return Type(name, fields=fields, open=keeps_unknown, atomic=_is_atomic_map(schema))
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            return Type("map", items=type_from(extra, name))
        return Type("map", items=ANYTHING) if extra else Type(name, fields={})
    if kind == "array":
        return Type("list", items=type_from(schema.get("items") or {}, name))
    if kind == "integer":
        return named_type("int32" if schema.get("format") == "int32" else "int64")
    if kind in ("string", "boolean", "number"):
        return named_type(kind)
    return ANYTHING


def _custom_field(schema: Mapping[str, Any], name: str) -> Field:
    kind = schema.get("x-kubernetes-list-type")
    return Field(
        type_from(schema, name),
        keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else (),
        is_set=kind == "set",
        atomic=_is_atomic_map(schema),
    )


def _is_atomic_map(schema: Mapping[str, Any]) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


_NAMES: Final = {
    "cel": "CEL",
    "uid": "UID",
    "apiGroup": "APIGroup",
    "int": "IntValue",
    "bool": "BoolValue",
    "string": "StringValue",
    "version": "VersionValue",
    "ints": "IntValues",
    "bools": "BoolValues",
    "strings": "StringValues",
    "versions": "VersionValues",
}
_ZEROS: Final[dict[str, Any]] = {"boolean": False, "int32": 0, "int64": 0, "number": 0, "quantity": "0"}


def go_struct(content: Any, of: Type) -> Any:
    """A value of a type as Go marshals the internal struct."""
    if of.items is not None:
        if content is None:
            return None
        if of.name == "list":
            return [go_struct(part, of.items) for part in content]
        return {key: go_struct(part, of.items) for key, part in sorted(content.items())}
    if of.fields is None:
        return _ZEROS.get(of.name, "") if content is None else content
    shown: dict[str, Any] = {}
    for name in fields_in_order(of):
        field, part = of.fields[name], (content or {}).get(name)
        if field.type.name == "ObjectMeta":
            shown.update(part or {})  # embedded: its fields keep the names that they have in JSON
        else:
            shown[_NAMES.get(name) or name[0].upper() + name[1:]] = _go_field(part, field)
    return shown


def fields_in_order(of: Type) -> list[str]:
    """The fields of a struct in the order of the Go type."""
    fields = of.fields or {}
    return sorted(fields, key=lambda name: fields[name].number)


def _go_field(part: Any, field: Field) -> Any:
    return None if part is None and field.optional else go_struct(part, field.type)
