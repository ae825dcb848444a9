"""Sorts as Go does, equal elements included.

`sort.Slice`, `sort.Sort` and `slices.SortFunc` of Go are one algorithm, a pattern-defeating quicksort. It is
deterministic, but with more than twelve elements it moves equal ones, and kube-scheduler, Karmada and the
descheduler sort with it what they then evict or assign in that order. Where the model sorts with these
functions, so do we; where it uses `sort.SliceStable`, Python's `sorted` gives the same result.

`conformance/sorting/` has permutations recorded from Go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

MAX_INSERTION: Final = 12
"""Up to this many elements the sort is an insertion sort, which keeps the order of equal elements."""

_SHORTEST_NINTHER: Final = 50
_MAX_SWAPS: Final = 12
_SHORTEST_SHIFTING: Final = 50
_MAX_STEPS: Final = 5
_WORD: Final = 2**64 - 1


def go_sort(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """A sorted copy. `less` says whether its first argument has to come before its second."""
    data = list(items)
    _Sort(data, less).run(0, len(data), len(data).bit_length())
    return data


def go_sort_by(items: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """A copy sorted by keys with a total order. Quick: only equal keys need Go's algorithm."""
    data = list(items)
    keys = [key(item) for item in data]
    order = sorted(range(len(data)), key=keys.__getitem__)
    if len(data) > MAX_INSERTION:
        ranks = [0] * len(data)
        for before, after in pairwise(order):
            ranks[after] = ranks[before] + (keys[before] < keys[after])
        if ranks[order[-1]] < len(data) - 1:
            order = list(go_order(tuple(ranks)))
    return [data[index] for index in order]


def go_argsort(keys: Sequence[NDArray[np.int64]]) -> NDArray[np.intp]:
    """The indices in sorted order by these columns, the first of which decides first."""
    order = np.lexsort(tuple(reversed(keys)))
    steps = np.zeros(max(len(order) - 1, 0), dtype=np.bool_)
    for key in keys:
        in_order = key.take(order)
        steps |= in_order[1:] != in_order[:-1]
    if len(order) <= MAX_INSERTION or steps.all():
        return order
    ranks = np.zeros(len(order), dtype=np.int64)
    ranks[order[1:]] = np.cumsum(steps)
    return np.array(go_order(tuple(ranks.tolist())), dtype=np.intp)


