"""Reads files that users pass to commands, in bounded memory; `.gz` files are decompressed.

Two megabytes of gzip can decompress to two gigabytes. Dumps of real clusters shrink to a tenth or a fiftieth,
so a file may decompress to `MAX_RATIO` times its size, and at most to `MAX_FILE_BYTES`.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Protocol, cast

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
