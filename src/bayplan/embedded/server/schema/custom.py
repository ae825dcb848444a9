"""Types (`types.py`) from the schemas of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.schema.types import ANYTHING, Field, Type, named_type


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
            fields = {key: _field(part, key) for key, part in (schema.get("properties") or {}).items()}
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


def _field(schema: Mapping[str, Any], name: str) -> Field:
    kind = schema.get("x-kubernetes-list-type")
    return Field(
        type_from(schema, name),
        keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else (),
        is_set=kind == "set",
        atomic=_is_atomic_map(schema),
    )


def _is_atomic_map(schema: Mapping[str, Any]) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"
