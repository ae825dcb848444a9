"""The client's own limit on how fast it asks (`clientConnection.qps` and `burst`), as upstream.

A token bucket: `burst` requests at once, then `qps` a second, first come first served. It protects the API
server from us; priority and fairness on its side (429) is the other half.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bayplan.errors import ConfigError

DEFAULT_QPS: Final = 5.0
DEFAULT_BURST: Final = 10
"""What a client has that says nothing. The scheduler's configuration says 50 and 100."""

LONG_WAIT_SECONDS: Final = 1.0
TELL_AGAIN_SECONDS: Final = 10.0
"""Many wait when one does: a line for each would say the same a thousand times."""

_log = logging.getLogger(__name__)


class TokenBucket:
    """Hands out permission to send. Time is the running loop's."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._last = float("-inf")
        self._told_at = float("-inf")

    def reserve(self, now: float) -> float:
        """Takes a token, one of the future if need be. Returns the seconds until it may be used."""
        tokens = min(self._burst, self._tokens + max(now - self._last, 0.0) * self._qps)
        self._last = now
        self._tokens = tokens = tokens - 1.0
        return 0.0 if tokens >= 0.0 else -tokens / self._qps

    def give_back(self) -> None:
        """A reserved token is not used after all."""
        self._tokens += 1.0

    async def wait(self) -> float:
        """Waits for permission. Returns the seconds that it took."""
        now = asyncio.get_running_loop().time()
        seconds = self.reserve(now)
        if not seconds:
            return 0.0
        if seconds > LONG_WAIT_SECONDS and now - self._told_at >= TELL_AGAIN_SECONDS:
            self._told_at = now
            _log.info(
                "requests wait for %.1f s by client-side throttling (clientConnection.qps and burst), "
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
    """The limit that a configuration asks for; None for none (negative qps).

    Raises:
        ConfigError: it asks for a rate but allows no request.
    """
    if qps < 0:
        return None
    if qps > 0 and burst <= 0:
        raise ConfigError(
            "burst is required to be greater than 0 when RateLimiter is not set "
            "and QPS is set to greater than 0"
        )
    return TokenBucket(qps or DEFAULT_QPS, burst or DEFAULT_BURST)
