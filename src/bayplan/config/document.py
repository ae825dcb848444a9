"""A configuration file as a tree in which every value knows its line.

YAML libraries hand out bare values, and an error that cannot say "line 12" is half an error. So the file is
only parsed by the library, and read from the parser's nodes here. Two details follow the readers that
kube-scheduler uses rather than PyYAML's own rules: which plain words are numbers, truth values or null, and
that a key may stand only once in a mapping, merged keys included. A text that begins with `{` is JSON and
nothing else.

Typed records are made from this tree in `decoding.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import yaml

from bayplan.errors import DecodeError

Scalar = str | int | float | bool | None

MAX_VALUES: Final = 100_000
"""Far more than any configuration needs; stops files in which aliases multiply."""

MAX_DIGITS: Final = 400
"""More than the largest float has; Python takes quadratic time to read integers, and refuses long ones."""

_PLAIN_TAG: Final = "!plain"
_MERGE_KEY: Final = "<<"
_STRING_TAG: Final = "tag:yaml.org,2002:str"
_RESOLVED_TAGS: Final = frozenset(
    {_PLAIN_TAG, *(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))}
)

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)")
_SURROGATES: Final = re.compile(
    r"((?<!\\)(?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the file: a scalar, a list of values or a mapping of values, and the line it begins on."""

    content: Scalar | list[Value] | dict[str, Value]
    line: int

    def plain(self) -> Any:
        """The same without lines, as a JSON reader would give it; keys sorted, as in JSON made of YAML."""
        if isinstance(self.content, dict):
            return {key: value.plain() for key, value in sorted(self.content.items())}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        return self.content


def parse_document(text: str, source: str) -> Value:
    """Read YAML or JSON; of several YAML documents only the first counts.

    Raises:
        DecodeError: the text is neither, or a key stands twice in one mapping.
    """
    is_json = text.lstrip().startswith("{")
    try:
        if is_json:
            text = _checked_json(text)
        loader = _Loader(text)
        try:
            root = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
        return Value(None, 1) if root is None else _Reader(is_json).read(root)
    except DecodeError as error:
        raise error.at(source=source) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise DecodeError(
            f"this is not YAML: {problem}", source=source, line=None if mark is None else mark.line + 1
        ) from None
    except yaml.YAMLError as error:
        raise DecodeError(f"this is not YAML: {str(error).splitlines()[0]}", source=source) from None
    except RecursionError:
        raise DecodeError("lists and mappings are nested too deeply", source=source) from None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # base chosen at run time
    """Parses, and leaves the meaning of plain words to us: they all get one tag."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {
        None: [(_PLAIN_TAG, re.compile(""))]
    }


class _Reader:
    """Turns the parser's nodes into values."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json
        self._count = 0
        self._open: set[int] = set()

    def read(self, node: yaml.Node) -> Value:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_VALUES:
            raise DecodeError("too many values; do aliases multiply?", line=line)
        if isinstance(node, yaml.ScalarNode):
            return Value(self._scalar(node, line), line)
        if id(node) in self._open:
            raise DecodeError("an alias refers to what contains it", line=line)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return Value([self.read(child) for child in node.value], line)
            return Value(self._mapping(node), line)
        finally:
            self._open.remove(id(node))

    def _mapping(self, node: yaml.Node) -> dict[str, Value]:
        content: dict[str, Value] = {}
        for key, value, line in self._pairs(node):
            if key in content:
                raise DecodeError(f'key "{key}" stands twice in this mapping', line=line)
            # A problem with a field is looked for where its name stands.
            content[key] = Value(value.content, line)
        return content

    def _pairs(self, node: yaml.Node) -> Iterator[tuple[str, Value, int]]:
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise DecodeError("a key must be a word, not a list or a mapping", line=line)
            if key_node.value == _MERGE_KEY and key_node.tag == _PLAIN_TAG:
                yield from self._merged(value_node, line)
                continue
            key = self._scalar(key_node, line)
            yield key if isinstance(key, str) else _json_text(key), self.read(value_node), line

    def _merged(self, node: yaml.Node, line: int) -> Iterator[tuple[str, Value, int]]:
        merged = self.read(node)
        for part in merged.content if isinstance(merged.content, list) else [merged]:
            if not isinstance(part.content, dict):
                raise DecodeError("only mappings can be merged with <<", line=line)
            for key, value in part.content.items():
                yield key, value, line

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Scalar:
        text: str = node.value
        if node.tag == _STRING_TAG:
            return text
        if node.tag not in _RESOLVED_TAGS:
            raise DecodeError(f"the tag {node.tag} means nothing here", line=line)
        return resolve_plain(text, keep_floats=self._is_json, line=line)


def resolve_plain(text: str, *, keep_floats: bool = False, line: int | None = None) -> Scalar:
    """What an unquoted word means.

    A float without fraction is an integer, unless it is so large that JSON made of YAML writes an exponent.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    digits = text.replace("_", "")
    if len(digits) > MAX_DIGITS and _FLOAT.fullmatch(digits):
        raise DecodeError("a number has too many digits", line=line)
    if text[0] in "+-.0123456789":
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


def _checked_json(text: str) -> str:
    """The text, known to be JSON, without what YAML does not know.

    That is tabs between values, and characters beyond 16 bits written as two escapes.
    """
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise DecodeError(f"this is not JSON: {error.msg}", line=error.lineno) from None
    except ValueError as error:
        raise DecodeError(f"this is not JSON: {error}") from None
    return _SURROGATES.sub(_long_escape, text.replace("\t", " "))


def _long_escape(pair: re.Match[str]) -> str:
    before, high, low = pair.groups()
    return f"{before}\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _json_text(scalar: Scalar) -> str:
    return json.dumps(scalar)
