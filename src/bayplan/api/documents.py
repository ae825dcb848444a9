"""YAML and JSON files as plain values, each document with its line number, within limits of size and depth.

This module handles files and merge patches (RFC 7396): `decode.py` decodes the objects. Files may be packed,
and what they unpack to is limited, too. `yaml_reader.py` has the YAML.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from bayplan.api.yaml_reader import (
    DUPLICATE_KEY,
    MAX_VALUES,
    TOO_DEEP,
    LocatedReader,
    PlainReader,
    Value,
    check_depth,
    yaml_errors,
)
from bayplan.errors import DecodeError

GZIP_SUFFIX: Final = ".gz"
GZIP_MAGIC: Final = b"\x1f\x8b"

MAX_FILE_BYTES: Final = 1 << 30
MAX_LINE_BYTES: Final = 256 << 20
"""The limit for files with one JSON value per line, which are otherwise unlimited."""
MAX_RATIO: Final = 200
MIN_UNPACKED_BYTES: Final = 64 << 20
"""A small file may always decompress to this size."""

_CHUNK: Final = 1 << 20
_TOO_LARGE: Final = "it is larger than {limit} MiB"
_TOO_LARGE_UNPACKED: Final = "it unpacks to more than {limit} MiB, {ratio} times its size: unpack it first"


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def readline(self, size: int, /) -> bytes: ...


def read_file(path: Path) -> bytes:
    """The content of a file.

    Raises:
        DecodeError: it is too large, or not a gzip file although its name says so.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return _read(file, str(path), is_gzip=path.suffix == GZIP_SUFFIX, size=path.stat().st_size)


def read_stream(stream: _Readable, source: str) -> bytes:
    """The content of standard input, or of another stream; what begins like a gzip file is unpacked.

    Raises:
        DecodeError: it is too large, or a damaged gzip file.
    """
    data = _read(stream, source, is_gzip=False, size=0)
    if not data.startswith(GZIP_MAGIC):
        return data
    return _read(io.BytesIO(data), source, is_gzip=True, size=len(data))


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each line of a file that is not blank, with its number counted from 1.

    Raises:
        DecodeError: a line is too long, or the file is not a gzip file although its name says so.
        OSError: it cannot be read.
    """
    source = str(path)
    with path.open("rb") as file:
        lines: _Readable = gzip.GzipFile(fileobj=file) if path.suffix == GZIP_SUFFIX else file
        for number in _numbers():
            try:
                line = lines.readline(MAX_LINE_BYTES + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise _not_gzip(error, source) from error
            if len(line) > MAX_LINE_BYTES:
                problem = _TOO_LARGE.format(limit=MAX_LINE_BYTES >> 20)
                raise DecodeError(problem, source=source, line=number)
            if not line:
                return
            if not line.isspace():
                yield number, line


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


def _read(file: _Readable, source: str, *, is_gzip: bool, size: int) -> bytes:
    limit, problem = MAX_FILE_BYTES, _TOO_LARGE
    if is_gzip:
        file = gzip.GzipFile(fileobj=cast(IO[bytes], file))
        unpacked = max(MIN_UNPACKED_BYTES, MAX_RATIO * size)
        if unpacked < limit:
            limit, problem = unpacked, _TOO_LARGE_UNPACKED
    parts = []
    length = 0
    # A file of known size in one piece: joining many copies everything once more.
    chunk = _CHUNK if is_gzip else max(_CHUNK, min(size, limit) + 1)
    try:
        while part := file.read(chunk):
            length += len(part)
            if length > limit:
                text = problem.format(limit=limit >> 20, ratio=limit // max(size, 1))
                raise DecodeError(text, source=source)
            parts.append(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _not_gzip(error, source) from error
    return b"".join(parts)


def _not_gzip(error: Exception, source: str) -> DecodeError:
    return DecodeError(f"it is not a gzip file: {error}", source=source)


YAML_SUFFIXES: Final = (".yaml", ".yml")
JSON_SUFFIX: Final = ".json"

_NO_FILES: Final = "the directory holds no .yaml, .yml or .json file"
_NOT_UTF8: Final = "it is not UTF-8 text"
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character beyond U+FFFF, as an escape. Without the other half it is not text."""
_HALF_CHARACTER: Final = "an escape such as \\ud800 is only half of a character"
_NO_CONSTANTS: Final = "{text} is not a JSON number"

