"""Growing columns: NumPy arrays with spare capacity, doubled when it is used up.

Every column of a `Table` has the same number of rows in use (`high`). `read` is the part in use with writing
switched off. `cell` is a memoryview over the same memory: reading or writing one element through it costs a
fraction of what indexing the array does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bayplan.clock import Topic

FIRST_CAPACITY = 64


def cells(array: NDArray[Any]) -> Any:
    """The elements of an array, for reading and writing them one at a time."""
    return memoryview(array)  # type: ignore[arg-type]  # ndarray has the buffer protocol


class Column:
    """One growing column. `fill` is the value of a row until it is written."""

    __slots__ = ("_read", "_table", "array", "cell", "fill")

    def __init__(self, table: Table, dtype: DTypeLike, fill: int | float | bool) -> None:
        self._table = table
        self.fill = fill
        self.array: NDArray[Any] = np.full(table.capacity, fill, dtype=dtype)
        self.cell = cells(self.array)
        self._read: NDArray[Any] = self.array[:0]

    @property
    def read(self) -> NDArray[Any]:
        """The rows in use, read-only."""
        if len(self._read) != self._table.high:
            self._read = self.array[: self._table.high]
            self._read.flags.writeable = False
        return self._read

    def set_capacity(self, capacity: int) -> None:
        grown = np.full(capacity, self.fill, dtype=self.array.dtype)
        grown[: len(self.array)] = self.array
        self.array = grown
        self.cell = cells(grown)
        self._read = grown[:0]


class Table:
    """Rows numbered 0..high-1 that are allocated and freed; freed rows are reused.

    `size` changes when there are more rows.
    """

    def __init__(self, size: Topic | None = None) -> None:
        self._size = size
        self.high = 0
        self.capacity = FIRST_CAPACITY
        self._free: list[int] = []
        self._columns: list[Column] = []

    def column(self, dtype: DTypeLike, fill: int | float | bool = 0) -> Column:
        made = Column(self, dtype, fill)
        self._columns.append(made)
        return made

    def drop_column(self, column: Column) -> None:
        self._columns.remove(column)

    def take_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = self.high
        self.high += 1
        if self._size is not None:
            self._size.change()
        if self.high > self.capacity:
            self.capacity *= 2
            for column in self._columns:
                column.set_capacity(self.capacity)
        return row

    def take_rows(self, count: int) -> range:
        """As many new rows. Freed ones stay free."""
        rows = range(self.high, self.high + count)
        self.high = rows.stop
        if count and self._size is not None:
            self._size.change()
        if self.high > self.capacity:
            while self.high > self.capacity:
                self.capacity *= 2
            for column in self._columns:
                column.set_capacity(self.capacity)
        return rows

    def free_row(self, row: int) -> None:
        for column in self._columns:
            column.cell[row] = column.fill
        self._free.append(row)
