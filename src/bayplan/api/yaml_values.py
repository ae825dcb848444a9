"""YAML as the readers of kubectl and kube-scheduler understand it, with the line of every value.

YAML libraries hand out bare values, and an error that cannot say "line 12" is half an error. So a text is
only parsed by the library, and read from the parser's nodes here. That also lets words mean what they mean to
a Go program and not what PyYAML's own rules say: which plain words are numbers (`1e3`, `0o17`), truth values
(`y`) or null, that `12:30` and `2024-01-31` are text, and that keys always are. A key may stand only once in
a mapping, because the loser would vanish without a word.

`documents.py` reads manifests with this, `config/document.py` the scheduler's configuration.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import yaml

from bayplan.errors import DecodeError

T = TypeVar("T")

Scalar = str | int | float | bool | None

MAX_VALUES: Final = 100_000
"""A text without aliases has at most as many values as characters; one with some may have this many."""

MAX_DIGITS: Final = 400
"""More than the largest float has; Python takes quadratic time to read integers, and refuses long ones."""

STANDS_TWICE: Final = 'the key "{key}" stands twice in this mapping'

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
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def yaml_nodes(text: str) -> Iterator[yaml.Node]:
    """The documents of a text, one after the other."""
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # check_node said so
            yield node
    finally:
        loader.dispose()


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # base chosen at run time
    """Parses, and leaves the meaning of plain words to us: they all get one tag."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {
        None: [(_PLAIN_TAG, re.compile(""))]
    }


@contextlib.contextmanager
def yaml_errors(text: str, source: str) -> Iterator[None]:
    """Tells what goes wrong with this text while it is parsed and read as a DecodeError of this source."""
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
    except RecursionError as error:
        raise DecodeError("lists and mappings are nested too deeply", source=source) from error


class NodeReader(Generic[T]):
    """Makes values of the parser's nodes.

    Args:
        make: what becomes of a value and the line to look for it: that of its key, where it has one.
        most: how many values there may be; stops texts in which aliases multiply.
        keep_floats: in JSON 1.0 is no integer; YAML makes it one on its way to JSON.
        may_overrule: keys that are merged in may stand in the mapping, too.
    """

    def __init__(
        self,
        make: Callable[[Scalar | list[T] | dict[str, T], int], T],
        *,
        most: int,
        keep_floats: bool = False,
        may_overrule: bool = False,
    ) -> None:
        self._make = make
        self._most = most
        self._keep_floats = keep_floats
        self._may_overrule = may_overrule
        self._count = 0
        self._open: set[int] = set()

    def read(self, node: yaml.Node, at: int | None = None) -> T:
        line: int = node.start_mark.line + 1
        self._count += 1
        if self._count > self._most:
            raise DecodeError("too many values; do aliases multiply?", line=line)
        if isinstance(node, yaml.ScalarNode):
            return self._make(self._scalar(node, line), at or line)
        self._enter(node)
        content = (
            [self.read(child) for child in node.value]
            if isinstance(node, yaml.SequenceNode)
            else self._mapping(node)
        )
        self._open.remove(id(node))
        return self._make(content, at or line)

    def _enter(self, node: yaml.Node) -> None:
        if id(node) in self._open:
            raise DecodeError("an alias refers to what contains it", line=node.start_mark.line + 1)
        self._open.add(id(node))

    def _mapping(self, node: yaml.Node, at: int | None = None) -> dict[str, T]:
        content: dict[str, T] = {}
        merged: list[tuple[yaml.Node, int]] = []
        for key_node, value_node in node.value:
            line = at or key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise DecodeError("a key must be a word, not a list or a mapping", line=line)
            if key_node.value == _MERGE_KEY and key_node.tag == _PLAIN_TAG:
                merged.append((value_node, line))
                continue
            key = self._scalar(key_node, line)
            name = key if isinstance(key, str) else json.dumps(key)
            if name in content:
                raise _twice(name, line)
            content[name] = self.read(value_node, line)
        for value_node, line in merged:
            for name, value in self._merged(value_node, line):
                if name not in content:
                    content[name] = value
                elif not self._may_overrule:
                    raise _twice(name, line)
        return content

    def _merged(self, node: yaml.Node, line: int) -> Iterator[tuple[str, T]]:
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(part, yaml.MappingNode):
                raise DecodeError("only mappings can be merged with <<", line=line)
            self._enter(part)
            yield from self._mapping(part, line).items()
            self._open.remove(id(part))

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Scalar:
        text: str = node.value
        if node.tag == _STRING_TAG:
            return text
        if node.tag not in _RESOLVED_TAGS:
            raise DecodeError(f"the tag {node.tag} means nothing here", line=line)
        return resolve_plain(text, keep_floats=self._keep_floats, line=line)


def _twice(key: str, line: int) -> DecodeError:
    return DecodeError(STANDS_TWICE.format(key=key), line=line)


def resolve_plain(text: str, *, keep_floats: bool = False, line: int | None = None) -> Scalar:
    """What an unquoted word means.

    A float without fraction is an integer, unless it is so large that JSON made of YAML writes an exponent.
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
