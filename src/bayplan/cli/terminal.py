"""Output on streams that cannot encode every character: no command fails in an ASCII or Latin-1 locale.

Characters that the stream cannot encode are replaced by similar ASCII text, or else by escapes. JSON and YAML
are written as UTF-8 in every locale (`echo_utf8`).
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
    """Makes standard output and standard error replace characters that they cannot encode."""
    codecs.register_error(HANDLER, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def echo(text: str, *, err: bool = False, newline: bool = True) -> None:
    """Prints text in the locale's encoding. By default click would write UTF-8 even in an ASCII locale."""
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=newline)


def echo_utf8(text: str | bytes, *, newline: bool = True) -> None:
    """Prints JSON or YAML as UTF-8."""
    click.echo(text if isinstance(text, bytes) else text.encode("utf-8", HANDLER), nl=newline)
