"""Of equally good nodes the one is taken that Go's container/heap would have at its root."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.framework.points import TieBreak
from bayplan.runtime.feasible import heap_rank, pick
from tests.effort import examples


def picked(totals: list[int]) -> int:
    """What `pick` takes, whether or not total and rank fit into one integer."""
    found = {pick(np.array(totals, dtype=np.int64), bound) for bound in (max(1, *totals) + 1, 2**62)}
    (one,) = found
    return one


def root_of_heap(totals: list[int]) -> int:
    """Upstream's rule, literally: `heap.Init` with "higher total first", and then the first element.

    Init sifts every inner element down, from the last to the first. A child takes its parent's place only if
    it is strictly better, the right one only if it is strictly better than the left one.
    """
    heap = list(range(len(totals)))

    def less(i: int, j: int) -> bool:
        return totals[heap[i]] > totals[heap[j]]

    count = len(heap)
    for start in range(count // 2 - 1, -1, -1):
        parent = start
        while True:
            child = 2 * parent + 1
            if child >= count:
                break
            if child + 1 < count and less(child + 1, child):
                child += 1
            if not less(child, parent):
                break
            heap[parent], heap[child] = heap[child], heap[parent]
            parent = child
    return heap[0]


@pytest.mark.parametrize(
    ("totals", "winner"),
    [
        pytest.param([7], 0, id="one node"),
        pytest.param([1, 1], 0, id="all equal: the first"),
        pytest.param([1, 2, 2], 1, id="two of three: the left child"),
        pytest.param([0, 0, 5, 5, 0], 3, id="the subtree of 1 comes before 2"),
        pytest.param([0, 0, 5, 0, 0, 5, 5], 2, id="within the subtree of 2 its root"),
        pytest.param([0, 0, 0, 0, 9, 9, 9], 4, id="not the lowest index: 4 is below 1, 5 and 6 are below 2"),
        pytest.param([0, 0, 9, 0, 0, 0, 0, 9], 7, id="index 7 is below 3, below 1: before 2"),
        pytest.param([3, 1, 2], 0, id="no tie"),
        pytest.param([-5, -3, -3], 1, id="negative totals"),
    ],
)
def test_winner(totals: list[int], winner: int) -> None:
    assert root_of_heap(totals) == winner
    assert picked(totals) == winner


@pytest.mark.parametrize("bound", [100, 2**62], ids=["one key", "two keys"])
def test_the_first_of_equal_totals_wins_with_first_node(bound: int) -> None:
    totals = np.array([0, 0, 5, 5, 0], dtype=np.int64)
    assert pick(totals, bound, TieBreak.FIRST_NODE) == 2


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=70))
def test_pick_agrees_with_the_heap(totals: list[int]) -> None:
    assert picked(totals) == root_of_heap(totals)


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 2047, 2048, 5000, 20000])
def test_long_lists_agree_with_the_heap(count: int) -> None:
    """The table of ranks grows with the longest list."""
    rng = random.Random(count)
    for most in (0, 1, 30):
        totals = [rng.randint(0, most) for _ in range(count)]
        assert picked(totals) == root_of_heap(totals)


def test_totals_near_the_limit_are_compared_exactly() -> None:
    """Where they do not fit beside the rank, they are compared on their own."""
    totals = [2**62 - 1, 2**62, 2**62, 5]
    assert pick(np.array(totals, dtype=np.int64), 2**62 + 1) == 1


def test_how_two_places_compare_does_not_depend_on_the_length_of_the_list() -> None:
    short = heap_rank(10)[:10].copy()
    heap_rank(100_000)
    assert np.argsort(heap_rank(10)[:10]).tolist() == np.argsort(short).tolist()
