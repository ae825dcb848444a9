"""What the configuration says about the queue's times, and the ticks at which it looks at the clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Final

WINDOW: Final = 1.0
"""Seconds between two looks at who is done backing off; ends of waits are cut to such windows."""

LEFTOVER_PERIOD: Final = 30.0
"""Seconds between two looks for pods that have waited too long."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Durations are in seconds."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_in_unschedulable: float = 300.0
    pop_from_backoff: bool = True
    """The feature SchedulerPopFromBackoffQ."""


class Ticker:
    """Moments at equal distances, of which some are behind us."""

    def __init__(self, first: float, period: float) -> None:
        self._next = first
        self._period = period

    def is_due(self, now: float) -> bool:
        """Whether a tick has come since the last one that was due. Ticks that were missed are not made up."""
        if now < self._next:
            return False
        self._next = self.first_after(now)
        return True

    def first_after(self, moment: float) -> float:
        """The first tick to come that lies after a moment."""
        if moment < self._next:
            return self._next
        return self._next + self._period * (floor((moment - self._next) / self._period) + 1)
