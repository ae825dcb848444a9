"""Files are read in bounded memory, packed or not."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from bayplan.api import documents
from bayplan.api.documents import read_file, read_lines, read_stream
from bayplan.errors import DecodeError


def packed(size: int) -> bytes:
    return gzip.compress(bytes(size), compresslevel=1)


def test_what_unpacks_to_a_multiple_of_its_size_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml.gz"
    path.write_bytes(packed(documents.MIN_UNPACKED_BYTES + 1))
    with pytest.raises(DecodeError, match="unpacks to more than 64 MiB") as caught:
        read_file(path)
    assert caught.value.source == str(path)
    with pytest.raises(DecodeError, match="unpacks to more than 64 MiB"):
        read_stream(io.BytesIO(path.read_bytes()), "-")


def test_what_unpacks_to_little_is_read(tmp_path: Path) -> None:
    path = tmp_path / "zeros.yaml.gz"
    path.write_bytes(packed(1 << 20))
    assert len(read_file(path)) == 1 << 20


def test_no_file_is_read_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 4 << 20)
    with pytest.raises(DecodeError, match="larger than 4 MiB"):
        read_file(Path("/dev/zero"))


def test_a_line_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(b"1\n\n 2 \n" + b"3" * (2 << 20)))
    lines = read_lines(path)
    assert [next(lines), next(lines)] == [(1, b"1\n"), (3, b" 2 \n")]
    with pytest.raises(DecodeError, match=r"lines\.jsonl\.gz:4: it is larger than 1 MiB"):
        next(lines)


@pytest.mark.parametrize("data", [b"{}", packed(100)[:-9]], ids=["plain text", "cut off"])
def test_a_gzip_file_that_is_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(data)
    with pytest.raises(DecodeError, match="it is not a gzip file"):
        read_file(path)
    with pytest.raises(DecodeError, match="it is not a gzip file"):
        list(read_lines(path))
