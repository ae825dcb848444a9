"""Reads YAML with the line of every value, in bounded time and memory.

YAML libraries return bare values, and a useful error needs the line. They also build nested values by
recursion: libyaml's binding overflows the C stack (SIGSEGV) on a text with 30,000 opening brackets. So the
library only splits the text into events, and values are built from these here, with an explicit stack:
nesting deeper than `MAX_DEPTH` and aliases that multiply are errors, and reading takes a third of the time.

Values from any source are processed recursively: by decoders in C, by validation and patches in Python. So
JSON has the same limit of depth (`decode_json`). kube-apiserver's limit is 10,000 levels; nothing in
Kubernetes has more than about 60, and Python's stack is limited to 1,000 calls.

A key may occur only once in a mapping, because one of two would be lost silently. Keys are always text.
Plain words mean the same as in kubectl (`resolve_plain`). `documents.py` reads manifests with this,
`config/decoding.py` the scheduler's configuration.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import yaml

from bayplan.errors import DecodeError

MAX_DEPTH: Final = 200
TOO_DEEP: Final = f"lists and mappings are nested too deeply (more than {MAX_DEPTH} levels)"

_CONTAINERS: Final = (dict, list)


def check_depth(value: Any) -> None:
    """Checks a value level by level, without recursion.

    Raises:
        DecodeError: there are more than `MAX_DEPTH` levels.
    """
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        level = [
            part
            for container in level
            for part in (container.values() if type(container) is dict else container)
            if type(part) in _CONTAINERS
        ]
        if not level:
            return
    raise DecodeError(TOO_DEEP)


def decode_json(data: bytes) -> Any:
    """Decodes a JSON text. The decoder itself stops long before the C stack ends.

    Raises:
        DecodeError: it is nested too deeply.
        msgspec.DecodeError: it is not JSON.
    """
    try:
        value = msgspec.json.decode(data)
    except RecursionError as error:
        raise DecodeError(TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from error
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        check_depth(value)
    return value


def copied(value: Any) -> Any:
    """A copy of lists and mappings that shares neither with the original."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [copied(part) for part in value]
    return value


Scalar = str | int | float | bool | None

MAX_DIGITS: Final = 400
"""More digits than the largest float has; Python parses integers in quadratic time, and limits their
length."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def resolve_plain(text: str, *, keep_floats: bool = False, line: int | None = None) -> Scalar:
    """The value of an unquoted word.

    A float without fraction is an integer, unless it is so large that JSON writes it with an exponent.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    if len(digits) > MAX_DIGITS and _FLOAT.fullmatch(digits):
        raise DecodeError("a number has too many digits", line=line)
    if _INTEGER.fullmatch(digits):
        return _integer(digits)
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        if math.isinf(number):
            raise DecodeError(f"the number {text} is too large", line=line)
        return int(number) if number.is_integer() and abs(number) < 1e21 and not keep_floats else number
    return text


def _integer(digits: str) -> int:
    body = digits.lstrip("+-")
    sign = -1 if digits.startswith("-") else 1
    if len(body) > 1 and body[0] == "0" and body[1].isdigit():
        return sign * int(body, 8)
    return sign * int(body, 0)


T = TypeVar("T")

MAX_VALUES: Final = 100_000
"""A text without aliases has at most as many values as characters; one with aliases may have this many."""

