"""Arguments of plugins: the base class, durations, and the errors of validation.

A plugin declares its arguments by `args_type`, a subclass of `PluginArgs`; the configuration decodes, checks
and prints them without knowing the plugin. This is the same for built-in plugins (`builtin_args.py`) and for
others:

    class ZonePenaltyArgs(PluginArgs, frozen=True):
        penalty: int = 10

        def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
            if self.penalty < 0:
                yield invalid(at(path, "penalty"), self.penalty, "must not be negative")

A field `max_skew` is `maxSkew` in the file. A field without a default must be given there.

Field errors have Kubernetes' words, and tools match these texts, so they are exact: strings are quoted as Go
quotes them, numbers are plain, everything else is compact JSON as Go writes it (which escapes `<`, `>` and
`&`):

    profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final, Self

import msgspec

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")
_LIMIT: Final = 2**63


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A length of time as Kubernetes writes it (`10s`, `1m30s`, `100ms`), possibly negative.

    It is stored in whole nanoseconds, because reading and writing a configuration must not change it:
    `timedelta` would round `100ns` to 0. Code that waits uses `seconds`.
    """

    nanoseconds: int = 0

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The duration of this number of seconds."""
        return cls(round(seconds * 1e9))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `1h2m3.5s` with an optional sign; ValueError if it is invalid or exceeds 64 bits."""
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"{text!r} is not a duration")
        total = 0
        for number, unit in _PART.findall(text):
            # Each part is truncated to whole nanoseconds, as Go does.
            total += int(Fraction(number.rstrip(".") if number[0] != "." else f"0{number}") * _UNITS[unit])
        if total > _LIMIT - (not text.startswith("-")):
            raise ValueError(f"{text!r} is too long a duration")
        return cls(-total if text.startswith("-") else total)

    @property
    def seconds(self) -> float:
        return self.nanoseconds / 1e9

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __str__(self) -> str:
        if not self.nanoseconds:
            return "0s"
        sign = "-" if self.nanoseconds < 0 else ""
        rest = abs(self.nanoseconds)
        for unit in ("ns", "µs", "ms"):
            if rest < _UNITS[unit] * 1_000:
                return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
        hours, rest = divmod(rest, _UNITS["h"])
        minutes, rest = divmod(rest, _UNITS["m"])
        text = f"{_decimal(rest, _UNITS['s'])}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _decimal(amount: int, unit: int) -> str:
    """`amount / unit` without trailing zeros; units are powers of ten here, so this is exact."""
    whole, fraction = divmod(amount, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of one field."""

    path: str
    """The path of the field, `profiles[0].pluginConfig[1].args.shape`."""
    message: str
    """The kind of error, then value and detail."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def at(path: str, *parts: str | int) -> str:
    """The path of something inside `path`: names follow a dot, indexes are in brackets."""
    for part in parts:
        if isinstance(part, int):
            path = f"{path}[{part}]"
        else:
            path = f"{path}.{part}" if path else part
    return path


def required(path: str, detail: str = "") -> FieldError:
    """A required field is missing."""
    return FieldError(path, _joined("Required value", detail))


def forbidden(path: str, detail: str) -> FieldError:
    """A field is set that must not be set here."""
    return FieldError(path, _joined("Forbidden", detail))


def invalid(path: str, value: object, detail: str) -> FieldError:
    """A field holds a value that is not allowed."""
    return FieldError(path, _joined(f"Invalid value: {shown(value)}", detail))


def duplicate(path: str, value: object) -> FieldError:
    """A value that must be unique occurs again."""
    return FieldError(path, f"Duplicate value: {shown(value)}")


def unsupported(path: str, value: str, supported: Sequence[str]) -> FieldError:
    """A field has a value other than the supported ones."""
    choices = ", ".join(map(quoted, supported))
    return FieldError(path, f"Unsupported value: {shown(value)}: supported values: {choices}")


def aggregate(errors: Iterable[FieldError | str]) -> str:
    """All errors as one text: a single one bare, several as `[e1, e2]`, equal texts once, none as ""."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def shown(value: object) -> str:
    """A value as field errors print it."""
    match value:
        case str():
            return quoted(value)
        case None:
            # Upstream converts a missing value to the word, and then quotes the word.
            return '"null"'
        case _:
            return compact_json(value)


def quoted(text: str) -> str:
    """A string between double quotes, escaped as Go's `%q` does."""
    return f'"{"".join(map(_escaped, text))}"'


def compact_json(value: object) -> str:
    """JSON without spaces, with the three characters escaped that Go escapes for the sake of HTML."""
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _joined(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


_SHORT_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
    "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def _escaped(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    if character == " " or unicodedata.category(character)[0] in "LMNPS":
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _plain(value: object) -> object:
    """A value made of what `json` can write; records get capitalised keys, as upstream's internal types."""
    match value:
        case Duration():
            return str(value)
        case msgspec.Struct():
            return dict(_capitalised_fields(value))
        case dict():
            return {str(key): _plain(element) for key, element in value.items()}
        case list() | tuple():
            return [_plain(element) for element in value]
        case _:
            return value


def _capitalised_fields(record: msgspec.Struct) -> Iterator[tuple[str, object]]:
    for name in record.__struct_fields__:
        yield "".join(word.capitalize() for word in name.split("_")), _plain(getattr(record, name))


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
