"""`bayplan` commands in this process: a process of their own would spend most of its time importing.

Where the process itself is tested (signals, pipes, what is imported), start a real one.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from bayplan.cli.main import main


class Ended(NamedTuple):
    """A command that has ended, with what it printed."""

    status: int
    output: bytes
    errors: bytes

    @property
    def stdout(self) -> str:
        return self.output.decode()

    @property
    def stderr(self) -> str:
        return self.errors.decode()


def bayplan(*arguments: str, directory: Path | None = None, encoding: str = "utf-8") -> Ended:
    """Runs a command as with pipes for its output and nothing to read."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    with (
        chdir(directory or Path.cwd()),
        mock.patch.dict(os.environ, {"COLUMNS": "80", "LINES": "24"}),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        status = main(arguments)
    printed = []
    for stream in (output, errors):
        stream.flush()
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        printed.append(buffer.getvalue())
    return Ended(status, *printed)
