"""The text of an expression, and errors that point into it.

Problems are collected while an expression is parsed or checked and reported together, in the order in which
they occur in the text, each with the line it is in and a caret under the column, as cel-go shows them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from bayplan.cel.errors import CompileError

_MAX_SNIPPET: Final = 16384
_WIDE_DOT: Final = "．"
_WIDE_CARET: Final = "＾"


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    column: int
    message: str


class Source:
    """An expression's text, with the problems found in it so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self._starts = [0, *(index + 1 for index, char in enumerate(text) if char == "\n")]

    def report(self, offset: int, message: str) -> None:
        line = bisect_right(self._starts, offset)
        self.problems.append(Problem(line, offset - self._starts[line - 1], message))

    def report_at_end(self, message: str) -> None:
        """Reports a problem at the end of the text; for an empty text upstream's parser has no column."""
        if self.text:
            self.report(len(self.text), message)
        else:
            self.problems.append(Problem(1, -1, message))

    def raise_problems(self) -> None:
        """Raises all problems as one error, if there are any."""
        if self.problems:
            ordered = sorted(self.problems, key=lambda problem: (problem.line, problem.column))
            raise CompileError("compilation failed: " + "\n".join(map(self._display, ordered)))

    def _display(self, problem: Problem) -> str:
        text = f"ERROR: <input>:{problem.line}:{problem.column + 1}: {problem.message}"
        lines = self.text.split("\n")
        if not self.text or problem.line > len(lines):
            return text
        line = lines[problem.line - 1].replace("\t", " ")
        if len(line.encode()) > _MAX_SNIPPET:
            return text
        pointer = "".join("." if char.isascii() else _WIDE_DOT for char in line[: problem.column])
        here = line[problem.column : problem.column + 1]
        return f"{text}\n | {line}\n | {pointer}{'^' if here.isascii() else _WIDE_CARET}"
