"""Schedules of cron, for CronJobs and descheduling: five fields, or `@hourly` and so on.

Pure rules; `embedded/controllers/cron_job.py` creates the Jobs. Days follow cron: where both the day of the
month and the day of the week are restricted, a day that matches either is due.

https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_RANGES: Final = (range(60), range(24), range(1, 32), range(1, 13), range(8))
_NAMES: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
    "sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6,
}  # fmt: skip
_PART: Final = re.compile(r"(\*|\?|(\w{1,9})(?:-(\w{1,9}))?)(?:/(\d{1,4}))?")
_MAX_YEARS: Final = 9
"""29 February may be eight years away."""


class ScheduleError(ValueError):
    """A schedule or time zone that cannot be read."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The minutes at which something is due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    """Whether a day has to match `days` and `weekdays`, not either."""
    zone: tzinfo

    def _has_day(self, day: datetime) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month and of_week) if self.both_days else (of_month or of_week)

    def after(self, seconds: float) -> float | None:
        """The first time after another; None if there is none (30 February)."""
        moment = datetime.fromtimestamp(seconds, UTC).astimezone(self.zone).replace(second=0, microsecond=0)
        moment = _later(moment, timedelta(minutes=1))
        last = moment.year + _MAX_YEARS
        while moment.year < last:
            if moment.month not in self.months or not self._has_day(moment):
                moment = (moment + timedelta(days=1)).replace(hour=0, minute=0)
            elif moment.hour not in self.hours:
                moment = _later(moment.replace(minute=0), timedelta(hours=1))
            elif moment.minute not in self.minutes:
                moment = _later(moment, timedelta(minutes=1))
            else:
                return moment.timestamp()
        return None


def _later(moment: datetime, step: timedelta) -> datetime:
    """A step in real time: when clocks go forward an hour is skipped, when they go back it occurs twice."""
    return (moment.astimezone(UTC) + step).astimezone(moment.tzinfo)


def parse_schedule(text: str, zone: str = "") -> Schedule:
    """Raises ScheduleError."""
    fields = _NAMED.get(text.strip(), text).split()
    if len(fields) != len(_RANGES):
        raise ScheduleError(f'expected exactly 5 fields, found {len(fields)}: "{text}"')
    minutes, hours, days, months, weekdays = map(_numbers, fields, _RANGES)
    try:
        where = ZoneInfo(zone) if zone else UTC
    except (KeyError, OSError, ValueError) as error:
        raise ScheduleError(f"unknown time zone {zone}") from error
    both = any(field[0] in "*?" for field in (fields[2], fields[4]))
    return Schedule(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), both, where)


def _numbers(text: str, allowed: range) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ScheduleError(f'"{part}" is not a number, a range or *')
        every, first, last, step = match.groups()
        low = allowed.start if every in "*?" else _number(first)
        high = _number(last) if last else allowed.stop - 1 if every in "*?" or step else low
        if low not in allowed or high not in allowed or low > high or step == "0":
            raise ScheduleError(f'"{part}" is not within {allowed.start} and {allowed.stop - 1}')
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str) -> int:
    number = _NAMES.get(text.lower(), int(text) if text.isascii() and text.isdecimal() else None)
    if number is None:
        raise ScheduleError(f'"{text}" is not a number')
    return number


def last_due(schedule: Schedule, since: float, now: float) -> float | None:
    """The last time that was due after `since`, until `now`; None if none was.

    From a time long ago it starts at the last hundred days: schedules that are rarer than that and were
    missed for so long start with their next time.
    """
    found = None
    due = schedule.after(max(since, now - 100 * 86400))
    step = 1.0
    while due is not None and due <= now:
        found = due
        # A schedule of every minute that was missed for weeks is not walked through minute by minute.
        jump = schedule.after(due + step)
        if jump is not None and jump <= now:
            due, step = jump, step * 2
        else:
            due, step = schedule.after(due), 1.0
    return found
