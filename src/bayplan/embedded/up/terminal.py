"""A terminal that shows one page: redrawn when it changes, and removed at the end.

The page is drawn on the terminal's alternate screen, which terminals do not reflow when their size changes,
so no copies of earlier pages are left behind. Lines longer than the terminal is wide are left to the terminal
to wrap: when they are selected with the mouse, they are one line. Nothing is written while nothing changes,
so a selection stays.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, and no cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_CLEAR: Final = "\x1b[2J\x1b[H"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that support it show everything in between at once."""
_FALLBACK: Final = os.terminal_size((80, 24))


class Page:
    """The alternate screen of a terminal. Use it in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: tuple[os.terminal_size, tuple[Text, ...]] | None = None
        self._input: list[Any] | None = None

    @property
    def size(self) -> os.terminal_size:
        """The current size. COLUMNS and LINES of the environment would be those of the start."""
        try:
            return os.get_terminal_size(self._console.file.fileno())
        except OSError:
            return _FALLBACK

    def __enter__(self) -> Self:
        self._write(_ENTER)
        # Input must not appear on the page; Ctrl-C still works.
        with suppress(termios.error, OSError, ValueError):
            self._input = termios.tcgetattr(sys.stdin.fileno())
            quiet = termios.tcgetattr(sys.stdin.fileno())
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
        return self

    def __exit__(self, *_: object) -> None:
        if self._input is not None:
            with suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._input)
        self._write(_LEAVE)

    def draw(self, lines: Sequence[Text]) -> None:
        """Shows these lines, which should need no more rows than the terminal has."""
        page = (self.size, tuple(lines))
        if page == self._shown:
            return
        self._shown = page
        with self._console.capture() as captured:
            for number, line in enumerate(lines):
                self._console.print("\r\n" if number else "", line, sep="", end="", soft_wrap=True)
        self._write(f"{_BEGIN}{_CLEAR}{captured.get()}{_END}")

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def rows(line: Text, width: int) -> int:
    """The rows that a line takes on a terminal of this width."""
    return max(-(-cell_len(line.plain) // width), 1)
