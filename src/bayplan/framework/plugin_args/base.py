"""The arguments of a plugin: a record with defaults and validation.

A plugin says which arguments it takes by `args_type`, a subclass of `PluginArgs`; the configuration then
decodes, checks and prints them without knowing the plugin. This is the same for built-in plugins (`args.py`)
and for those of users:

    class ZonePenaltyArgs(PluginArgs, frozen=True):
        penalty: int = 10

        def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
            if self.penalty < 0:
                yield invalid(at(path, "penalty"), self.penalty, "must not be negative")

A field `max_skew` is `maxSkew` in the file. A field without a default must be given there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

import msgspec

from bayplan.framework.plugin_args.duration import Duration
from bayplan.framework.plugin_args.field_errors import FieldError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

Gates = frozenset[str]
"""Names of the enabled feature gates."""


class ArgsRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of some arguments: frozen, camelCase in the file."""

    def to_wire(self) -> dict[str, object]:
        """As it is in a file that spells out every default: only what is empty is left out."""
        values = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        wire = {key: _to_wire(getattr(self, name)) for key, name in values}
        return {key: value for key, value in wire.items() if value is not None and value != []}


class PluginArgs(ArgsRecord, frozen=True):
    """Base class of all plugin arguments."""

    def completed(self, gates: Gates) -> Self:
        """These arguments with those defaults that depend on feature gates."""
        return self

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        """The validation errors, as the configuration reports them; `path` is the path of the arguments."""
        yield from ()

    def validate_for_build(self, gates: Gates) -> Iterator[FieldError]:
        """The validation errors when the plugin is built, with paths that begin at the arguments.

        The same as `validate`, unless a check has to wait until it is known that the plugin is used.
        """
        yield from self.validate("", gates)


def _to_wire(value: object) -> object:
    match value:
        case ArgsRecord():
            return value.to_wire()
        case Duration():
            return str(value)
        case tuple() | list():
            return [_to_wire(element) for element in value]
        case dict():
            return {key: _to_wire(element) for key, element in value.items()}
        case _:
            return msgspec.to_builtins(value)
