"""Objects as Go prints the API server's internal structs, for messages that quote a whole struct.

Fields are in the order of their protobuf numbers, with the names of the Go fields. An absent field is null if
it is a pointer, a list or a map, and the type's zero otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.embedded.server.schema.types import Field, Type

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
