"""Output of commands as text, JSON and YAML: safe on every terminal, and in every locale.

Text of API objects is escaped (`bayplan/printable.py`). Characters that the stream cannot encode are replaced
by similar ASCII text, or else by escapes, so that no command fails in an ASCII or Latin-1 locale; JSON and
YAML are UTF-8 in every locale. `output.py` has tables.
"""

from __future__ import annotations

import codecs
import logging
import sys
from io import TextIOWrapper
from typing import Any, Final

import click

from bayplan.printable import printable, printable_json, printable_lines

HANDLER: Final = "bayplan.nearest"

_NEAREST: Final = {
    "●": "*",
    "…": "...",
    "·": "|",
    "–": "-",
    "—": "-",
    "−": "-",
    "→": "->",
    "«": '"',
    "»": '"',
    "×": "x",
    "µ": "u",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_NEAREST.get(char) or _escaped(char) for char in text), error.end


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode("ascii")


def tolerate_any_encoding() -> None:
    """Makes standard output and standard error replace characters that they cannot encode."""
    codecs.register_error(HANDLER, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


class SafeFormatter(logging.Formatter):
    """Formats log records as one line each, and tracebacks after them."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging calls it)
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return printable_lines(super().formatException(ei))


def echo(*lines: str, err: bool = False) -> None:
    """Prints lines, each of which may contain text of API objects.

    In the locale's encoding: by default click would write UTF-8 even in an ASCII locale.
    """
    click.echo("\n".join(map(printable, lines)), file=sys.stderr if err else sys.stdout)


def echo_text(text: str, *, err: bool = False) -> None:
    """Prints text of several lines that bayplan itself made: help, tracebacks."""
    click.echo(printable_lines(text), file=sys.stderr if err else sys.stdout)


def echo_error(message: str) -> None:
    """Prints an error. Further lines are indented, so that no part of a message looks like another one."""
    echo_text("error: " + message.rstrip("\n").replace("\n", "\n  "), err=True)


def echo_json(text: str | bytes) -> None:
    """Prints JSON, as UTF-8 in every locale."""
    content = text.decode() if isinstance(text, bytes) else text
    click.echo(printable_json(content).encode("utf-8"))


def echo_yaml(text: str) -> None:
    """Prints YAML, as UTF-8 in every locale."""
    click.echo(printable_lines(text).encode("utf-8"), nl=False)
