"""Columns that grow, and rows that are used again."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.state.columns import FIRST_CAPACITY, Table


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
