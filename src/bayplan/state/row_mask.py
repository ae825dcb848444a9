"""A mask over the rows of the node table that is brought up to date in place, and what changed in it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.clock import COUNT_HISTORY, Clock, Log, Topic
from bayplan.state.table import cells

FEW_ROWS: Final = 8
"""Up to this many rows are recorded, inserted or removed one by one (`runtime/feasible.py`)."""


class RowMask:
    """One bool for each row. `mask` is changed in place: readers copy it, or depend on its topics."""

    __slots__ = ("cell", "changed", "count", "mask", "replaced")

    def __init__(self, clock: Clock, mask: NDArray[np.bool_]) -> None:
        self.changed: Log[int] = Log(clock, COUNT_HISTORY)
        """The rows that were changed one by one."""
        self.replaced = Topic(clock)
        """Any row may have changed."""
        self.replace(mask)

    def replace(self, mask: NDArray[np.bool_]) -> None:
        """Uses this array from now on."""
        self.mask = mask
        self.cell = cells(mask)
        self.count = int(np.count_nonzero(mask))
        """The number of rows that are True."""
        self.replaced.change()

    def set(self, row: int, value: bool) -> None:
        if self.cell[row] != value:
            self.cell[row] = value
            self.count += 1 if value else -1
            self.changed.record(row)

    def assign(self, mask: NDArray[np.bool_]) -> None:
        """Takes over the values of an array of the same length."""
        differing = few_true(mask != self.mask, FEW_ROWS)
        if len(differing) > FEW_ROWS:
            self.replace(mask)
            return
        for row in differing:
            self.set(row, bool(mask[row]))


def few_true(mask: NDArray[np.bool_], limit: int) -> list[int]:
    """The positions that are True, if there are at most `limit`; else the first ones.

    `argmax` finds the next one at a fraction of the cost of `nonzero`.
    """
    found: list[int] = []
    begin = 0
    while begin < len(mask) and len(found) <= limit:
        rest = mask[begin:]
        at = int(rest.argmax())
        if not rest[at]:
            break
        found.append(begin + at)
        begin += at + 1
    return found
