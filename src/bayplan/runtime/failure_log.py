"""Logs the tracebacks of failing plugins: each distinct one at most once a minute.

A plugin that fails for one pod usually fails for all of them, thousands of times. The next line contains the
number of those that were suppressed. Tracebacks are the same if they come from the same lines of code: what
the exception says often names the pod.

Commands that answer questions report failures with the result instead (`FailureLog.collected`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

MIN_SECONDS: Final = 60.0
MAX_TRACEBACKS: Final = 1000
"""The maximum number of distinct tracebacks that are remembered. Beyond it, all are dropped."""


class PluginFailure(NamedTuple):
    """A failure of a plugin: an exception, or a wrong result."""

    message: str
    traceback: str = ""


class FailureLog:
    """The failures of the plugins of one scheduler: which tracebacks were logged, and when."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, int]] = {}
        self._collected: dict[str, PluginFailure] | None = None

    def log(self, log: logging.Logger, message: str, traceback: str = "", now: float | None = None) -> None:
        """Logs the message with its traceback, unless the same traceback was logged within a minute.

        `now` is by default the time of the running loop, so it may be virtual.
        """
        key = _lines_of_code(traceback) or traceback or message
        if self._collected is not None:
            self._collected.setdefault(key, PluginFailure(message, traceback))
            return
        now = _now() if now is None else now
        logged_at, suppressed = self._logged.get(key, (-MIN_SECONDS, 0))
        # A loop with virtual time may have started again at 0.
        if logged_at <= now < logged_at + MIN_SECONDS:
            self._logged[key] = (logged_at, suppressed + 1)
            return
        if len(self._logged) >= MAX_TRACEBACKS:
            self._logged.clear()
        self._logged[key] = (now, 0)
        again = f" ({suppressed} times more since it was last logged)" if suppressed else ""
        log.error("%s%s%s", message, again, f"\n{traceback}" if traceback else "", stacklevel=2)

    @contextmanager
    def collected(self) -> Iterator[dict[str, PluginFailure]]:
        """Collects failures instead of logging them, each traceback once."""
        before, found = self._collected, dict[str, PluginFailure]()
        self._collected = found
        try:
            yield found
        finally:
            self._collected = before


def _lines_of_code(traceback: str) -> str:
    """Where an exception comes from, without what it says."""
    return "\n".join(line for line in traceback.splitlines() if line.startswith('  File "'))


def _now() -> float:
    # Imported here: commands that only read files do not need it, and importing it takes as long as NumPy.
    import asyncio

    try:
        clock: Callable[[], float] = asyncio.get_running_loop().time
    except RuntimeError:
        clock = time.monotonic
    return clock()
