"""Text from API objects that is safe to write to a terminal or a log.

Names, labels, messages and annotations are written by tenants. A control character in them could clear the
screen, write the clipboard (OSC 52), forge a log line or reverse the reading order of what follows, so every
output escapes them: `cli/terminal.py` and `cli/output.py` for commands, `process/logs.py` for the log.
Escapes are those of Python and JSON: `\\x1b`, `\\n`, `\\u202e`.
"""

from __future__ import annotations

import json
import re
from typing import Final

_CONTROL: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 without tab and newline, DEL and C1."""
_INVISIBLE: Final = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
    "\ud800-\udfff"
)
"""Bidirectional controls, line separators, characters without width, tags, and lone surrogates."""
_UNSAFE: Final = re.compile(f"[\t\n{_CONTROL}{_INVISIBLE}]")
_UNSAFE_IN_LINES: Final = re.compile(f"[{_CONTROL}{_INVISIBLE}]")


def printable(text: str) -> str:
    """The text as one line, in which every character has a width and acts on nothing."""
    return _UNSAFE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The same for text of several lines that bayplan itself made, such as help and tracebacks."""
    return _UNSAFE_IN_LINES.sub(_escape, text)


def printable_json(text: str) -> str:
    """JSON without these characters: they can occur in strings only, where an escape means the same."""
    return _UNSAFE_IN_LINES.sub(lambda found: json.dumps(found[0])[1:-1], text)


def is_printable(text: str) -> bool:
    """Whether `printable_lines` would change nothing."""
    return _UNSAFE_IN_LINES.search(text) is None


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode("ascii")
