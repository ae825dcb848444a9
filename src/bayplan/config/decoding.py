"""Reads documents into typed records: any msgspec struct or dataclass, with every problem and its line.

`parse_documents` makes a tree in which every value has its line: a key may occur only once in a mapping,
merged keys included, and a text that begins with `{` is parsed as JSON. `Decoder` makes records of it.
msgspec itself stops at the first problem and has no line numbers, so records are decoded here, field by
field; msgspec decodes only leaves (enums, dates, limits of numbers). Field names are case-sensitive and
unknown ones are rejected. `null` means "not given", as it does for Kubernetes: the default applies, and a
null in a list is an empty element.

It also decodes plugin arguments of users, so nothing in this file depends on the configuration. Objects of
the cluster are decoded by `bayplan.api.decode`, which ignores unknown fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from bayplan.api.yaml_reader import MAX_VALUES, TOO_DEEP, LocatedReader, Value, yaml_errors
from bayplan.errors import DecodeError
from bayplan.framework.args import Duration, at, shown

_SURROGATES: Final = re.compile(
    r"((?<!\\)(?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


def parse_documents(text: str, source: str) -> Iterator[Value]:
    """All documents, each parsed on demand: the text after the last one may be anything.

    Raises:
        DecodeError: the text is neither YAML nor JSON, or a key occurs twice in one mapping.
    """
    is_json = text.lstrip().startswith("{")
    with yaml_errors(text, source):
        if is_json:
            text = _checked_json(text)
        reader = LocatedReader(text, max_values=MAX_VALUES, keep_floats=is_json)
        for document in reader.documents():
            yield document.value


def _checked_json(text: str) -> str:
    """The text, known to be JSON, without what YAML does not know.

    That is tabs between values, and characters beyond 16 bits written as two escapes.
    """
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise DecodeError(f"this is not JSON: {error.msg}", line=error.lineno) from None
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None
    except ValueError as error:
        raise DecodeError(f"this is not JSON: {error}") from None
    return _SURROGATES.sub(_long_escape, text.replace("\t", " "))


def _long_escape(pair: re.Match[str]) -> str:
    before, high, low = pair.groups()
    return f"{before}\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


T = TypeVar("T")

Float32 = Annotated[float, "32 bits"]
"""A float that is kept in 32 bits, and prints as such."""

_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Problem:
    """A value in the document that does not have its type."""

    line: int
    path: str
    text: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.path}: {self.text}" if self.path else f"line {self.line}: {self.text}"
        )


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    hint: Any
    required: bool


@dataclass(slots=True)
class Decoder:
    """Decodes parts of one document and collects their problems."""

    problems: list[Problem] = field(default_factory=list)

    def decode(self, value: Value, into: type[T], path: str = "", ignore: Collection[str] = ()) -> T | None:
        """`value` as a record of type `into`; None if there were problems, which are then in `problems`.

        Keys in `ignore` are allowed although they are not fields.
        """
        before = len(self.problems)
        if isinstance(value.content, dict):
            record: Any = into
            known = _fields(record)
            kept = {key: child for key, child in value.content.items() if key in known or key not in ignore}
            value = Value(kept, value.line)
        decoded: T | None = self._decode(value, into, path)
        return decoded if len(self.problems) == before else None

    def report(self, value: Value, path: str, text: str) -> None:
        """Adds a problem that the caller found."""
        self.problems.append(Problem(value.line, path, text))

    def raise_problems(self, source: str) -> None:
        """Raises DecodeError if there is any problem: one with its place, several in one text."""
        if not self.problems:
            return
        if len(self.problems) == 1:
            (problem,) = self.problems
            raise DecodeError(problem.text, source=source, line=problem.line, field=problem.path)
        raise DecodeError("; ".join(map(str, self.problems)), source=source)

    def _decode(self, value: Value, hint: Any, path: str) -> Any:
        """Dispatches on the type; a null here is an element of a list or mapping, not a field."""
        origin, content = get_origin(hint), value.content
        if hint is Value:
            return value
        if hint is Any or hint is object:
            return value.plain()
        if hint is Duration:
            return self._duration(value, path)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return self._choice(value, hint, path)
        if hint == Float32:
            return self._float32(value, path)
        if origin in (Union, UnionType):
            return self._union(value, hint, path)
        if _is_record(hint):
            if isinstance(content, dict) or content is None:
                return self._record(value, content or {}, hint, path)
            return self._mismatch(value, path, "a mapping")
        if origin in (list, tuple, set, frozenset):
            if isinstance(content, list):
                item = (*get_args(hint), Any)[0]
                return origin(self._decode(child, item, at(path, i)) for i, child in enumerate(content))
            return self._mismatch(value, path, "a list")
        if origin is dict:
            if isinstance(content, dict):
                item = get_args(hint)[1]
                return {key: self._decode(child, item, at(path, key)) for key, child in content.items()}
            return self._mismatch(value, path, "a mapping")
        return self._leaf(value, hint, path)

    def _record(self, value: Value, content: dict[str, Value], into: Any, path: str) -> Any:
        fields = _fields(into)
        before = len(self.problems)
        arguments = {}
        for key, child in content.items():
            if key not in fields:
                self.report(child, at(path, key), f"unknown field{_did_you_mean(key, fields)}")
            elif child.content is not None:
                arguments[fields[key].name] = self._decode(child, fields[key].hint, at(path, key))
        for key, known in fields.items():
            if known.required and known.name not in arguments:
                self.report(value, at(path, key), "this field must be given")
        if len(self.problems) > before:
            return None
        try:
            return into(**arguments)
        except (TypeError, ValueError) as error:
            # The author's own checks, in __post_init__.
            self.report(value, path, str(error))
            return None

    def _union(self, value: Value, hint: Any, path: str) -> Any:
        choices = [choice for choice in get_args(hint) if choice is not NoneType]
        if value.content is None and len(choices) < len(get_args(hint)):
            return None
        if len(choices) == 1:
            return self._decode(value, choices[0], path)
        return self._leaf(value, hint, path)

    def _duration(self, value: Value, path: str) -> Any:
        if value.content is None:
            return Duration()
        if isinstance(value.content, str):
            try:
                return Duration.parse(value.content)
            except ValueError:
                pass
        return self._mismatch(value, path, 'a duration such as "1m30s"')

    def _choice(self, value: Value, hint: type[StrEnum], path: str) -> Any:
        try:
            return hint(str(value.content))
        except ValueError:
            return self._mismatch(value, path, " or ".join(hint))

    def _float32(self, value: Value, path: str) -> Any:
        number = self._leaf(value, float, path)
        try:
            return None if number is None else shortest_float32(number)
        except OverflowError:
            return self._mismatch(value, path, "a number that fits into 32 bits")

    def _leaf(self, value: Value, hint: Any, path: str) -> Any:
        base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        content = value.content
        if content is None and base in (str, int, float, bool):
            return base()
        is_number = isinstance(content, int | float) and not isinstance(content, bool)
        if base is str and not isinstance(content, str):
            return self._mismatch(value, path, "a string")
        if base is bool and not isinstance(content, bool):
            return self._mismatch(value, path, "true or false")
        if base is int and (not is_number or isinstance(content, float)):
            return self._mismatch(value, path, "an integer")
        if base is float and not is_number:
            return self._mismatch(value, path, "a number")
        if base is int and content not in _INT64:
            return self._mismatch(value, path, "a number that fits into 64 bits")
        try:
            return msgspec.convert(value.plain(), hint)
        except msgspec.ValidationError as error:
            text = str(error).split(" - at `", 1)[0].replace("`", "")
            self.report(value, path, f"{text[:1].lower()}{text[1:]}, not {_described(value)}")
            return None

    def _mismatch(self, value: Value, path: str, expected: str) -> Any:
        """Reports the problem; returns None, because there is no value."""
        self.report(value, path, f"expected {expected}, got {_described(value)}")


def shortest_float32(number: float) -> float:
    """The number as a 32-bit float, in its shortest representation.

    Raises:
        OverflowError: it is out of range for 32 bits.
    """
    narrow = struct.pack("<f", number)
    exact: float = struct.unpack("<f", narrow)[0]
    candidates = (float(f"{exact:.{digits}g}") for digits in range(1, 10))
    return next((candidate for candidate in candidates if struct.pack("<f", candidate) == narrow), exact)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint))


@lru_cache(maxsize=256)
def _fields(record: Any) -> dict[str, _Field]:
    """The fields of a record by their name in the file."""
    if not _is_record(record):
        return {}
    if issubclass(record, msgspec.Struct):
        return {f.encode_name: _Field(f.name, f.type, f.required) for f in msgspec.structs.fields(record)}
    hints = get_type_hints(record, include_extras=True)
    nothing = dataclasses.MISSING
    return {
        f.name: _Field(f.name, hints[f.name], f.default is nothing and f.default_factory is nothing)
        for f in dataclasses.fields(record)
        if f.init
    }


def _did_you_mean(key: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(key, list(known), n=1)
    return f', did you mean "{nearest[0]}"?' if nearest else ""


def _described(value: Value) -> str:
    match value.content:
        case None:
            return "nothing"
        case bool():
            return f"{value.content}".lower()
        case str():
            return f"the string {shown(value.content)}"
        case int() | float():
            return f"the number {value.content}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