@lru_cache(maxsize=1024)
def go_order(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The indices of these ranks in sorted order. Cached: neighbouring nodes often have the same pattern."""
    return tuple(go_sort(range(len(ranks)), lambda left, right: ranks[left] < ranks[right]))


class _Sort:
    """A list while it is sorted. Bounds are half-open, as in Go: `start` is inside, `end` is not."""

    def __init__(self, data: list[T], less: Callable[[T, T], bool]) -> None:
        self._data: list[Any] = data
        self._less: Callable[[Any, Any], bool] = less

    def run(self, start: int, end: int, bad_pivots_left: int) -> None:
        # zsortfunc.go: pdqsort_func
        balanced = partitioned = True
        data, less = self._data, self._less
        while (length := end - start) > MAX_INSERTION:
            if bad_pivots_left == 0:
                self._heap_sort(start, end)
                return
            if not balanced:
                self._break_patterns(start, end)
                bad_pivots_left -= 1
            pivot, swaps = self._choose_pivot(start, end)
            if swaps == _MAX_SWAPS:  # probably descending
                data[start:end] = data[start:end][::-1]
                pivot = start + end - 1 - pivot
                swaps = 0
            probably_sorted = swaps == 0
            if balanced and partitioned and probably_sorted and self._nearly_sorted(start, end):
                return
            if start > 0 and not less(data[start - 1], data[pivot]):
                start = self._partition_equal(start, end, pivot)
                continue
            middle, partitioned = self._partition(start, end, pivot)
            if middle - start < end - middle:
                balanced = middle - start >= length // 8
                self.run(start, middle, bad_pivots_left)
                start = middle + 1
            else:
                balanced = end - middle >= length // 8
                self.run(middle + 1, end, bad_pivots_left)
                end = middle
        for index in range(start + 1, end):
            self._shift_left(index, start)

    def _swap(self, one: int, other: int) -> None:
        data = self._data
        data[one], data[other] = data[other], data[one]

    def _shift_left(self, index: int, lowest: int) -> None:
        """Moves an element down to where the one before it is not larger."""
        data, less = self._data, self._less
        while index > lowest and less(data[index], data[index - 1]):
            self._swap(index, index - 1)
            index -= 1

    def _choose_pivot(self, start: int, end: int) -> tuple[int, int]:
        """The index of the pivot, and how many of the compared pairs were out of order."""
        # zsortfunc.go: choosePivot_func
        data, less = self._data, self._less
        swaps = 0

        def median(a: int, b: int, c: int) -> int:
            nonlocal swaps
            if less(data[b], data[a]):
                a, b, swaps = b, a, swaps + 1
            if less(data[c], data[b]):
                b, swaps = c, swaps + 1
            if less(data[b], data[a]):
                b, swaps = a, swaps + 1
            return b

        quarter = (end - start) // 4
        candidates = [start + quarter, start + 2 * quarter, start + 3 * quarter]
        if end - start >= _SHORTEST_NINTHER:
            candidates = [median(index - 1, index, index + 1) for index in candidates]
        return median(*candidates), swaps

    def _nearly_sorted(self, start: int, end: int) -> bool:
        """Sorts the range if few neighbours are out of order; gives up, and says so, if it takes more."""
        # zsortfunc.go: partialInsertionSort_func
        data, less = self._data, self._less
        index = start + 1
        for _ in range(_MAX_STEPS):
            while index < end and not less(data[index], data[index - 1]):
                index += 1
            if index == end:
                return True
            if end - start < _SHORTEST_SHIFTING:
                return False
            self._swap(index, index - 1)
            if index - start >= 2:
                # Go shifts as far as index 0: what is before the range is not larger.
                self._shift_left(index - 1, 0)
            right = index + 1
            while end - index >= 2 and right < end and less(data[right], data[right - 1]):
                self._swap(right, right - 1)
                right += 1
        return False

    def _partition(self, start: int, end: int, pivot: int) -> tuple[int, bool]:
        """Where the pivot is, with smaller elements before it, and whether nothing had to be moved."""
        # zsortfunc.go: partition_func
        data, less = self._data, self._less
        self._swap(start, pivot)
        value = data[start]
        left, right = start + 1, end - 1
        moved = False
        while True:
            while left <= right and less(data[left], value):
                left += 1
            while left <= right and not less(data[right], value):
                right -= 1
            if left > right:
                break
            self._swap(left, right)
            left, right, moved = left + 1, right - 1, True
        self._swap(right, start)
        return right, not moved

    def _partition_equal(self, start: int, end: int, pivot: int) -> int:
        """Moves elements equal to the pivot to the front, for a range without smaller ones; returns where
        they end."""
        # zsortfunc.go: partitionEqual_func
        data, less = self._data, self._less
        self._swap(start, pivot)
        value = data[start]
        left, right = start + 1, end - 1
        while True:
            while left <= right and not less(value, data[left]):
                left += 1
            while left <= right and less(value, data[right]):
                right -= 1
            if left > right:
                return left
            self._swap(left, right)
            left, right = left + 1, right - 1

    def _break_patterns(self, start: int, end: int) -> None:
        """Swaps three elements around the middle with pseudorandom ones: xorshift, seeded by the length."""
        # zsortfunc.go: breakPatterns_func
        length = random = end - start
        mask = (1 << length.bit_length()) - 1
        middle = start + length // 4 * 2
        for index in range(middle - 1, middle + 2):
            random ^= random << 13 & _WORD
            random ^= random >> 7
            random ^= random << 17 & _WORD
            other = random & mask
            self._swap(index, start + (other if other < length else other - length))

    def _heap_sort(self, start: int, end: int) -> None:
        # zsortfunc.go: heapSort_func
        size = end - start
        for root in range((size - 1) // 2, -1, -1):
            self._sift_down(root, size, start)
        for last in range(size - 1, -1, -1):
            self._swap(start, start + last)
            self._sift_down(0, last, start)

    def _sift_down(self, root: int, size: int, first: int) -> None:
        data, less = self._data, self._less
        while (child := 2 * root + 1) < size:
            if child + 1 < size and less(data[first + child], data[first + child + 1]):
                child += 1
            if not less(data[first + root], data[first + child]):
                return
            self._swap(first + root, first + child)
            root = child
