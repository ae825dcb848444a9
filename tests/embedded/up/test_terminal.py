"""A page on a terminal, which is a pseudo-terminal here: what is written to it, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress

import pytest
from rich.text import Text

from bayplan.cli.output import SafeConsole
from bayplan.embedded.up.screen import Page, rows

CLEAR = "\x1b[2J\x1b[H"


class Terminal:
    """A pseudo-terminal and what was written to it since it was last read."""

    def __init__(self) -> None:
        self._user, self._program = pty.openpty()
        self.resize(40, 10)
        self.file = os.fdopen(self._program, "w")
        self.console = SafeConsole(file=self.file, force_terminal=True, color_system=None)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._user, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self) -> str:
        os.set_blocking(self._user, False)
        seen = b""
        with suppress(BlockingIOError):
            while True:
                seen += os.read(self._user, 65536)
        return seen.decode()

    def close(self) -> None:
        self.file.close()
        os.close(self._user)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_the_page_is_gone_in_the_end(terminal: Terminal) -> None:
    with Page(terminal.console) as page:
        assert page.size == (40, 10)
        assert terminal.read().startswith("\x1b[?1049h")
        page.draw([Text("hello")])
    assert terminal.read().endswith("\x1b[?1049l")


def test_nothing_is_written_while_nothing_changes(terminal: Terminal) -> None:
    """What a user has selected with the mouse stays selected."""
    with Page(terminal.console) as page:
        page.draw([Text("hello")])
        assert CLEAR in terminal.read()
        page.draw([Text("hello")])
        assert terminal.read() == ""


@pytest.mark.parametrize("width", [20, 80], ids=["narrower", "wider"])
def test_another_size_is_a_new_page(terminal: Terminal, width: int) -> None:
    """The whole screen is cleared first, so that no copy of the old page stays."""
    with Page(terminal.console) as page:
        page.draw([Text("hello")])
        terminal.read()
        terminal.resize(width, 10)
        page.draw([Text("hello")])
        before, _, after = terminal.read().partition(CLEAR)
        assert (before, after.removesuffix("\x1b[?2026l")) == ("\x1b[?2026h", "hello")


def test_a_terminal_of_0_columns_counts_as_80(terminal: Terminal) -> None:
    """Serial lines and some containers have no size."""
    terminal.resize(0, 0)
    with Page(terminal.console) as page:
        assert page.size == (80, 24)


def test_long_lines_are_wrapped_by_the_terminal(terminal: Terminal) -> None:
    """So that they are one line for a user who selects them."""
    with Page(terminal.console) as page:
        page.draw([Text("x" * 100), Text("end")])
        assert "x" * 100 + "\r\n" in terminal.read().replace("\r\r\n", "\r\n")


def test_line_ends_are_not_escaped(terminal: Terminal) -> None:
    """The console of commands escapes control characters, and lines of the page end with one."""
    with Page(terminal.console) as page:
        page.draw([Text("one"), Text("end")])
        assert "one\r\nend" in terminal.read().replace("\r\r\n", "\r\n")


@pytest.mark.parametrize(
    ("text", "taken"), [("", 1), ("x" * 40, 1), ("x" * 41, 2), ("字" * 20, 1), ("字" * 21, 2)]
)
def test_rows_of_a_line(text: str, taken: int) -> None:
    assert rows(Text(text), 40) == taken
