"""The loop that runs controllers: word of changes in, looks out, one at a time.

One task for all of them. It sleeps until something is written or something is due, so a cluster at rest
costs nothing, however large it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bayplan.embedded.controllers.cluster import Cluster, Notice, Seen
from bayplan.embedded.controllers.controller import Concerns, Controller
from bayplan.embedded.controllers.work_queue import WorkQueue
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import ConflictError, NotFoundError

_log = logging.getLogger(__name__)

_TURN: Final = 50
_TURN_SECONDS: Final = 0.01
"""Looks, or seconds, after which others get a turn: requests, the scheduler."""
_FORBIDDEN: Final = 403
_EARLY: Final = 1e-6
"""A timer may go off a rounding error before its time; what it was for is due then all the same."""


class Work(NamedTuple):
    """Something for a controller to look at."""

    controller: Controller
    key: str


class Loop:
    """Runs some controllers on one cluster."""

    def __init__(self, cluster: Cluster, controllers: Sequence[Controller]) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[Work] = WorkQueue()
        self._wake = asyncio.Event()
        self._failing: dict[Work, str] = {}
        """What failed at the last look, and how."""
        for controller in controllers:
            for resource, concerns in controller.watches().items():
                cluster.tell(resource, self._notice(controller, concerns))
            if (concerns_of_all := controller.watches_all()) is not None:
                cluster.notify_all(self._notice(controller, concerns_of_all))

    def _notice(self, controller: Controller, concerns: Concerns) -> Notice:
        def notice(seen: Seen) -> None:
            for key in concerns(seen):
                self._add(Work(controller, key))

        return notice

    def add(self, controller: Controller, key: str) -> None:
        """Has a controller look at something for a reason that is not a change of an object."""
        self._add(Work(controller, key))
        self._wake.set()

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do now; what is due later does not count."""
        return self._wake.is_set() or self._queue.has_ready(asyncio.get_running_loop().time())

    def _add(self, work: Work) -> None:
        if work.controller.settles_for:
            now = asyncio.get_running_loop().time()
            self._queue.add_at(work, now + work.controller.settles_for)
        else:
            self._queue.add(work)

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        loop = asyncio.get_running_loop()
        wake = self._wake
        unfollow = self._cluster.follow(wake.set)
        try:
            while True:
                wake.clear()
                if self._work(loop):
                    await asyncio.sleep(0)
                    continue
                await self._sleep(wake, loop)
        finally:
            unfollow()

    async def _sleep(self, wake: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        due = self._queue.next_due()
        timer = None if due is None else loop.call_at(due, wake.set)
        try:
            await wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _work(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Does what is due, up to a turn's worth. Returns whether there was anything."""
        begun = now = loop.time()
        for done in range(_TURN):
            self._cluster.sync()
            work = self._queue.pop(now + _EARLY)
            if work is None:
                return done > 0
            self._look(work, now)
            now = loop.time()
            if now - begun > _TURN_SECONDS:
                break
        return True

    def _look(self, work: Work, now: float) -> None:
        controller, key = work
        try:
            again = controller.reconcile(key)
        except (ConflictError, NotFoundError) as error:
            # Something changed while it was being looked at; the next look sees it.
            delay = self._queue.retry(work, now)
            _log.debug("%s: %s: %s, again in %.3f s", controller.name, key, error, delay)
        except StatusError as error:
            delay = self._queue.retry(work, now)
            # What a quota or a limit forbids has been told in an event; anything else is a fault of ours.
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
