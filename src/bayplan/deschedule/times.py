"""When cycles begin: once, every interval, or by a cron schedule.

A schedule has the five fields of cron, in UTC: minute, hour, day of month, month, day of week (0 and 7 are
Sunday). Fields are `*`, numbers, names of months and days, ranges `1-5`, steps `*/10`, and lists of these. If
both days are restricted, one of them has to match, as in cron.
"""

from __future__ import annotations

import calendar
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from bayplan.errors import ConfigError

_MONTHS: Final = {name.lower(): i for i, name in enumerate(calendar.month_abbr) if name}
_DAYS: Final = {name.lower(): (i + 1) % 7 for i, name in enumerate(calendar.day_abbr)}
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_SEARCHED_DAYS: Final = 366 * 8
"""February 29 may be eight years away."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The values of each field that match."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both kinds of days are restricted: one suffices."""

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Raises ConfigError: it is not a schedule, or never matches."""
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise ConfigError(f"schedule {text!r}: expected 5 fields, found {len(parts)}")
        minutes, hours, days, months, weekdays = (
            _values(part, *field, text) for part, field in zip(parts, _FIELDS, strict=True)
        )
        either = not parts[2].startswith("*") and not parts[4].startswith("*")
        made = cls(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)
        made.next_after(0.0)
        return made

    def next_after(self, now: float) -> float:
        """The first time that matches, after this one.

        Raises:
            ConfigError: there is none.
        """
        at = datetime.fromtimestamp(math.floor(now / 60) * 60, UTC) + timedelta(minutes=1)
        for _ in range(_SEARCHED_DAYS):
            if self._has_day(at):
                for hour in sorted(one for one in self.hours if one >= at.hour):
                    first = at.minute if hour == at.hour else 0
                    minute = min((one for one in self.minutes if one >= first), default=None)
                    if minute is not None:
                        return at.replace(hour=hour, minute=minute).timestamp()
            at = at.replace(hour=0, minute=0) + timedelta(days=1)
        raise ConfigError("the schedule never matches")

    def _has_day(self, at: datetime) -> bool:
        if at.month not in self.months:
            return False
        in_month, in_week = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return (in_month or in_week) if self.either_day else (in_month and in_week)


def _values(part: str, name: str, low: int, high: int, names: dict[str, int], text: str) -> frozenset[int]:
    def number(word: str) -> int:
        value = names.get(word.lower(), int(word) if word.isascii() and word.isdigit() else -1)
        if not low <= value <= high:
            raise ConfigError(f"schedule {text!r}: {word!r} is not a {name} from {low} to {high}")
        return value

    found: set[int] = set()
    for one in part.split(","):
        span, slash, step_text = one.partition("/")
        step = int(step_text) if step_text.isascii() and step_text.isdigit() else 0
        if slash and not step:
            raise ConfigError(f"schedule {text!r}: {step_text!r} is not a step")
        first, dash, last = span.partition("-")
        if span == "*":
            start, end = low, high
        else:
            start = number(first)
            end = number(last) if dash else high if slash else start
        if start > end:
            raise ConfigError(f"schedule {text!r}: {span!r} ends before it begins")
        found.update(range(start, end + 1, step or 1))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Times:
    """When cycles begin. Neither interval nor schedule: one cycle, at once."""

    interval_seconds: float = 0.0
    """From the start of a cycle to the start of the next; the first begins at once."""
    schedule: Schedule | None = None

    @property
    def repeats(self) -> bool:
        return self.schedule is not None or self.interval_seconds > 0

    def first(self, now: float) -> float:
        return now if self.schedule is None else self.schedule.next_after(now)

    def next(self, started: float, now: float) -> float:
        """When the next cycle begins; never before now."""
        if self.schedule is not None:
            return self.schedule.next_after(now)
        return max(now, started + self.interval_seconds)
