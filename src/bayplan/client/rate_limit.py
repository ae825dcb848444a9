"""Client-side rate limiting (`clientConnection.qps` and `burst`), as upstream.

A token bucket: `burst` requests at once, then `qps` per second, first come, first served. It protects the API
server, in addition to the server's own priority and fairness (429).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bayplan.errors import ConfigError

DEFAULT_QPS: Final = 5.0
DEFAULT_BURST: Final = 10
"""Used if nothing is configured. The scheduler's default configuration has 50 and 100."""

LONG_WAIT_SECONDS: Final = 1.0
LOG_AGAIN_SECONDS: Final = 10.0
"""Usually many requests wait at once, so only one of them is logged in this time."""

_log = logging.getLogger(__name__)


class TokenBucket:
    """A token bucket; time is that of the running loop."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._last = float("-inf")
        self._logged_at = float("-inf")

    def take(self, now: float) -> bool:
        """Takes a token if there is one. Nearly always there is, and then nothing has to be awaited."""
        self._tokens = tokens = min(self._burst, self._tokens + max(now - self._last, 0.0) * self._qps)
        self._last = now
        if tokens < 1.0:
            return False
        self._tokens = tokens - 1.0
        return True

    def reserve(self, now: float) -> float:
        """Takes a token, if necessary a future one. Returns the seconds until it may be used."""
        if self.take(now):
            return 0.0
        self._tokens = tokens = self._tokens - 1.0
        return -tokens / self._qps

    def give_back(self) -> None:
        """A reserved token is not used after all."""
        self._tokens += 1.0

    async def wait(self) -> float:
        """Waits for a token. Returns the seconds that it took."""
        now = asyncio.get_running_loop().time()
        seconds = self.reserve(now)
        if not seconds:
            return 0.0
        if seconds > LONG_WAIT_SECONDS and now - self._logged_at >= LOG_AGAIN_SECONDS:
            self._logged_at = now
            _log.info(
                "requests wait for %.1f s due to client-side throttling (clientConnection.qps and burst), "
                "not priority and fairness",
                seconds,
            )
        try:
            await asyncio.sleep(seconds)
            return seconds
        except asyncio.CancelledError:
            self.give_back()
            raise


def make_bucket(qps: float, burst: int) -> TokenBucket | None:
    """The limit of a configuration; None if it has none (negative qps).

    Raises:
        ConfigError: the rate is positive, but no request is allowed.
    """
    if qps < 0:
        return None
    if qps > 0 and burst <= 0:
        raise ConfigError(
            "burst is required to be greater than 0 when RateLimiter is not set "
            "and QPS is set to greater than 0"
        )
    return TokenBucket(qps or DEFAULT_QPS, burst or DEFAULT_BURST)
