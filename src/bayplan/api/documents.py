"""YAML and JSON files as plain values, each document with the line it stands on.

This knows files, not what an object is: `decode.py` gives the values their meaning. What the words of a
manifest mean to kubectl they mean here (`yaml_values.py`).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from bayplan.api.yaml_values import MAX_VALUES, STANDS_TWICE, NodeReader, yaml_errors, yaml_nodes
from bayplan.errors import DecodeError

YAML_SUFFIXES: Final = (".yaml", ".yml")
JSON_SUFFIX: Final = ".json"
GZIP_SUFFIX: Final = ".gz"

_NO_FILES: Final = "the directory holds no .yaml, .yml or .json file"
_NOT_UTF8: Final = "it is not UTF-8 text"
_TOO_DEEP: Final = "it is nested too deeply"
_NO_CONSTANTS: Final = "{text} is not a JSON number"

_PATH_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file."""

    content: Any
    source: str
    line: int | None
    """Where the document begins, counted from 1."""
    _node: yaml.Node | None = field(default=None, repr=False, compare=False)

    def line_of(self, path: str) -> int | None:
        """The line of the field at `path` (`spec.containers[0].image`), or of what comes nearest to it."""
        node, line = self._node, self.line
        for index, name in _PATH_STEP.findall(path):
            step = _child(node, index or name)
            if step is None:
                break
            line, node = step
        return line


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a file, or of all YAML and JSON files of a directory in the order of their names.

    Raises:
        DecodeError: a file is missing, unreadable or no YAML or JSON.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _is_ours(file) and file.is_file())
        if not files:
            raise DecodeError(_NO_FILES, source=str(path))
    else:
        files = [path]
    for file in files:
        yield from parse_documents(_read(file), str(file), is_json=_plain_suffix(file) == JSON_SUFFIX)


def parse_documents(data: bytes, source: str = "", *, is_json: bool = False) -> Iterator[Document]:
    """The documents in `data`; empty ones are left out.

    Raises:
        DecodeError: `data` is no YAML, or with `is_json` no JSON.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DecodeError(_NOT_UTF8, source=source, line=line) from error
    yield from _json_documents(text, source) if is_json else _yaml_documents(text, source)


def _yaml_documents(text: str, source: str) -> Iterator[Document]:
    reader: NodeReader[Any] = NodeReader(
        lambda content, _: content, most=max(MAX_VALUES, len(text)), may_overrule=True
    )
    with yaml_errors(text, source):
        for node in yaml_nodes(text):
            content = reader.read(node)
            if content is not None:
                yield Document(content, source, node.start_mark.line + 1, node)


def _json_documents(text: str, source: str) -> Iterator[Document]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
    position = _skip_blanks(text, 0)
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        try:
            content, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise DecodeError(error.msg, source=source, line=error.lineno) from error
        except RecursionError as error:
            raise DecodeError(_TOO_DEEP, source=source) from error
        except ValueError as error:
            # Raised by the hooks below, which do not know where they are. JSON is YAML, and YAML does.
            for _ in _yaml_documents(text, source):
                pass
            raise DecodeError(str(error), source=source, line=line) from error
        if content is not None:
            yield Document(content, source, line)
        position = _skip_blanks(text, end)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(STANDS_TWICE.format(key=twice))
    return mapping


def _refuse_constant(text: str) -> Any:
    raise ValueError(_NO_CONSTANTS.format(text=text))


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _child(node: yaml.Node | None, step: str) -> tuple[int, yaml.Node] | None:
    """The line of the child at `step`, a key or an index, and the child."""
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if key.value == step:
                return key.start_mark.line + 1, child
    elif isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        child = node.value[int(step)]
        return child.start_mark.line + 1, child
    return None


def _is_ours(file: Path) -> bool:
    return _plain_suffix(file) in (*YAML_SUFFIXES, JSON_SUFFIX)


def _plain_suffix(file: Path) -> str:
    """The suffix that says what is inside, whether compressed or not."""
    return (file.with_suffix("") if file.suffix == GZIP_SUFFIX else file).suffix.lower()


def _read(file: Path) -> bytes:
    try:
        data = file.read_bytes()
        return gzip.decompress(data) if file.suffix == GZIP_SUFFIX else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DecodeError(f"it is not a gzip file: {error}", source=str(file)) from error
    except OSError as error:
        raise DecodeError(error.strerror or str(error), source=str(file)) from error
