"""Replicas are divided one after the other, however many they are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.fleet.karmada.division import webster
from tests.effort import examples

EVEN, ODD = "a", "b"
"""Uids whose FNV-1a hash is even and odd."""


def one_by_one(total: int, weights: dict[str, int], uid: str) -> dict[str, int]:
    seats = dict.fromkeys(weights, 0)
    names = sorted(weights, reverse=uid == ODD)
    for _ in range(total):
        seats[min(names, key=lambda name: (-weights[name] / (2 * seats[name] + 1), seats[name]))] += 1
    return seats


WEIGHTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50), min_size=1).filter(
    lambda weights: any(weights.values())
)


@settings(max_examples=examples(500))
@given(st.integers(0, 300), WEIGHTS, st.sampled_from([EVEN, ODD, ""]))
def test_dividing_many_at_once_gives_the_same(total: int, weights: dict[str, int], uid: str) -> None:
    assert webster(total, weights, uid) == one_by_one(total, weights, uid)


def test_a_million_replicas_are_divided_in_proportion() -> None:
    assert webster(1_000_000, {"a": 1, "b": 3}) == {"a": 250_000, "b": 750_000}
