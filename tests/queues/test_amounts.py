"""The three readings of an absent type."""

from __future__ import annotations

import pytest

from bayplan.queues.amounts import (
    Amounts,
    covers,
    covers_common,
    exceeds_common,
    fits,
    fits_on,
    is_positive,
    left_over,
    lowest,
    minus,
    readable,
    rounded,
    shortfall,
)


@pytest.mark.parametrize(
    ("room", "asked", "in_room", "on_node", "in_limit"),
    [
        pytest.param({"cpu": 2}, {"cpu": 2}, True, True, True, id="exactly"),
        pytest.param({"cpu": 2}, {"cpu": 3}, False, False, False, id="too much"),
        pytest.param({"cpu": 2}, {"cpu": 1, "gpu": 1}, True, False, True, id="an absent type"),
        pytest.param({"cpu": -1}, {"cpu": 0}, True, True, False, id="nothing asked of a negative amount"),
        pytest.param({"cpu": -1}, {"cpu": 1}, False, False, False, id="something of a negative amount"),
        pytest.param({}, {"cpu": 1}, True, False, True, id="no types at all"),
    ],
)
def test_fit(room: Amounts, asked: Amounts, in_room: bool, on_node: bool, in_limit: bool) -> None:
    """An absent type is unlimited in a room, zero on a node and invisible in a limit."""
    assert (fits(room, asked), fits_on(room, asked), covers(room, asked)) == (in_room, on_node, in_limit)


@pytest.mark.parametrize(
    ("left", "right", "covered", "exceeded"),
    [
        pytest.param({"cpu": 2}, {"cpu": 1, "gpu": 9}, True, True, id="less of the common type"),
        pytest.param({"cpu": 2}, {"cpu": 2}, True, False, id="equal"),
        pytest.param({"cpu": 2}, {"cpu": 3}, False, False, id="more"),
        pytest.param({"cpu": 2}, {"gpu": 3}, True, True, id="no common type"),
        pytest.param({"cpu": 2}, {}, True, True, id="nothing on the right"),
        pytest.param({"cpu": 0}, {}, False, False, id="zero and nothing"),
        pytest.param({}, {"cpu": 1}, False, False, id="nothing on the left"),
    ],
)
def test_common_types(left: Amounts, right: Amounts, covered: bool, exceeded: bool) -> None:
    assert (covers_common(left, right), exceeds_common(left, right)) == (covered, exceeded)


def test_arithmetic() -> None:
    """Zeros disappear from differences, and only types of a limit are left of it."""
    assert minus({"cpu": 2, "gpu": 1}, {"cpu": 2}) == {"gpu": 1}
    assert left_over({"cpu": 2}, {"cpu": 3, "gpu": 1}) == {"cpu": -1}
    assert lowest({"cpu": 2}, {"cpu": 1, "gpu": 4}) == {"cpu": 1, "gpu": 4}
    assert lowest(None, None) is None
    assert shortfall({"cpu": 3, "gpu": 1}, {"cpu": 1, "gpu": 1}) == {"cpu": 2}
    assert not is_positive({"cpu": 1, "gpu": -1})


@pytest.mark.parametrize(
    ("kind", "amount", "exact", "in_tables"),
    [
        ("vcore", 2000, "2", "2"),
        ("vcore", 500, "500m", "500m"),
        ("memory", 3 << 30, "3Gi", "3Gi"),
        ("memory", 1_500_000_000, "1500M", "1500M"),
        ("memory", (2 << 30) + 1_500_000_001, "3647483649", "3.4Gi"),
        ("memory", 1023, "1023", "1023"),
        ("memory", 0, "0", "0"),
        ("nvidia.com/gpu", 1_000_001, "1000001", "1000001"),
    ],
)
def test_amounts_are_readable(kind: str, amount: int, exact: str, in_tables: str) -> None:
    assert (readable(kind, amount), rounded(kind, amount)) == (exact, in_tables)
