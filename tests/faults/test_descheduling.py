"""Lives with descheduling: nothing is lost, budgets are kept, and moves end."""

from __future__ import annotations

import pytest

from tests.effort import LONG_RUN
from tests.faults.descheduling import play


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1, 4), id="some seeds"),
        *(
            pytest.param(range(first, first + 8), marks=LONG_RUN, id=f"seeds {first} to {first + 7}")
            for first in (4, 12)
        ),
    ],
)
def test_nothing_is_lost(seeds: range) -> None:
    reports = [play(seed) for seed in seeds]
    assert {one.seed: one.problems for one in reports if one.problems} == {}
    assert sum(one.counts["moved"] for one in reports)
    assert sum(one.counts["crashes"] for one in reports)
