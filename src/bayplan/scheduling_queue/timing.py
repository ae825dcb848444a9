"""The queue's timing configuration, and the ticks at which it checks the clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Final

WINDOW: Final = 1.0
"""Seconds between two checks for completed backoffs; ends of backoffs are rounded down to such windows."""

LEFTOVER_PERIOD: Final = 30.0
"""Seconds between two checks for pods that have been unschedulable for too long."""

MAX_IN_UNSCHEDULABLE_SECONDS: Final = 300.0
"""After this time a pod is retried even without an event that may make it schedulable."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Durations are in seconds."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_in_unschedulable: float = MAX_IN_UNSCHEDULABLE_SECONDS
    pop_from_backoff: bool = True
    """The feature SchedulerPopFromBackoffQ."""


class Ticker:
    """Ticks at a fixed interval."""

    def __init__(self, first: float, period: float) -> None:
        self._next = first
        self._period = period

    def latest(self, now: float) -> float | None:
        """The latest tick up to now; None if it was returned before. Earlier missed ticks are skipped.

        Callers should use the tick instead of the current time, so that results do not depend on how often
        they check the clock.
        """
        if now < self._next:
            return None
        self._next = self.first_after(now)
        return self._next - self._period

    def first_after(self, moment: float) -> float:
        """The first future tick after the given time."""
        if moment < self._next:
            return self._next
        return self._next + self._period * (floor((moment - self._next) / self._period) + 1)
