"""The keys to reconcile: each once, some later, failed ones again after a while.

A plain state machine without timers: the time is passed in, and it returns when it is due next.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Final, Generic, TypeVar

FIRST_RETRY_SECONDS: Final = 0.005
MAX_RETRY_SECONDS: Final = 1000.0
"""Retries as client-go spaces them: doubled from 5 ms on, up to a quarter of an hour."""

ItemT = TypeVar("ItemT", bound=Hashable)


class WorkQueue(Generic[ItemT]):
    """Items in the order in which they were added. Adding one that waits already changes nothing."""

    def __init__(self) -> None:
        self._ready: dict[ItemT, None] = {}
        self._due: dict[ItemT, float] = {}
        self._heap: list[tuple[float, int, ItemT]] = []
        self._order = count()
        self._failures: dict[ItemT, int] = {}

    def add(self, item: ItemT) -> None:
        """Makes an item due now."""
        self._ready[item] = None

    def add_at(self, item: ItemT, due: float) -> None:
        """Makes an item due at a time. The earlier of two times counts: a reconcile can return the later one
        again."""
        known = self._due.get(item)
        if known is None or due < known:
            self._due[item] = due
            heapq.heappush(self._heap, (due, next(self._order), item))

    def retry(self, item: ItemT, now: float) -> float:
        """Adds an item after a failure, with exponential backoff. Returns the delay in seconds."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 30), MAX_RETRY_SECONDS)
        self.add_at(item, now + delay)
        return delay

    def succeeded(self, item: ItemT) -> None:
        """Resets the backoff."""
        self._failures.pop(item, None)

    def pop(self, now: float) -> ItemT | None:
        """The next item, or None if nothing is due. Other times set for it are forgotten."""
        self._ripen(now)
        if not self._ready:
            return None
        item = next(iter(self._ready))
        del self._ready[item]
        self._due.pop(item, None)
        return item

    def has_ready(self, now: float) -> bool:
        """Whether something is ready at this time."""
        self._ripen(now)
        return bool(self._ready)

    def next_due(self) -> float | None:
        """The next time set with `add_at`; None if there is none. Items that are ready now do not count."""
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)  # it was reconciled earlier
        return heap[0][0] if heap else None

    def _ripen(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            item = heapq.heappop(self._heap)[2]
            del self._due[item]
            self._ready[item] = None
