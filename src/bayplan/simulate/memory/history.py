"""The recent changes of the objects of one kind, and their watchers.

A watcher is only a cursor into the history: it costs no memory, however slow it is, and an event is stored
once for all of them. The history is a ring: it drops its older half when it is full. A watcher that still
needed that gets a 410 and has to list again, as with a real API server.

A watcher that is resumed gets everything since then: a task switch is paid for per batch, not per event.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from bayplan.api.cluster_api import ObjectT, WatchEvent
from bayplan.simulate.memory.writes import too_old


class Versioned(Protocol):
    """Something with a resourceVersion."""

    @property
    def resource_version(self) -> str: ...


EventT = TypeVar("EventT", bound=Versioned)


class History(Generic[EventT]):
    """The events of one kind, oldest first, in the order of their resourceVersions."""

    compacted: int
    """Events up to this resourceVersion may be dropped."""

    def __init__(
        self,
        size: int,
        compacted: int = 0,
        *,
        size_of: Callable[[EventT], int] | None = None,
        max_bytes: int = 0,
    ) -> None:
        self.compacted = compacted
        self._size = size
        self._full = 2 * size
        self._size_of = size_of
        self._max_bytes = max_bytes
        self._bytes = 0
        self._events: list[EventT] = []
        self._forgotten = 0
        self._waiting: list[asyncio.Future[None]] = []

    def append(self, event: EventT) -> None:
        events = self._events
        events.append(event)
        if self._waiting:
            self._wake()
        if self._size_of is not None:
            self._bytes += self._size_of(event)
        if len(events) >= self._full:
            self._forget(self._size)
        elif self._bytes > 2 * self._max_bytes:
            self._forget_bytes(self._max_bytes)

    @property
    def bytes(self) -> int:
        """The size of all events."""
        return self._bytes

    def shrink(self) -> None:
        """Drops the older half of its bytes; the latest event stays."""
        self._forget_bytes(self._bytes // 2)

    @property
    def last(self) -> EventT | None:
        return self._events[-1] if self._events else None

    def before_last(self, count: int) -> EventT | None:
        """The event that `count` others have followed; None if it was dropped."""
        return self._events[-1 - count] if len(self._events) > count else None

    def compact(self, version: int) -> None:
        """Drops everything; `version` is the current resourceVersion."""
        self._forget(len(self._events))
        self.compacted = version

    def position_after(self, version: int) -> int:
        """The cursor of a watcher that has everything up to a resourceVersion.

        Raises:
            GoneError: later events have been dropped.
        """
        if version < self.compacted:
            raise too_old(str(version), self.compacted)
        return self._forgotten + bisect_right(self._events, version, key=_version_of)

    def read(self, cursor: int) -> Sequence[EventT] | None:
        """All events from the cursor on; None if some of them have been dropped."""
        index = cursor - self._forgotten
        return self._events[index:] if index >= 0 else None

    async def changed(self) -> None:
        """Waits for the next event."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _forget_bytes(self, max_bytes: int) -> None:
        """Drops all but the latest `max_bytes`; the latest event stays."""
        assert self._size_of is not None
        left, count = self._bytes, 0
        for event in self._events[:-1]:
            if left <= max_bytes:
                break
            left -= self._size_of(event)
            count += 1
        self._forget(count)

    def _forget(self, count: int) -> None:
        if count:
            if self._size_of is not None:
                self._bytes -= sum(map(self._size_of, self._events[:count]))
            self.compacted = _version_of(self._events[count - 1])
            self._forgotten += count
            del self._events[:count]


def _version_of(event: Versioned) -> int:
    return int(event.resource_version)


class Watch(AsyncIterator[Sequence[WatchEvent[ObjectT]]]):
    """One watcher's position in a history. It never ends by itself."""

    def __init__(
        self, history: History[WatchEvent[ObjectT]], resource_version: str, position: Callable[[str], int]
    ) -> None:
        self._history = history
        self._version = resource_version
        self._position = position
        self._cursor = -1
        self._over = False

    async def __anext__(self) -> Sequence[WatchEvent[ObjectT]]:
        if self._over:
            raise StopAsyncIteration
        if self._cursor < 0:
            self._cursor = self._start()
        history = self._history
        while not (batch := history.read(self._cursor)):
            if batch is None:
                self._over = True
                raise too_old(self._version, history.compacted)
            await history.changed()
        self._cursor += len(batch)
        self._version = batch[-1].resource_version
        return batch

    def _start(self) -> int:
        """Errors are raised on the first read, as with a server that is reached over a network."""
        self._over = True
        cursor = self._position(self._version)
        self._over = False
        return cursor
