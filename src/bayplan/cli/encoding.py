"""Output on streams that cannot encode everything: an ASCII or Latin-1 locale must not end a command.

Characters that the stream cannot encode are written as their nearest ASCII text, others as escapes. That is
for people; what programs read (JSON, YAML) is written as UTF-8 whatever the locale says (`echo_utf8`).
"""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper
from typing import Final

import click

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
    """Has standard output and standard error write what they cannot encode as best they can."""
    codecs.register_error(HANDLER, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def echo(text: str, *, err: bool = False, newline: bool = True) -> None:
    """Prints what people read. Left to itself, click would write UTF-8 where the locale says ASCII."""
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=newline)


def echo_utf8(text: str | bytes, *, newline: bool = True) -> None:
    """Prints what programs read."""
    click.echo(text if isinstance(text, bytes) else text.encode("utf-8", HANDLER), nl=newline)
