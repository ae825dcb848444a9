"""Small integers for repeated things.

Columns hold numbers. Whatever else a rule compares (label values, lists of taints, sets of labels) is
interned: the first time it is seen it gets the next id, and from then on equal things have equal ids.
`Lookup` is the other half: a function of the thing, evaluated once for each id and then read from a table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=Hashable)

IdColumn = NDArray[np.intp]

ABSENT = -1
"""The id of what is not there. As an index it means the last entry, which every table keeps for it."""


class Interner(Generic[T]):
    """Gives equal values equal ids: 0, 1, 2, … in the order of first sight. Ids are never taken back."""

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


class Lookup(Generic[T]):
    """A yes-or-no or a number for each interned value, computed once and then gathered by id.

    Calling it with a column of ids gives the column of answers, with one id the answer. The table grows
    when the interner has. `absent` answers for ABSENT.
    """

    __slots__ = ("_absent", "_answers", "_function", "_interner", "_table")

    def __init__(self, interner: Interner[T], function: Callable[[T], int], absent: int = 0) -> None:
        self._interner = interner
        self._function = function
        self._absent = absent
        self._answers: list[int] = []
        self._table: NDArray[np.int64] = np.array([absent], dtype=np.int64)

    @overload
    def __call__(self, ids: int) -> int: ...
    @overload
    def __call__(self, ids: IdColumn) -> NDArray[np.int64]: ...
    def __call__(self, ids: int | IdColumn) -> int | NDArray[np.int64]:
        if len(self._answers) < len(self._interner):
            self._grow()
        if isinstance(ids, int):
            return self._answers[ids] if ids >= 0 else self._absent
        return self._table.take(ids)

    def _grow(self) -> None:
        fresh = self._interner.values[len(self._answers) :]
        self._answers.extend(int(self._function(value)) for value in fresh)
        self._table = np.array([*self._answers, self._absent], dtype=np.int64)
