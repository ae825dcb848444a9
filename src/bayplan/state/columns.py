"""Growing columns of numbers, and small integers for everything else.

A column is a NumPy array with spare capacity, doubled when it is used up. Every column of a `Table` has the
same number of rows in use (`high`). `read` is the part in use with writing switched off. `cell` is a
memoryview over the same memory: reading or writing one element through it costs a fraction of what indexing
the array does.

Values that are not numbers (label values, lists of taints, sets of labels) are interned: a new value gets the
next id, and equal values have equal ids. `Lookup` is a function of the value, evaluated once for each id and
then read from a table. Some values are always new, because each Job has labels of its own: `SharedIds` reuses
their ids.

`RowMask` is a mask over the rows that is brought up to date in place, with a log of the rows that changed.
The tables themselves are in `nodes.py` and `pods.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bayplan.clock import COUNT_HISTORY, Clock, Log, Topic

FIRST_CAPACITY = 64


cells: Final[Callable[[NDArray[Any]], Any]] = memoryview  # type: ignore[assignment]  # arrays have buffers
"""The elements of an array, for reading and writing them one at a time."""


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


T = TypeVar("T", bound=Hashable)
S = TypeVar("S")

IdColumn = NDArray[np.intp]

ABSENT = -1
"""The id of an absent value. As an index it means the last entry, which every table reserves for it."""


def distinct_ids(ids: IdColumn) -> IdColumn:
    """The ids that occur in a column, in ascending order; ABSENT is the first.

    `np.unique` does the same by sorting, and imports numpy.ma on its first call, which takes longer than a
    thousand decisions.
    """
    return np.bincount(ids - ABSENT).nonzero()[0] + ABSENT


class Interner(Generic[T]):
    """Gives equal values equal ids: 0, 1, 2, … in the order of first use. Ids are never reused."""

    __slots__ = ("_ids", "values")

    def __init__(self) -> None:
        self._ids: dict[T, int] = {}
        self.values: list[T] = []

    def __len__(self) -> int:
        return len(self.values)

    def intern(self, value: T) -> int:
        found = self._ids.get(value)
        if found is None:
            found = self._ids[value] = len(self.values)
            self.values.append(value)
        return found

    def find(self, value: T) -> int:
        """The id of a value already seen, else ABSENT."""
        return self._ids.get(value, ABSENT)


class SharedIds(Generic[T, S]):
    """Gives equal keys one object with a small id, as long as the object is referenced.

    After that its id goes to the next new object, so there are never many more ids than objects in use, and
    tables over ids stay small. A cache by id must refer to the object, too, or detect that the id has a new
    owner.
    """

    __slots__ = ("_forget", "_free", "_freed", "_keys", "_known", "_refs")

    def __init__(self, forget: Callable[[int, T], None] | None = None) -> None:
        self._forget = forget
        self._known: dict[T, weakref.ref[S]] = {}
        self._refs: list[weakref.ref[S]] = []
        self._keys: list[T] = []
        self._freed: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """The number of ids: every id is lower."""
        return len(self._refs)

    def __getitem__(self, number: int) -> S:
        """The object with an id that is in use."""
        found = self._refs[number]()
        assert found is not None
        return found

    def find(self, number: int) -> S | None:
        """The object with an id; None if it is no longer referenced."""
        return self._refs[number]()

    def known(self, key: T) -> S | None:
        """The object of a key; None if it is not referenced."""
        found = self._known.get(key)
        return None if found is None else found()

    def __iter__(self) -> Iterator[S]:
        """All objects in use."""
        return (found for ref in self._refs if (found := ref()) is not None)

    def intern(self, key: T, make: Callable[[int], S]) -> S:
        known = self._known.get(key)
        found = None if known is None else known()
        return self._add(key, make) if found is None else found

    def _add(self, key: T, make: Callable[[int], S]) -> S:
        self._reclaim_ids()
        number = self._free.pop() if self._free else len(self._refs)
        made = make(number)
        freed = self._freed
        # Only records the id: an object may be freed at any time, whatever is running.
        ref = self._known[key] = weakref.ref(made, lambda _: freed.append(number))
        if number == len(self._refs):
            self._refs.append(ref)
            self._keys.append(key)
        else:
            self._refs[number], self._keys[number] = ref, key
        return made

    def _reclaim_ids(self) -> None:
        while self._freed:
            number = self._freed.pop()
            key = self._keys[number]
            del self._known[key]
            if self._forget is not None:
                self._forget(number, key)
            self._free.append(number)


class Lookup(Generic[T]):
    """A boolean or a number for each interned value, computed once and then gathered by id.

    Called with a column of ids it returns the column of values, with one id its value. The table grows with
    the interner. `absent` is the value for ABSENT.
    """

    __slots__ = ("_absent", "_function", "_interner", "_table", "_values")

    def __init__(self, interner: Interner[T], function: Callable[[T], int], absent: int = 0) -> None:
        self._interner = interner
        self._function = function
        self._absent = absent
        self._values: list[int] = []
        self._table: NDArray[np.int64] = np.array([absent], dtype=np.int64)

    @overload
    def __call__(self, ids: int) -> int: ...
    @overload
    def __call__(self, ids: IdColumn) -> NDArray[np.int64]: ...
    def __call__(self, ids: int | IdColumn) -> int | NDArray[np.int64]:
        if len(self._values) < len(self._interner):
            self._grow()
        if isinstance(ids, int):
            return self._values[ids] if ids >= 0 else self._absent
        return self._table.take(ids)

    def _grow(self) -> None:
        fresh = self._interner.values[len(self._values) :]
        self._values.extend(int(self._function(value)) for value in fresh)
        self._table = np.array([*self._values, self._absent], dtype=np.int64)


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
        """Sets all rows as in an array; row by row if only a few differ."""
        if len(mask) != len(self.mask):
            self.replace(mask)
            return
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
