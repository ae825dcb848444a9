"""The loop that runs controllers, and its work queue: changes in, reconciles out, one at a time.

It is one task for all controllers. It sleeps until something is written or due, so an idle cluster costs
nothing, however large it is. The queue has each key once, some later, and failed ones again after a while; it
is a plain state machine without timers: the time is passed in, and it returns when it is due next.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from bayplan.embedded.controllers.cluster import ChangeHandler, Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import ConflictError, NotFoundError

_log = logging.getLogger(__name__)

_MAX_RECONCILES: Final = 50
_MAX_SECONDS: Final = 0.01
"""Reconciles, or seconds, after which other tasks run: requests, the scheduler."""
_FORBIDDEN: Final = 403
_EARLY: Final = 1e-6
"""A timer may fire early by a rounding error; its item counts as due then."""


class Work(NamedTuple):
    """A key for a controller to reconcile."""

    controller: Controller
    key: str


class Loop:
    """Runs some controllers on one cluster."""

    def __init__(self, cluster: Cluster, controllers: Sequence[Controller]) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[Work] = WorkQueue()
        self._wake = asyncio.Event()
        self._failing: dict[Work, str] = {}
        """The errors of items whose last reconcile failed."""
        for controller in controllers:
            for resource, keys_of in controller.watches().items():
                cluster.add_handler(resource, self._handler(controller, keys_of))
            if (keys_of_any := controller.watches_all()) is not None:
                cluster.add_handler_for_all(self._handler(controller, keys_of_any))

    def _handler(self, controller: Controller, keys_of: KeyMapper) -> ChangeHandler:
        def handler(change: ObjectChange) -> None:
            for key in keys_of(change):
                self._add(Work(controller, key))

        return handler

    def add(self, controller: Controller, key: str) -> None:
        """Has a key reconciled for another reason than a change of an object."""
        self._add(Work(controller, key))
        self._wake.set()

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do now; what is due later does not count."""
        return self._wake.is_set() or self._queue.has_ready(asyncio.get_running_loop().time())

    def _add(self, work: Work) -> None:
        if work.controller.batch_seconds:
            now = asyncio.get_running_loop().time()
            self._queue.add_at(work, now + work.controller.batch_seconds)
        else:
            self._queue.add(work)

    async def run(self) -> None:
        """Runs until cancelled."""
        loop = asyncio.get_running_loop()
        wake = self._wake
        unsubscribe = self._cluster.watch_writes(wake.set)
        try:
            while True:
                wake.clear()
                if self._work(loop):
                    await asyncio.sleep(0)
                    continue
                await self._sleep(wake, loop)
        finally:
            unsubscribe()

    async def _sleep(self, wake: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        due = self._queue.next_due()
        timer = None if due is None else loop.call_at(due, wake.set)
        try:
            await wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _work(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Reconciles what is due, up to the limits. Returns whether anything was."""
        begun = now = loop.time()
        for done in range(_MAX_RECONCILES):
            self._cluster.sync()
            work = self._queue.pop(now + _EARLY)
            if work is None:
                return done > 0
            self._reconcile(work, now)
            now = loop.time()
            if now - begun > _MAX_SECONDS:
                break
        return True

    def _reconcile(self, work: Work, now: float) -> None:
        controller, key = work
        try:
            again = controller.reconcile(key)
        except (ConflictError, NotFoundError) as error:
            # Something changed during the reconcile; the next one sees it.
            delay = self._queue.retry(work, now)
            _log.debug("%s: %s: %s, again in %.3f s", controller.name, key, error, delay)
        except StatusError as error:
            delay = self._queue.retry(work, now)
            # Rejections by a quota or limit have been reported as an event; anything else is our fault.
            level = logging.DEBUG if error.code == _FORBIDDEN else logging.ERROR
            _log.log(level, "%s: %s: %s, again in %.3f s", controller.name, key, error, delay)
        except Exception as error:
            delay = self._queue.retry(work, now)
            problem = f"{type(error).__name__}: {error}"
            # The error of an invalid object is the same each time: it is logged once.
            level = logging.DEBUG if self._failing.get(work) == problem else logging.ERROR
            self._failing[work] = problem
            _log.log(level, "%s: %s failed, again in %.3f s", controller.name, key, delay, exc_info=True)
        else:
            self._failing.pop(work, None)
            self._queue.succeeded(work)
            if again is not None:
                self._queue.add_at(work, now + again)


async def run(cluster: Cluster, controllers: Iterable[Controller]) -> None:
    """Runs controllers until cancelled."""
    await Loop(cluster, list(controllers)).run()


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
