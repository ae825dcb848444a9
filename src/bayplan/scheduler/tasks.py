"""Starts coroutines beside the loop, cheaply, and logs their exceptions.

Most bindings to a cluster in this process finish without waiting. Such a coroutine is run at once, and only
one that has to wait becomes a task; that costs a tenth of a task each. Bindings are deferred and run many in
a row, not each between two decisions, which makes better use of the processor's caches. A pod that waits at
Permit is parked until its plugins have decided, without a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


class Parking(asyncio.Future[T]):
    """A future that may be set much later. With `eager`, coroutines that wait for it do not become tasks."""


class Tasks:
    """The running coroutines. With `eager` each is run at once as far as it gets without waiting.

    The part before the first wait then runs in the caller's task, or in none. An `asyncio.timeout` entered
    there would cancel the caller. So a scheduler of a cluster over HTTP does not use `eager`, and extenders
    and plugins that are not built in are called `in_task`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, eager: bool) -> None:
        self._loop = loop
        self._eager = eager
        self._running: set[asyncio.Task[None]] = set()
        self.deferred: list[tuple[Coroutine[Any, Any, None], str, str]] = []
        self._parked: set[Coroutine[Any, Any, None]] = set()

    def __len__(self) -> int:
        return len(self._running) + len(self.deferred) + len(self._parked)

    def start(self, work: Coroutine[Any, Any, None], what: str, pod: str) -> None:
        """Runs the coroutine now or as a task, after those that were deferred.

        Exceptions are logged with `what` and the pod's key.
        """
        self.defer(work, what, pod)
        self.run_deferred()

    def defer(self, work: Coroutine[Any, Any, None], what: str, pod: str) -> None:
        """Runs the coroutine at the next `run_deferred`, to be called before the caller awaits anything."""
        if self._eager:
            self.deferred.append((work, what, pod))
        else:
            self._watch(self._loop.create_task(work), what, pod)

    def run_deferred(self) -> None:
        """Runs the deferred coroutines."""
        deferred, self.deferred = self.deferred, []
        for work, what, pod in deferred:
            self._run(work, what, pod)

    def _run(self, work: Coroutine[Any, Any, None], what: str, pod: str) -> None:
        """Runs a coroutine as far as it gets without waiting."""
        try:
            waits_for = work.send(None)
        except StopIteration:
            return
        except Exception:
            _log.exception("%s %s failed", what, pod)
            return
        if isinstance(waits_for, Parking):
            waits_for._asyncio_future_blocking = False  # the protocol of futures: it is being awaited
            self._parked.add(work)
            waits_for.add_done_callback(lambda _: self._resume(work, what, pod))
        else:
            self._watch(self._loop.create_task(_finish(work, waits_for)), what, pod)

    def _resume(self, work: Coroutine[Any, Any, None], what: str, pod: str) -> None:
        if work in self._parked:
            self._parked.discard(work)
            self._run(work, what, pod)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Starts a coroutine. With `eager`, returns None if it has ended, and raises its exceptions."""
        if not self._eager:
            return self._loop.create_task(work)
        try:
            waits_for = work.send(None)
        except StopIteration:
            return None
        return self._loop.create_task(_finish(work, waits_for))

    def in_task(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """The call, in a task of its own from its first step on."""
        if not self._eager:
            return call

        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return await call(*args, **kwargs)

        return lambda *args, **kwargs: self._loop.create_task(run(*args, **kwargs))

    async def together(self, work: Sequence[Coroutine[Any, Any, T]], at_once: int) -> list[T]:
        """Runs coroutines concurrently, so many at a time, and returns their results.

        With `eager`, only those that have to wait become tasks, and all of them are begun.
        """
        results: list[Any] = [None] * len(work)
        if not self._eager:
            left = iter(enumerate(work))

            async def run_some() -> None:
                for place, one in left:
                    results[place] = await one

            await asyncio.gather(*(run_some() for _ in work[:at_once]))
            return results
        waiting: dict[int, asyncio.Task[T]] = {}
        for place, one in enumerate(work):
            try:
                waits_for = one.send(None)
            except StopIteration as end:
                results[place] = end.value
            else:
                waiting[place] = self._loop.create_task(_finish(one, waits_for))
        for place, task in waiting.items():
            results[place] = await task
        return results

    def _watch(self, task: asyncio.Task[None], what: str, pod: str) -> None:
        self._running.add(task)
        task.set_name(f"{what} {pod}")
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def drain(self, leaving: Callable[[], int] = lambda: 0) -> None:
        """Waits until no more than `leaving()` coroutines are left; does not wait for parked ones."""
        while len(self._running) > max(leaving() - len(self._parked), 0):
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def cancel(self) -> None:
        """Cancels everything that is running."""
        for work in (*(work for work, _, _ in self.deferred), *self._parked):
            work.close()
        self.deferred.clear()
        self._parked.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


async def first_to_end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Waits until one of them has ended, and raises its exception."""
    ended, _ = await asyncio.wait(tuple(tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels tasks and waits until they have ended. Their results are ignored."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _finish(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    return await Rest(work, waits_for)


class Rest(Generic[T]):
    """The rest of a coroutine whose first step yielded `waits_for`."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        while True:
            try:
                answer = yield waits_for
            except BaseException as error:
                try:
                    waits_for = self._work.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # what the coroutine returned
            else:
                try:
                    waits_for = self._work.send(answer)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # as above
