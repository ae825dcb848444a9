"""Growing columns, ids for repeated values, and masks that tell which rows have changed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bayplan.clock import Clock, Freshness
from bayplan.state.columns import (
    ABSENT,
    FEW_ROWS,
    FIRST_CAPACITY,
    Interner,
    Lookup,
    RowMask,
    SharedIds,
    Table,
    few_true,
)


def test_rows_are_numbered_from_zero() -> None:
    table = Table()
    assert [table.take_row() for _ in range(3)] == [0, 1, 2]
    assert table.high == 3


def test_a_freed_row_is_taken_again_and_holds_what_a_fresh_one_does() -> None:
    table = Table()
    numbers, ids, flags = table.column(np.int64), table.column(np.intp, -1), table.column(np.bool_, True)
    for _ in range(3):
        table.take_row()
    numbers.cell[1], ids.cell[1], flags.cell[1] = 7, 5, False
    table.free_row(1)
    assert (table.take_row(), table.high) == (1, 3)
    assert (numbers.cell[1], ids.cell[1], flags.cell[1]) == (0, -1, True)


def test_growing_keeps_what_is_there_and_fills_what_is_new() -> None:
    table = Table()
    column = table.column(np.intp, -1)
    count = 3 * FIRST_CAPACITY + 1
    for number in range(count):
        row = table.take_row()
        column.cell[row] = number
    assert table.capacity >= count
    assert column.read.tolist() == list(range(count))
    assert set(column.array[count:].tolist()) == {-1}


def test_a_column_made_late_is_as_long_as_the_others() -> None:
    table = Table()
    for _ in range(FIRST_CAPACITY + 5):
        table.take_row()
    late = table.column(np.int64, 9)
    assert late.read.tolist() == [9] * (FIRST_CAPACITY + 5)
    table.take_row()
    assert len(late.read) == FIRST_CAPACITY + 6


def test_reading_follows_writing() -> None:
    """What is read is a window on the column, not a copy."""
    table = Table()
    column = table.column(np.int64)
    table.take_row()
    read = column.read
    column.cell[0] = 5
    assert read[0] == 5
    assert column.read is read


def test_what_is_read_cannot_be_written() -> None:
    table = Table()
    column = table.column(np.int64)
    for _ in range(FIRST_CAPACITY + 1):
        table.take_row()
    with pytest.raises(ValueError, match="read-only"):
        column.read[0] = 1


def test_a_dropped_column_no_longer_grows() -> None:
    table = Table()
    dropped, kept = table.column(np.int64), table.column(np.int64)
    table.drop_column(dropped)
    for _ in range(FIRST_CAPACITY + 1):
        table.take_row()
    assert (len(dropped.array), len(kept.array)) == (FIRST_CAPACITY, 2 * FIRST_CAPACITY)


def test_columns_that_hold_the_same_are_not_confused_when_one_is_dropped() -> None:
    table = Table()
    first, second = table.column(np.int64), table.column(np.int64)
    table.drop_column(second)
    table.take_row()
    first.cell[0] = 3
    table.free_row(0)
    assert first.cell[0] == 0


def test_equal_things_have_equal_ids_in_order_of_first_sight() -> None:
    names: Interner[str] = Interner()
    assert [names.intern(name) for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]
    assert (len(names), names.values) == (3, ["b", "a", "c"])


def test_finding_makes_nothing_new() -> None:
    names: Interner[str] = Interner()
    names.intern("a")
    assert (names.find("a"), names.find("b"), len(names)) == (0, ABSENT, 1)


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


class TestSharedIds:
    """One object for equal keys, for as long as it is referenced."""

    def test_equal_keys_share_an_object(self) -> None:
        things: SharedIds[str, Thing] = SharedIds()
        a, b = things.intern("a", Thing), things.intern("b", Thing)
        assert things.intern("a", Thing) is a
        assert (a.number, b.number, things[1], list(things)) == (0, 1, b, [a, b])

    def test_an_unreferenced_id_is_reused(self) -> None:
        dropped: list[tuple[int, str]] = []
        things: SharedIds[str, Thing] = SharedIds(lambda number, key: dropped.append((number, key)))
        a, b, c = (things.intern(key, Thing) for key in "abc")
        del b
        assert (things.find(1), list(things), dropped) == (None, [a, c], [])
        d = things.intern("d", Thing)
        assert (d.number, things[1], dropped, len(things)) == (1, d, [(1, "b")], 3)

    def test_a_key_that_comes_back_is_a_new_one(self) -> None:
        things: SharedIds[str, Thing] = SharedIds()
        things.intern("a", Thing)
        again = things.intern("a", Thing)
        assert (things[0], things.intern("a", Thing), len(things)) == (again, again, 1)


class TestLookup:
    """A function of the thing, evaluated once for each and then read by id."""

    def lengths(self) -> tuple[Interner[str], Lookup[str], list[str]]:
        names: Interner[str] = Interner()
        computed: list[str] = []

        def length(name: str) -> int:
            computed.append(name)
            return len(name)

        return names, Lookup(names, length, absent=-7), computed

    def test_for_a_column_and_for_one(self) -> None:
        names, lookup, _ = self.lengths()
        for name in ("a", "bb", "ccc"):
            names.intern(name)
        assert lookup(np.array([2, 0, ABSENT, 1], dtype=np.intp)).tolist() == [3, 1, -7, 2]
        assert (lookup(1), lookup(ABSENT)) == (2, -7)

    def test_each_value_is_computed_once(self) -> None:
        names, lookup, computed = self.lengths()
        names.intern("a")
        for _ in range(3):
            lookup(np.array([0, 0], dtype=np.intp))
            lookup(0)
        assert computed == ["a"]

    def test_values_of_later_things_are_computed_too(self) -> None:
        """Also where the id that means absent used to be the last entry of the table."""
        names, lookup, computed = self.lengths()
        names.intern("a")
        assert lookup(np.array([ABSENT, 0], dtype=np.intp)).tolist() == [-7, 1]
        names.intern("bb")
        assert lookup(np.array([ABSENT, 0, 1], dtype=np.intp)).tolist() == [-7, 1, 2]
        assert lookup(1) == 2
        assert computed == ["a", "bb"]

    def test_before_anything_was_seen(self) -> None:
        _, lookup, _ = self.lengths()
        assert lookup(np.array([ABSENT, ABSENT], dtype=np.intp)).tolist() == [-7, -7]

    def test_yes_and_no_are_numbers(self) -> None:
        names: Interner[str] = Interner()
        names.intern("a")
        answers = Lookup(names, lambda name: name == "a")(np.array([0], dtype=np.intp))
        assert answers.tolist() == [1]


ROWS = 3 * FEW_ROWS


def mask_of(*rows: int) -> NDArray[np.bool_]:
    mask = np.zeros(ROWS, dtype=np.bool_)
    mask[list(rows)] = True
    return mask


def watched(*rows: int) -> tuple[RowMask, Freshness]:
    """A mask, and a value that depends on it."""
    clock = Clock()
    mask = RowMask(clock, mask_of(*rows))
    freshness = Freshness(clock, (mask.replaced,), (mask.changed,))
    freshness.mark_current()
    return mask, freshness


def test_single_rows_are_recorded() -> None:
    mask, freshness = watched(1, 2)
    mask.set(2, False)
    mask.set(5, True)
    assert freshness.stale_rows() == [2, 5]
    assert (mask.mask.nonzero()[0].tolist(), mask.count) == ([1, 5], 2)


def test_a_row_that_stays_the_same_is_no_change() -> None:
    mask, freshness = watched(1)
    mask.set(1, True)
    mask.set(0, False)
    assert freshness.is_current
    assert mask.count == 1


def test_another_mask_with_few_differences_changes_these_rows() -> None:
    mask, freshness = watched(1, 2)
    mask.assign(mask_of(2, 9))
    assert freshness.stale_rows() == [1, 9]
    assert mask.count == 2


def test_another_mask_with_many_differences_changes_everything() -> None:
    mask, freshness = watched()
    mask.assign(mask_of(*range(FEW_ROWS + 1)))
    assert freshness.stale_rows() is None
    assert mask.count == FEW_ROWS + 1
    assert mask.cell[FEW_ROWS]


@pytest.mark.parametrize(
    ("positions", "limit", "found"),
    [
        ((), 3, []),
        ((0, 4), 3, [0, 4]),
        ((1, 2, 3), 3, [1, 2, 3]),
        ((0, 1, 2, 3, 4), 2, [0, 1, 2]),
    ],
    ids=["none", "the first and the last", "as many as the limit", "one more than the limit tells of more"],
)
def test_few_true_finds_the_positions(positions: tuple[int, ...], limit: int, found: list[int]) -> None:
    mask = np.zeros(5, dtype=np.bool_)
    mask[list(positions)] = True
    assert few_true(mask, limit) == found


def test_no_position_of_no_rows_is_true() -> None:
    assert few_true(np.zeros(0, dtype=np.bool_), 3) == []