DUPLICATE_KEY: Final = 'the key "{key}" occurs twice in this mapping'

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE_KEY: Final = "<<"
_STRING_TAG: Final = "tag:yaml.org,2002:str"
_RESOLVED_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its line: that of its key, if it has one."""

    content: Scalar | list[Value] | dict[str, Value]
    line: int

    def plain(self) -> Any:
        """The same without lines, as a JSON reader would give it; keys sorted, as in JSON made of YAML."""
        if isinstance(self.content, dict):
            return {key: value.plain() for key, value in sorted(self.content.items())}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        return self.content


class Read(NamedTuple, Generic[T]):
    """One document of a text."""

    value: T
    line: int
    """Where its value begins, counted from 1."""
    start: int
    """The index of its first character; with `end` it can be read again."""
    end: int


class _Anchored(NamedTuple):
    """A value with an anchor (`&name`), to which aliases (`*name`) refer."""

    value: Any
    scalar: Scalar
    """Its value as a key."""
    is_scalar: bool
    height: int
    values: int
    """The number of values in it, itself included."""


class _Open:
    """A list or mapping whose end has not been read."""

    __slots__ = ("anchor", "before", "content", "height", "is_merge", "key", "key_line", "line", "merged")

    def __init__(
        self, content: list[Any] | dict[str, Any], line: int, anchor: str | None, before: int
    ) -> None:
        self.content = content
        self.line = line
        self.anchor = anchor
        self.before = before
        """How many values had been read before it."""
        self.height = 1
        self.key: str | None = None
        self.key_line = 0
        self.is_merge = False
        """Whether `key` is `<<`."""
        self.merged: list[tuple[Any, int]] = []


class YamlReader(Generic[T]):
    """Reads the documents of a text; subclasses define how a value is represented.

    Args:
        max_values: the maximum number of values; stops texts in which aliases multiply.
        keep_floats: in JSON 1.0 is not an integer; YAML to JSON conversion makes it one.
        may_override: keys that are merged in may occur in the mapping, too.
        last_wins: a key may occur several times in a mapping; the last one counts.
    """

    def __init__(
        self,
        text: str,
        *,
        max_values: int,
        keep_floats: bool = False,
        may_override: bool = False,
        last_wins: bool = False,
    ) -> None:
        self._last_wins = last_wins
        self._text = text
        self._max_values = max_values
        self._keep_floats = keep_floats
        self._may_override = may_override
        self._count = 0

    def _make(self, content: Any, line: int) -> T:
        raise NotImplementedError

    def _again(self, value: T, line: int) -> T:
        """The value for an alias of it."""
        raise NotImplementedError

    def _content(self, value: T) -> Any:
        raise NotImplementedError

    def documents(self) -> Iterator[Read[T]]:
        """The documents of the text, one after the other.

        Raises:
            DecodeError: it is not YAML, or exceeds a limit.
        """
        loader = _Loader(self._text)
        try:
            while True:
                event: Any = loader.get_event()
                kind = type(event)
                if kind is yaml.DocumentStartEvent:
                    yield self._document(loader, event.start_mark.index)
                elif kind is yaml.StreamEndEvent:
                    return
        finally:
            loader.dispose()

    def _document(self, loader: Any, start: int) -> Read[T]:
        anchors: dict[str, _Anchored | None] = {}
        stack: list[_Open] = []
        top: _Open | None = None
        root: Any = None
        first_line = 0
        while True:
            event = loader.get_event()
            kind = type(event)
            if kind is yaml.DocumentEndEvent:
                return Read(root, first_line, start, event.end_mark.index)
            line = event.start_mark.line + 1
            first_line = first_line or line
            is_key = top is not None and top.key is None and type(top.content) is dict
            if is_key and kind is not yaml.MappingEndEvent:
                self._start_entry(top, event, line, anchors)
                continue
            height = 0
            if kind is yaml.ScalarEvent:
                self._add_values(1, line)
                scalar = self._scalar(event, line)
                value: Any = self._make(scalar, (top and top.key_line) or line)
                if event.anchor:
                    anchors[event.anchor] = _Anchored(value, scalar, True, 0, 1)
            elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
                if len(stack) >= MAX_DEPTH:
                    raise DecodeError(TOO_DEEP, line=line)
                if event.anchor:
                    anchors[event.anchor] = None
                content: Any = [] if kind is yaml.SequenceStartEvent else {}
                at = (top and top.key_line) or line
                top = _Open(content, at, event.anchor, self._count)
                self._add_values(1, line)
                stack.append(top)
                continue
            elif kind is yaml.AliasEvent:
                known = _known(anchors, event, line)
                if len(stack) + known.height > MAX_DEPTH:
                    raise DecodeError(TOO_DEEP, line=line)
                self._add_values(known.values, line)
                value = self._again(known.value, (top and top.key_line) or line)
                height = known.height
            else:
                closed = stack.pop()
                assert top is closed
                top = stack[-1] if stack else None
                self._merge(closed)
                value = self._make(closed.content, closed.line)
                height = closed.height
                if closed.anchor:
                    count = self._count - closed.before
                    anchors[closed.anchor] = _Anchored(value, None, False, height, count)
            if top is None:
                root = value
                continue
            if height >= top.height:
                top.height = height + 1
            if top.key is None:
                top.content.append(value)  # type: ignore[union-attr]  # only mappings have keys, seen above
            else:
                if top.is_merge:
                    top.merged.append((value, top.key_line))
                else:
                    top.content[top.key] = value  # type: ignore[call-overload]  # a mapping: it has a key
                top.key, top.key_line, top.is_merge = None, 0, False

    def _add_values(self, count: int, line: int) -> None:
        self._count += count
        if self._count > self._max_values:
            raise DecodeError("too many values; do aliases multiply?", line=line)

    def _start_entry(
        self, mapping: _Open | None, event: Any, line: int, anchors: dict[str, _Anchored | None]
    ) -> None:
        """Takes the key of an entry."""
        assert mapping is not None
        if type(event) is yaml.ScalarEvent:
            key = self._scalar(event, line)
            if event.anchor:
                anchors[event.anchor] = _Anchored(self._make(key, line), key, True, 0, 1)
            mapping.is_merge = event.value == _MERGE_KEY and _is_plain(event)
        else:
            known = _known(anchors, event, line) if type(event) is yaml.AliasEvent else None
            if known is None or not known.is_scalar:
                raise DecodeError("a key must be a word, not a list or a mapping", line=line)
            key = known.scalar
        name = key if isinstance(key, str) else json.dumps(key)
        if name in mapping.content and not mapping.is_merge and not self._last_wins:
            raise _duplicate(name, line)
        mapping.key, mapping.key_line = name, line

    def _merge(self, mapping: _Open) -> None:
        """Adds what `<<` names."""
        for value, line in mapping.merged:
            content = self._content(value)
            for part in content if isinstance(content, list) else [value]:
                inner = self._content(part)
                if not isinstance(inner, dict):
                    raise DecodeError("only mappings can be merged with <<", line=line)
                for name, merged in inner.items():
                    if name not in mapping.content:
                        mapping.content[name] = merged
                    elif not self._may_override:
                        raise _duplicate(name, line)

    def _scalar(self, event: Any, line: int) -> Scalar:
        text: str = event.value
        if _is_plain(event):
            return resolve_plain(text, keep_floats=self._keep_floats, line=line)
        if event.tag in (None, "!", _STRING_TAG):
            return text
        if event.tag not in _RESOLVED_TAGS:
            raise DecodeError(f"the tag {event.tag} means nothing here", line=line)
        return resolve_plain(text, keep_floats=self._keep_floats, line=line)


class PlainReader(YamlReader[Any]):
    """Returns plain values, which share nothing with each other."""

    def _make(self, content: Any, line: int) -> Any:
        return content

    def _again(self, value: Any, line: int) -> Any:
        return copied(value)

    def _content(self, value: Any) -> Any:
        return value


class LocatedReader(YamlReader[Value]):
    """Returns values with their lines."""

    def _make(self, content: Any, line: int) -> Value:
        return Value(content, line)

    def _again(self, value: Value, line: int) -> Value:
        return Value(value.content, line)

    def _content(self, value: Value) -> Any:
        return value.content


@contextlib.contextmanager
def yaml_errors(text: str, source: str) -> Iterator[None]:
    """Reports errors while this text is read as a DecodeError of this source."""
    try:
        yield
    except DecodeError as error:
        raise error.at(source=source) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        line = None if mark is None else mark.line + 1
        raise DecodeError(f"this is not YAML: {problem}", source=source, line=line) from error
    except yaml.reader.ReaderError as error:
        problem = f"this is not YAML: a character that is forbidden: {error.reason}"
        line = text.count("\n", 0, error.position) + 1
        raise DecodeError(problem, source=source, line=line) from error


def _is_plain(event: Any) -> bool:
    return bool(event.implicit[0]) and event.tag in (None, "!")


def _known(anchors: dict[str, _Anchored | None], event: Any, line: int) -> _Anchored:
    if event.anchor not in anchors:
        raise DecodeError(f"this is not YAML: found undefined alias '{event.anchor}'", line=line)
    known = anchors[event.anchor]
    if known is None:
        raise DecodeError("an alias refers to what contains it", line=line)
    return known


def _duplicate(key: str, line: int) -> DecodeError:
    return DecodeError(DUPLICATE_KEY.format(key=key), line=line)
