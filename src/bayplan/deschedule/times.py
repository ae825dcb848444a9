"""When cycles begin: once, every interval, or by a cron schedule in UTC."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.cron import Schedule, ScheduleError, parse_schedule
from bayplan.errors import ConfigError


def read_schedule(text: str) -> Schedule:
    """The schedule of cycles.

    Raises:
        ConfigError: it is not a schedule, or never matches.
    """
    try:
        schedule = parse_schedule(text)
    except ScheduleError as error:
        raise ConfigError(f"schedule {text!r}: {error}") from error
    if schedule.after(0.0) is None:
        raise ConfigError(f"schedule {text!r} never matches")
    return schedule


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
        return now if self.schedule is None else self._due_after(now)

    def next(self, started: float, now: float) -> float:
        """When the next cycle begins; never before now."""
        return max(now, started + self.interval_seconds) if self.schedule is None else self._due_after(now)

    def _due_after(self, now: float) -> float:
        assert self.schedule is not None
        due = self.schedule.after(now)
        assert due is not None, "a schedule that never matches was rejected when it was read"
        return due
