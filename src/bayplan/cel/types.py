"""Static types of expressions, and when one is assignable to another.

Types are immutable values: a name with parameters. A type parameter (`A`, or `_var0` once an overload is
instantiated) is bound in a `Bindings` while the checker unifies types. `dyn` and `any` are assignable to and
from everything; `any` is the type of a device's attributes, whose kind is only known at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LIST: Final = "list"
_MAP: Final = "map"
_OPTIONAL: Final = "optional_type"
_TYPE: Final = "type"
_PARAMETER: Final = "parameter"


@dataclass(frozen=True, slots=True)
class Type:
    kind: str
    """The key of unification: a simple type's name, `list`, `map`, `object`, `opaque`, `parameter`, …"""
    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def runtime_name(self) -> str:
        """The type in the words of a value's type."""
        name = _RUNTIME_NAMES.get(self.name, self.name)
        shown = ", ".join(each.runtime_name for each in self.parameters)
        return f"{name}({shown})" if shown else name


_RUNTIME_NAMES: Final = {
    "any": "google.protobuf.Any",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "null": "null_type",
}


def _simple(name: str) -> Type:
    return Type(name, name)


BOOL: Final = _simple("bool")
INT: Final = _simple("int")
UINT: Final = _simple("uint")
DOUBLE: Final = _simple("double")
STRING: Final = _simple("string")
BYTES: Final = _simple("bytes")
NULL: Final = _simple("null")
DYN: Final = _simple("dyn")
ANY: Final = _simple("any")
ERROR: Final = Type("error", "!error!")
TIMESTAMP: Final = _simple("timestamp")
DURATION: Final = _simple("duration")
SCALARS: Final = frozenset({BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT})
"""Types whose size is 1, whatever the value."""

_NULLABLE_KINDS: Final = frozenset({"opaque", "object", "any", "duration", "timestamp"})
_WITH_PARAMETERS: Final = frozenset({"opaque", _LIST, _MAP})


def list_of(element: Type) -> Type:
    return Type(_LIST, _LIST, (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(_MAP, _MAP, (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", _OPTIONAL, (value,))


def object_type(name: str) -> Type:
    return Type("object", name)


def opaque_type(name: str) -> Type:
    return Type("opaque", name)


def type_of(type_: Type) -> Type:
    return Type(_TYPE, _TYPE, (type_,))


def parameter(name: str) -> Type:
    return Type(_PARAMETER, name)


def is_dyn(type_: Type) -> bool:
    return type_.kind in ("dyn", "any")


def is_dyn_or_error(type_: Type) -> bool:
    return type_.kind in ("dyn", "any", "error")


def is_list(type_: Type) -> bool:
    return type_.kind == _LIST


def is_map(type_: Type) -> bool:
    return type_.kind == _MAP


def is_parameter(type_: Type) -> bool:
    return type_.kind == _PARAMETER


def is_scalar(type_: Type) -> bool:
    """Whether all values have size 1, an optional of such a type included."""
    inner = unwrap_optional(type_)
    return (type_ if inner is None else inner) in SCALARS


def unwrap_optional(type_: Type) -> Type | None:
    """The type inside an optional, None for any other type."""
    return type_.parameters[0] if type_.name == _OPTIONAL and type_.kind == "opaque" else None


class Bindings:
    """The bound type parameters. Unification that fails does not change it."""

    __slots__ = ("_bound", "_fresh")

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """A new type parameter that nothing else uses."""
        self._fresh += 1
        return parameter(f"_var{self._fresh - 1}")

    def assignable(self, types: list[Type], targets: list[Type]) -> bool:
        """Whether each type is assignable to its target; binds parameters if all are."""
        before = dict(self._bound)
        if len(types) == len(targets) and all(map(self._assignable, types, targets)):
            return True
        self._bound = before
        return False

    def substitute(self, type_: Type, unbound_to_dyn: bool = False) -> Type:
        """The type with every bound parameter replaced."""
        bound = self._bound.get(type_)
        if bound is not None:
            return self.substitute(bound, unbound_to_dyn)
        if is_parameter(type_):
            return DYN if unbound_to_dyn else type_
        if not type_.parameters:
            return type_
        parameters = tuple(self.substitute(each, unbound_to_dyn) for each in type_.parameters)
        return Type(type_.kind, type_.name, parameters)

    def _assignable(self, one: Type, other: Type) -> bool:
        if is_parameter(other):
            valid, bound = self._bind(one, other)
            if valid or bound:
                return valid
        if is_parameter(one):
            return self._bind(other, one)[0]
        if is_dyn_or_error(one) or is_dyn_or_error(other):
            return True
        if one == NULL:
            return other == NULL or other.kind in _NULLABLE_KINDS
        if other == NULL:
            return one.kind in _NULLABLE_KINDS
        if one.kind == _TYPE:
            return other.kind == _TYPE
        if one.kind in _WITH_PARAMETERS:
            same = one.kind == other.kind and one.name == other.name
            return same and all(map(self._assignable, one.parameters, other.parameters))
        return one == other

    def _bind(self, type_: Type, param: Type) -> tuple[bool, bool]:
        """Tries `type_` for a parameter: whether it fits, and whether the parameter was bound before."""
        if type_ == param:
            return True, True
        bound = self._bound.get(param)
        if bound is not None:
            if type_ == bound:
                return True, True
            if not self._assignable(type_, bound):
                return False, True
            general = most_general(type_, bound)
            if not self._occurs(param, general):
                self._bound[param] = general
            return True, True
        if self._occurs(param, type_):
            return False, False
        self._bound[param] = type_
        return True, False

    def _occurs(self, param: Type, type_: Type) -> bool:
        """Whether a parameter is part of the type it would be bound to, which would be infinite."""
        if param == type_:
            return True
        if is_parameter(type_):
            bound = self._bound.get(type_)
            return bound is not None and self._occurs(param, bound)
        return any(self._occurs(param, each) for each in type_.parameters)


def most_general(one: Type, other: Type) -> Type:
    """The less specific of two types that unify: `dyn` rather than `int`."""
    return one if _no_more_specific(one, other) else other


def _no_more_specific(one: Type, other: Type) -> bool:
    if is_dyn(one) or is_parameter(one):
        return True
    if is_dyn(other) or is_parameter(other):
        return False
    if one.kind != other.kind:
        return False
    if one.kind == _TYPE:
        return True
    if one.kind in _WITH_PARAMETERS:
        same = one.name == other.name and len(one.parameters) == len(other.parameters)
        return same and all(map(_no_more_specific, one.parameters, other.parameters))
    return one == other
