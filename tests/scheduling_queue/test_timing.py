"""Ticker: moments at equal distances."""

from __future__ import annotations

import pytest

from bayplan.scheduling_queue.waiting import Ticker


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        pytest.param(-5.0, 2.0, id="the first one is not brought forward"),
        pytest.param(1.9, 2.0, id="shortly before a tick"),
        pytest.param(2.0, 5.0, id="at a tick: the next one"),
        pytest.param(4.9, 5.0, id="between two ticks"),
        pytest.param(11.0, 14.0, id="several ticks ahead"),
    ],
)
def test_first_after(moment: float, expected: float) -> None:
    assert Ticker(2.0, 3.0).first_after(moment) == expected


def test_a_tick_is_given_out_once_and_missed_ones_are_lost() -> None:
    ticker = Ticker(2.0, 3.0)
    moments = (1.0, 2.0, 2.0, 4.9, 12.0, 12.5, 13.0, 14.0)
    assert [ticker.latest(now) for now in moments] == [None, 2.0, None, None, 11.0, None, None, 14.0]
