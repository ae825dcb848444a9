"""When cycles begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bayplan.deschedule.times import Times, read_schedule
from bayplan.errors import ConfigError


def after(schedule: str, now: str) -> str:
    start = datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()
    found = datetime.fromtimestamp(Times(schedule=read_schedule(schedule)).first(start), UTC)
    return found.strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        pytest.param("*/10 * * * *", "2026-11-18 08:10:00", "2026-11-18 08:20", id="a step"),
        pytest.param("*/10 * * * *", "2026-11-18 08:59:59", "2026-11-18 09:00", id="the next hour"),
        pytest.param("30 2 * * *", "2026-11-18 08:00:00", "2026-11-19 02:30", id="the next day"),
        pytest.param("0 3 * * sun", "2026-11-18 08:00:00", "2026-11-22 03:00", id="a day by name"),
        pytest.param("0 3 * * 7", "2026-11-18 08:00:00", "2026-11-22 03:00", id="7 is Sunday"),
        pytest.param("0 9-17/4 * * 1-5", "2026-11-20 17:00:00", "2026-11-23 09:00", id="a range with a step"),
        pytest.param("15,45 * * * *", "2026-11-18 08:15:30", "2026-11-18 08:45", id="a list"),
        pytest.param("0 0 29 2 *", "2026-11-18 08:00:00", "2028-02-29 00:00", id="a leap day"),
        pytest.param("0 0 1 * mon", "2026-11-18 08:00:00", "2026-11-23 00:00", id="either day"),
        pytest.param("0 0 1 jan *", "2026-11-18 08:00:00", "2027-01-01 00:00", id="a month by name"),
    ],
)
def test_the_next_time(schedule: str, now: str, expected: str) -> None:
    assert after(schedule, now) == expected


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        pytest.param("* * * *", "expected exactly 5 fields, found 4", id="too few fields"),
        pytest.param("61 * * * *", '"61" is not within 0 and 59', id="too large"),
        pytest.param("* * * * someday", '"someday" is not a number', id="no day"),
        pytest.param("*/0 * * * *", "is not within 0 and 59", id="a step of zero"),
        pytest.param("9-5 * * * *", '"9-5" is not within 0 and 59', id="a range backwards"),
        pytest.param("0 0 30 2 *", "never matches", id="a day that does not exist"),
    ],
)
def test_what_is_not_a_schedule(schedule: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("(", r"\(")):
        read_schedule(schedule)


def test_an_interval_counts_from_start_to_start() -> None:
    times = Times(300)
    assert (times.repeats, times.first(10.0), times.next(10.0, 50.0), times.next(10.0, 400.0)) == (
        True,
        10.0,
        310.0,
        400.0,
    )
    assert not Times().repeats


def test_a_schedule_does_not_begin_at_once() -> None:
    times = Times(schedule=read_schedule("*/5 * * * *"))
    assert (times.repeats, times.first(10.0), times.next(300.0, 300.5)) == (True, 300.0, 600.0)
