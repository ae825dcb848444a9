"""Rate-limited log lines for what clients cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 10.0


class ThrottledLog:
    """Logs a message at once, and the same again only after an interval, with the number of suppressed
    lines."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warning(self, message: str, *args: object) -> None:
        """`message` identifies the kind of line; `args` are what differs among lines of a kind."""
        now = self._clock()
        if now < self._quiet_until.get(message, 0.0):
            self._left_out[message] = self._left_out.get(message, 0) + 1
            return
        self._quiet_until[message] = now + QUIET_SECONDS
        left_out = self._left_out.pop(message, 0)
        suffix = f" (and {left_out} more before)" if left_out else ""
        self._log.warning(message + "%s", *args, suffix)
