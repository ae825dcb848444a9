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

STEPS_PER_SECOND: Final = 500_000
"""Of a `StepClock`: about as many as a search makes in a second on a fast machine."""

ATTEMPT_SHARE: Final = 0.2
"""The limit of an attempt, as a part of the limit of a node: 2 of 10 seconds."""

EXCEEDED: Final = "filter operation aborted: context deadline exceeded"


class SearchClock(Protocol):
    """Measures searches."""

    def advance(self, steps: int) -> float:
        """The time in seconds, after a search made this number of further steps."""


class StepClock:
    """Time passes with the steps of searches, and not otherwise."""

    def __init__(self) -> None:
        self._steps = 0

    def advance(self, steps: int) -> float:
        self._steps += steps
        return self._steps / STEPS_PER_SECOND


class ElapsedTime:
    """Time as a clock shows it, for live schedulers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def advance(self, steps: int) -> float:
        return self._clock()


class SearchBudget:
    """The limits of one scheduling attempt after the other.

    Args:
        node_seconds: the limit of one search; 0 for no limit, also of the attempt.
    """

    __slots__ = ("_clock", "_counted", "_due", "_left", "_started", "attempt_seconds", "node_seconds")

    def __init__(self, clock: SearchClock, node_seconds: float = 0.0) -> None:
        self._clock = clock
        self.node_seconds = node_seconds or inf
        self.attempt_seconds = self.node_seconds * ATTEMPT_SHARE
        self._left = self.attempt_seconds
        self._started = self._due = 0.0
        self._counted = 0

    def start_attempt(self) -> None:
        self._left = self.attempt_seconds

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
            raise AllocationLimitError(EXCEEDED)

    def end_search(self, steps: int) -> None:
        self._left -= self._advance(steps) - self._started

    def _advance(self, steps: int) -> float:
        counted, self._counted = self._counted, steps
        return self._clock.advance(steps - counted)
