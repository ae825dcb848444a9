"""Schedules of CronJobs."""

from __future__ import annotations

from datetime import datetime

import pytest

from bayplan.cron import ScheduleError, last_due, parse_schedule


def seconds(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    ("schedule", "zone", "since", "expected"),
    [
        ("* * * * *", "", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "", "2026-01-01T00:45:00", "2026-01-01T01:00:00"),
        ("5,10-12/2 3 * * *", "", "2026-01-01T03:10:00", "2026-01-01T03:12:00"),
        ("@hourly", "", "2026-01-01T00:00:00", "2026-01-01T01:00:00"),
        ("@weekly", "", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("0 0 1 * mon", "", "2026-01-01T00:00:00", "2026-01-05T00:00:00"),
        ("0 0 */2 * 1", "", "2026-01-01T00:00:00", "2026-01-05T00:00:00"),
        ("0 0 * * 7", "", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("0 0 29 feb *", "", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-30T00:30:00"),
        ("0 9 * * *", "America/New_York", "2026-07-01T00:00:00", "2026-07-01T13:00:00"),
    ],
)
def test_the_next_time(schedule: str, zone: str, since: str, expected: str) -> None:
    assert parse_schedule(schedule, zone).after(seconds(since)) == seconds(expected)


def test_a_day_that_never_comes() -> None:
    assert parse_schedule("0 0 30 2 *").after(seconds("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"])
def test_what_is_not_a_schedule(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(text)


def test_an_unknown_time_zone() -> None:
    with pytest.raises(ScheduleError, match="Mars"):
        parse_schedule("* * * * *", "Mars/Olympus")


@pytest.mark.parametrize("hours", [0, 1, 7, 24 * 30])
def test_of_the_times_that_were_missed_the_last_one_counts(hours: int) -> None:
    now = seconds("2026-06-01T12:07:30")
    due = last_due(parse_schedule("*/10 * * * *"), now - hours * 3600 - 600, now)
    assert due == seconds("2026-06-01T12:00:00")
    assert last_due(parse_schedule("*/10 * * * *"), now - 60, now) is None
