"""Exit statuses, which are the same in every command, and errors as one line on standard error.

    0    yes, or the command did what it was asked to do
    1    no: something does not fit, a check failed, or a replay differs
    2    invalid input, or the command or a plugin failed: a line says what is wrong and where
    3    not everything could be judged: the output names what was left out
    130  Ctrl-C
    141  the reader of standard output closed the pipe

docs/exit-status.md describes them for users. Only `bayplan run` has kube-scheduler's statuses instead.

Tracebacks are for bugs. The messages of errors that bayplan raises deliberately (`bayplan.errors`) and of
operating system errors about a file are complete by themselves. A result without a plugin that failed is
incomplete: scripts must not take it for the answer, so it ends with status 2.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from bayplan.cli.terminal import echo, echo_error, echo_text
from bayplan.errors import BayplanError, ConfigError

if TYPE_CHECKING:
    from bayplan.answers.explain.explanation import Explanation
    from bayplan.runtime.failure_log import PluginFailure

MAX_LISTED: Final = 5

_INCOMPLETE: Final = "{pods} not evaluated completely, because a plugin failed:"
_NOT_RELIABLE: Final = "the result is not reliable, because a plugin failed:"

_PLUGIN_HINT: Final = "if {name} is a plugin of your own, name its class: --plugin SOURCE:CLASS"

# Raised for a group without a subcommand; its message is the help text. Older versions of click lack it.
_NO_ARGUMENTS: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())


class ExitStatus(IntEnum):
    """What a command ends with."""

    OK = 0
    NO = 1
    FAILED = 2
    NOT_JUDGED = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class ClosedPipeError(Exception):
    """The reader of standard output has closed the pipe. (For BrokenPipeError click itself exits with 1.)"""


@contextmanager
def closed_pipes_reported() -> Iterator[None]:
    """Raises ClosedPipeError where the reader of standard output has gone."""
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError from error


def report(error: BaseException) -> int:
    """Prints an expected error and returns the exit status; any other error is raised again."""
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else ExitStatus.FAILED
        case KeyboardInterrupt() | click.Abort():
            return ExitStatus.INTERRUPTED
        case BrokenPipeError() | ClosedPipeError():
            _forget_output()
            return ExitStatus.BROKEN_PIPE
        case click.UsageError():
            if isinstance(error, _NO_ARGUMENTS):
                echo_text(error.format_message(), err=True)
                return ExitStatus.FAILED
            echo_error(error.format_message())
            if error.ctx is not None:
                echo(f"try '{error.ctx.command_path} --help'", err=True)
            return ExitStatus.FAILED
        case click.ClickException():
            message = error.format_message()
        case BayplanError():
            message = str(error)
        case OSError() if error.filename is not None:
            message = f"{os.fspath(error.filename)}: {error.strerror}"
        case _:
            raise error
    echo_error(message)
    print_hint(error)
    return ExitStatus.FAILED


def print_hint(error: BaseException) -> None:
    """Prints what to do about an error whose text is kube-scheduler's."""
    if isinstance(error, ConfigError) and error.unknown_plugin:
        echo(_PLUGIN_HINT.format(name=error.unknown_plugin), err=True)


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """A suggestion to end an error message with, or "" if no known name is similar."""
    nearest = difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""


def _forget_output() -> None:
    """Discards buffered output; otherwise Python reports the closed pipe again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


# Plugins that fail

traceback_option = click.option(
    "--traceback", is_flag=True, help="Print the tracebacks of plugins that fail, on standard error."
)


class PluginsFailedError(BayplanError):
    """Plugins failed for some pods."""


@dataclass(slots=True)
class FailedPlugins:
    """The pods for which a plugin failed."""

    with_traceback: bool = False
    _failures: list[tuple[str, str]] = field(default_factory=list)
    _shown: set[str] = field(default_factory=set)

    def add(self, explanation: Explanation) -> None:
        """Notes a failure, and prints its traceback if that is wanted and new."""
        if not explanation.failed_plugin:
            return
        self._failures.append((explanation.pod, explanation.failure))
        if self.with_traceback and explanation.traceback and explanation.traceback not in self._shown:
            self._shown.add(explanation.traceback)
            echo(f"{explanation.pod}: {explanation.failure}", err=True)
            echo_text(explanation.traceback, err=True)

    def raise_any(self) -> None:
        """Raises PluginsFailedError if there was a failure."""
        if not self._failures:
            return
        count = len(self._failures)
        pods = "1 pod was" if count == 1 else f"{count:,} pods were"
        texts = (f"{pod}: {text}" for pod, text in self._failures)
        lines = _lines(texts, count, hint=not self.with_traceback)
        raise PluginsFailedError("\n".join([_INCOMPLETE.format(pods=pods), *lines]))


def raise_failures(failures: Sequence[PluginFailure], *, with_traceback: bool) -> None:
    """Raises PluginsFailedError if plugins failed while the scheduler ran."""
    if not failures:
        return
    for traceback in dict.fromkeys(one.traceback for one in failures if with_traceback and one.traceback):
        echo_text(traceback, err=True)
    hint = not with_traceback and any(one.traceback for one in failures)
    shown = _lines((one.message for one in failures), len(failures), hint=hint)
    raise PluginsFailedError("\n".join([_NOT_RELIABLE, *shown]))


def _lines(texts: Iterable[str], count: int, *, hint: bool) -> list[str]:
    shown = list(islice(texts, MAX_LISTED))
    more = [f"and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []
    return [*shown, *more, *(["--traceback shows where"] if hint else [])]
