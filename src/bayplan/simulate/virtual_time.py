"""An event loop with a virtual clock: an hour of cluster life takes a moment, and is repeatable.

Code that takes its time from the loop runs here unchanged. The clock does not move while any task is ready
and jumps to the next timer when none is. The loop is asyncio's own; only its selector, where an idle loop
waits, is replaced. There are no sockets and no threads in virtual time.

Because the loop knows when nothing is left to do, it can detect quiescence (`quiescent`) and deadlocks
(`DeadlockError`).
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from bayplan.errors import BayplanError

T = TypeVar("T")

DEFAULT_EPOCH: Final = 1_767_225_600.0
"""Default start of wall time: 2026-01-01T00:00:00Z."""

DEFAULT_LIMIT: Final = 30 * 24 * 3600.0
"""Seconds of virtual time after which a run counts as endless."""

SPIN_LIMIT: Final = 1_000_000
"""Iterations of the loop without a step of the clock after which a run counts as endless."""


class VirtualTimeError(BayplanError):
    """A run in virtual time cannot end; the message says what waits for what."""


class DeadlockError(VirtualTimeError):
    """Tasks wait, but no timer is set and nothing is ready."""


class _Jump(selectors.BaseSelector):
    """The selector, where a loop waits for I/O. There is none: waiting advances the clock."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None
        self._own: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert self.loop is not None
        self.loop.wait(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._own:
            raise VirtualTimeError("there are no sockets and no pipes in virtual time")
        # Each loop's own socket, through which other threads wake it.
        key = self._own[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._own.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._own


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a clock of its own, which starts at 0; wall time is `epoch` plus that."""

    def __init__(self, *, epoch: float = DEFAULT_EPOCH, limit: float = DEFAULT_LIMIT) -> None:
        self._now = 0.0
        self._epoch = epoch
        self._limit = self._end = limit
        self._rounds = 0
        self._quiet: deque[asyncio.Future[None]] = deque()
        jump = _Jump()
        super().__init__(jump)
        jump.loop = self

    def time(self) -> float:
        return self._now

    def wall_time(self) -> float:
        """Seconds since the epoch, for what is written into objects."""
        return self._epoch + self._now

    def busy(self, seconds: float) -> None:
        """Advances the clock while a task computes; no other task runs."""
        self._now += seconds

    async def quiescent(self) -> None:
        """Waits until no other task is ready and no timer is due. The clock does not move meanwhile.

        If several tasks wait for this, they continue one at a time.
        """
        future = self.create_future()
        self._quiet.append(future)
        await future

    def wait(self, timeout: float | None) -> None:
        """Advances the clock to the next timer, unless a task is ready (`timeout` is 0)."""
        if timeout is not None and timeout <= 0:
            self._rounds += 1
            if self._rounds > SPIN_LIMIT:
                self._rounds = 0  # as many again for the cancellation of tasks
                raise VirtualTimeError(
                    f"{SPIN_LIMIT} rounds of the loop, and it is still {self._now} s: {self._tasks()}"
                )
            return
        if self._wake_one():
            return
        if timeout is None:
            raise DeadlockError(f"nothing will ever happen: no timer is set and {self._tasks()}")
        self._rounds = 0
        self._now += timeout
        if self._now > self._end:
            self._end += self._limit  # as long again for the cancellation of tasks
            raise VirtualTimeError(f"not over after {self._limit} s of virtual time: {self._tasks()}")

    def _wake_one(self) -> bool:
        while self._quiet:
            future = self._quiet.popleft()
            if not future.done():
                future.set_result(None)
                return True
        return False

    def _tasks(self) -> str:
        waiting = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        if not waiting:
            return "no task waits"
        places = "; ".join(f"{task.get_name()} in {_place(task.get_coro())}" for task in waiting)
        return f"{len(waiting)} wait{'s' if len(waiting) == 1 else ''}: {places}"


def _place(awaited: Any) -> str:
    """The functions that a task waits in, outermost first: `run (loop.py:12) > Event.wait (locks.py:213)`."""
    places: list[str] = []
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            code = frame.f_code
            places.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return " > ".join(places)


def current_loop() -> VirtualLoop:
    """The virtual loop that runs the caller.

    Raises:
        VirtualTimeError: the loop has real time.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise VirtualTimeError("this needs virtual time; run it with run_virtual")
    return loop


async def quiescent() -> None:
    """Waits until all other tasks have done what there is to do at this virtual time."""
    await current_loop().quiescent()


def run_until_quiescent(loop: VirtualLoop) -> None:
    """The same from outside: runs the loop until there is nothing to do at this time."""
    loop.run_until_complete(loop.quiescent())


def run_virtual(
    main: Coroutine[Any, Any, T], *, start: float = DEFAULT_EPOCH, limit: float = DEFAULT_LIMIT
) -> T:
    """Runs a coroutine to completion in virtual time; wall time begins at `start`.

    What it leaves running is cancelled, as with `asyncio.run`.

    Raises:
        DeadlockError: it waits for something that will never happen.
        VirtualTimeError: it is not over after `limit` seconds of virtual time, or the clock does not move.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(epoch=start, limit=limit)) as runner:
        return runner.run(main)
