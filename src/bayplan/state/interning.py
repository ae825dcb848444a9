"""Small integers for repeated values.

Columns hold numbers. Everything else that plugins compare (label values, lists of taints, sets of labels) is
interned: a new value gets the next id, and equal values have equal ids. `Lookup` is a function of the value,
evaluated once for each id and then read from a table.

Some values are always new: each Job has labels of its own. `SharedIds` reuses their ids.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

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
