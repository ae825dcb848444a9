"""Turns errors into one line on standard error and an exit status.

    0    success
    1    the reader of standard output closed the pipe
    2    invalid input, or the command failed: the line says what is wrong and where
    130  Ctrl-C

Tracebacks are for bugs. The messages of errors that bayplan raises deliberately (`bayplan.errors`) and of
operating system errors about a file are complete by themselves.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from typing import Final

import click

from bayplan.cli.encoding import echo
from bayplan.errors import BayplanError

OK: Final = 0
BROKEN_PIPE: Final = 1
FAILED: Final = 2
INTERRUPTED: Final = 130

# Raised for a group without a subcommand; its message is the help text. Older versions of click lack it.
_NO_ARGUMENTS: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())


def report(error: BaseException) -> int:
    """Prints an expected error and returns the exit status; any other error is raised again."""
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else FAILED
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            _forget_output()
            return BROKEN_PIPE
        case click.UsageError():
            if isinstance(error, _NO_ARGUMENTS):
                echo(error.format_message(), err=True)
            else:
                _say(_with_hint(error))
            return FAILED
        case click.ClickException():
            _say(error.format_message())
            return FAILED
        case BayplanError():
            _say(str(error))
            return FAILED
        case OSError() if error.filename is not None:
            _say(f"{os.fspath(error.filename)}: {error.strerror}")
            return FAILED
    raise error


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """A suggestion to end an error message with, or "" if no known name is similar."""
    nearest = difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""


def _with_hint(error: click.UsageError) -> str:
    message = error.format_message()
    if error.ctx is None:
        return message
    return f"{message}\ntry '{error.ctx.command_path} --help'"


def _say(message: str) -> None:
    echo(f"error: {message}", err=True)


def _forget_output() -> None:
    """Discards buffered output; otherwise Python reports the closed pipe again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
