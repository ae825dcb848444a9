"""Which rows changed, in order: the log that lets a result be brought up to date instead of made anew.

A reader keeps a cursor into the log; `since(cursor)` is what changed after it. A row may stand there
several times, which does no harm. Old entries are dropped once the log is much longer than the table: a
reader that slept so long has to start over, which costs no more than reading them would.
"""

from __future__ import annotations

KEEP = 8192
"""Entries kept at least; beyond twice the larger of this and the number of rows the older half goes."""


class ChangeLog:
    __slots__ = ("_first", "_rows", "end")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._first = 0
        self.end = 0
        """The cursor of a reader that has seen everything."""

    def append(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1

    @property
    def last(self) -> int:
        """The row that changed last."""
        return self._rows[-1]

    def since(self, cursor: int) -> list[int] | None:
        """Rows changed after `cursor`, or None where the log no longer reaches back that far."""
        if cursor < self._first:
            return None
        return self._rows[cursor - self._first :]

    def trim(self, rows: int) -> None:
        limit = 2 * max(KEEP, rows)
        if len(self._rows) > limit:
            drop = len(self._rows) // 2
            del self._rows[:drop]
            self._first += drop