_PATH_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file."""

    content: Any
    source: str
    line: int | None
    """Where the document begins, counted from 1."""
    _text: str = field(default="", repr=False, compare=False)
    """The YAML it was read from; empty for JSON, whose reader knows no lines."""

    def line_of(self, path: str) -> int | None:
        """The line of the field at `path` (`spec.containers[0].image`), or of its nearest parent.

        Reads the document a second time: lines are needed only for errors.
        """
        if not path or not self._text or self.line is None:
            return self.line
        first = next(
            LocatedReader(self._text, max_values=_max_values(self._text), may_override=True).documents()
        )
        line, value = first.line, first.value
        for index, name in _PATH_STEP.findall(path):
            step = _child(value, index or name)
            if step is None:
                break
            line, value = step.line, step
        return self.line + line - first.line


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a file, or of all YAML and JSON files of a directory in the order of their names.

    Raises:
        DecodeError: a file is missing, unreadable or no YAML or JSON.
    """
    for file, data in read_document_files(path):
        yield from parse_documents(data, str(file), is_json=is_json_file(file))


def read_document_files(path: Path) -> Iterator[tuple[Path, bytes]]:
    """The content of a file, or of all YAML and JSON files of a directory in the order of their names.

    Raises:
        DecodeError: a file is missing or unreadable.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _is_ours(file) and file.is_file())
        if not files:
            raise DecodeError(_NO_FILES, source=str(path))
    else:
        files = [path]
    for file in files:
        try:
            data = read_file(file)
        except OSError as error:
            raise DecodeError(error.strerror or str(error), source=str(file)) from error
        yield file, data


def is_json_file(path: Path) -> bool:
    """Whether a file contains JSON, by its name."""
    return _plain_suffix(path) == JSON_SUFFIX


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
    reader = PlainReader(text, max_values=_max_values(text), may_override=True)
    with yaml_errors(text, source):
        for content, line, start, end in reader.documents():
            if content is not None:
                yield Document(content, source, line, text[start:end])


def _max_values(text: str) -> int:
    return max(MAX_VALUES, len(text))


def _json_documents(text: str, source: str) -> Iterator[Document]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
    position = _skip_blanks(text, 0)
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        try:
            content, end = decoder.raw_decode(text, position)
            check_depth(content)
            if _SURROGATE.search(text, position, end) is not None:
                json.dumps(content, ensure_ascii=False).encode()
        except DecodeError as error:
            raise error.at(source=source, line=line) from None
        except UnicodeEncodeError as error:
            raise DecodeError(_HALF_CHARACTER, source=source, line=line) from error
        except json.JSONDecodeError as error:
            raise DecodeError(error.msg, source=source, line=error.lineno) from error
        except RecursionError as error:
            raise DecodeError(TOO_DEEP, source=source, line=line) from error
        except ValueError as error:
            # Raised by the hooks below, which do not know the position. JSON is YAML, so the YAML reader
            # finds it.
            for _ in _yaml_documents(text, source):
                pass
            raise DecodeError(str(error), source=source, line=line) from error
        if content is not None:
            yield Document(content, source, line)
        position = _skip_blanks(text, end)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(DUPLICATE_KEY.format(key=twice))
    return mapping


def _refuse_constant(text: str) -> Any:
    raise ValueError(_NO_CONSTANTS.format(text=text))


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _child(value: Value, step: str) -> Value | None:
    """The value at `step`, a key or an index."""
    content = value.content
    if isinstance(content, dict):
        return content.get(step)
    if isinstance(content, list) and step.isdecimal() and int(step) < len(content):
        return content[int(step)]
    return None


def _is_ours(file: Path) -> bool:
    return _plain_suffix(file) in (*YAML_SUFFIXES, JSON_SUFFIX)


def _plain_suffix(file: Path) -> str:
    """The suffix of the content type, compressed or not."""
    return (file.with_suffix("") if file.suffix == GZIP_SUFFIX else file).suffix.lower()


def merged(content: Any, patch: Any) -> Any:
    """Applies the patch to a value."""
    if not isinstance(patch, dict):
        return patch
    result = dict(content) if isinstance(content, dict) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), part)
    return result


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch from one value to another; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, part in after.items():
        if name not in before:
            patch[name] = part
        elif part != before[name]:
            both = isinstance(part, dict) and isinstance(before[name], dict)
            patch[name] = difference(before[name], part) if both else part
    return patch
