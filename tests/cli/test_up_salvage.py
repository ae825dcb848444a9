"""`bayplan up` on a damaged data directory: one line with the problem, or the part that is intact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bayplan.embedded.server.database import FILE_NAME


def up(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", "2", "--exit-when-idle", "always"]
    return subprocess.run(
        [*command, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def test_a_damaged_data_directory(tmp_path: Path) -> None:
    first = up(tmp_path, "--data-dir", "data")
    assert (first.returncode, first.stderr) == (0, "")
    database = tmp_path / "data" / FILE_NAME
    content = bytearray(database.read_bytes())
    at = content.index(b'"n01"')
    content[at + 1] ^= 1
    database.write_bytes(content)

    rejected = up(tmp_path, "--data-dir", "data")
    assert (rejected.returncode, rejected.stdout) == (2, "")
    assert rejected.stderr.startswith(f"error: data/{FILE_NAME}: the database is damaged: the checksum of ")
    assert rejected.stderr.endswith("; the damaged files are then set aside\n")
    assert database.read_bytes() == bytes(content)

    salvaged = up(tmp_path, "--data-dir", "data", "--salvage")
    assert salvaged.returncode == 0
    assert "objects are kept" in salvaged.stderr
    assert "dropped, because they are not what was written: " in salvaged.stderr
    again = up(tmp_path, "--data-dir", "data")
    assert (again.returncode, again.stderr) == (0, "")
    assert "● 2 nodes" in again.stdout


def test_salvage_is_about_a_data_directory(tmp_path: Path) -> None:
    done = up(tmp_path, "--salvage")
    assert done.returncode == 2
    assert "--salvage needs --data-dir" in done.stderr
