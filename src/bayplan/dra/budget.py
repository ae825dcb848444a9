"""How long searches for devices may take: on one node, and in one scheduling attempt.

kube-scheduler limits the time of a search on each node (`filterTimeout`). Nodes are searched one after the
other here, so there is a limit for all nodes of an attempt, too.

A live scheduler measures the time that passes. Everything else (`decide`, `explain`, what-if, simulations,
replays, benchmarks, tests) counts steps, so that the same input has the same answer on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from bayplan.errors import AllocationLimitError

LIVE_ATTEMPT_SECONDS: Final = 0.25
"""The limit of an attempt of a live scheduler: probes and the renewal of the lease wait as long."""

MIN_ATTEMPT_SECONDS: Final = 0.02
"""What an attempt of a live scheduler may always search: enough for ordinary claims."""

LIVE_SHARE: Final = 0.2
"""The part of the time that searches without a result may take, once they have taken `MAX_DEBT_SECONDS`."""

MAX_DEBT_SECONDS: Final = 1.0

STEPS_PER_SECOND: Final = 500_000
"""Of a `StepClock`: about as many as a search makes in a second on a fast machine."""

ATTEMPT_SHARE: Final = 0.2
"""The limit of an attempt, as a part of the limit of a node: 2 of 10 seconds."""

EXCEEDED: Final = "filter operation aborted: context deadline exceeded"


class SearchClock(Protocol):
    """Measures searches."""

    is_live: bool
    """Whether time passes by itself, and others wait while a search takes long."""

    def advance(self, steps: int) -> float:
        """The time in seconds, after a search made this number of further steps."""


class StepClock:
    """Time passes with the steps of searches, and not otherwise."""

    is_live = False

    def __init__(self) -> None:
        self._steps = 0

    def advance(self, steps: int) -> float:
        self._steps += steps
        return self._steps / STEPS_PER_SECOND


class ElapsedTime:
    """Time as a clock shows it, for live schedulers."""

    is_live = True

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def advance(self, steps: int) -> float:
        return self._clock()


class SearchBudget:
    """The limits of one scheduling attempt after the other.

    In a live scheduler, searches that were cut off are a debt, which decreases with the time. While it is
    large, attempts may search for a moment only: however many pods have expensive claims, and however
    different these are, most of the time is left for other pods.

    Args:
        node_seconds: the limit of one search; 0 for no limit, also of the attempt.
    """

    __slots__ = (
        "_clock",
        "_counted",
        "_debt",
        "_due",
        "_left",
        "_limit",
        "_paid_at",
        "_started",
        "attempt_seconds",
        "is_cut_off",
        "is_repeatable",
        "node_seconds",
    )

    def __init__(self, clock: SearchClock, node_seconds: float = 0.0) -> None:
        self._clock = clock
        self.node_seconds = node_seconds or inf
        self.attempt_seconds = self.node_seconds * ATTEMPT_SHARE
        if clock.is_live and node_seconds:
            self.attempt_seconds = min(self.attempt_seconds, LIVE_ATTEMPT_SECONDS)
        self._limit = self._left = self.attempt_seconds
        self._started = self._due = self._debt = self._paid_at = 0.0
        self._counted = 0
        self.is_cut_off = False
        """Whether one search took most of what this attempt may take. The next one will hardly do better."""
        self.is_repeatable = False
        """Whether it took everything, and would do so in every attempt."""

    def start_attempt(self) -> None:
        self.is_cut_off = self.is_repeatable = False
        self._limit = self.attempt_seconds
        if self._debt:
            now = self._clock.advance(0)
            self._debt = max(self._debt - (now - self._paid_at) * LIVE_SHARE, 0.0)
            self._paid_at = now
            if self._debt >= MAX_DEBT_SECONDS:
                self._limit = min(self._limit, MIN_ATTEMPT_SECONDS)
        self._left = self._limit

    @property
    def is_used_up(self) -> bool:
        """Whether this attempt may not search any more."""
        return self._left <= 0

    def start_search(self) -> None:
        self._counted = 0
        self._started = self._clock.advance(0)
        self._due = self._started + min(self.node_seconds, self._left)

    def check(self, steps: int) -> None:
        """Checks the limits, after this number of steps of the search.

        Raises:
            AllocationLimitError: the limit of the node or of the attempt is exceeded.
        """
        if self._advance(steps) > self._due:
            self.is_cut_off = self._left >= self._limit / 2
            self.is_repeatable = self._left >= self._limit and not self._clock.is_live
            raise AllocationLimitError(EXCEEDED)

    def end_search(self, steps: int) -> None:
        now = self._advance(steps)
        self._left -= now - self._started
        if self._left <= 0 and self._clock.is_live:
            if not self._debt:
                self._paid_at = now
            self._debt = min(self._debt + self._limit, 2 * MAX_DEBT_SECONDS)

    def _advance(self, steps: int) -> float:
        counted, self._counted = self._counted, steps
        return self._clock.advance(steps - counted)
