"""A mask that is changed in place tells which rows have changed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bayplan.clock import Clock, Freshness
from bayplan.state.columns import FEW_ROWS, RowMask, few_true

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
