"""What is counted about requests to one API server (`rest_client_*`), as client-go counts it.

Each try has its code, `<error>` where there was no answer. How long it took and how large it was is of the
whole request, tries and waiting included; of watches, which last for minutes, neither is asked.
"""

from __future__ import annotations

from typing import Final

from bayplan.metrics.instruments import Families
from bayplan.metrics.process_families import (
    REST_RATE_LIMIT_SECONDS,
    REST_REQUEST_BYTES,
    REST_REQUEST_SECONDS,
    REST_REQUESTS,
    REST_RESPONSE_BYTES,
)

NO_ANSWER: Final = "<error>"


class RequestMetrics:
    """Counts the requests to one server; `host` is its name and port."""

    def __init__(self, families: Families, host: str) -> None:
        self._host = host
        self._requests = families[REST_REQUESTS]
        self._seconds = families[REST_REQUEST_SECONDS]
        self._held_back = families[REST_RATE_LIMIT_SECONDS]
        self._sent = families[REST_REQUEST_BYTES]
        self._received = families[REST_RESPONSE_BYTES]

    def tried(self, method: str, code: int | None) -> None:
        """One try is over: with this status, or without an answer."""
        self._requests[NO_ANSWER if code is None else str(code), method, self._host].inc()

    def held_back(self, method: str, seconds: float) -> None:
        """The rate limit let it pass after this time."""
        self._held_back[method, self._host].observe(seconds)

    def took(self, method: str, seconds: float) -> None:
        self._seconds[method, self._host].observe(seconds)

    def carried(self, method: str, sent: int, received: int) -> None:
        """So many bytes of body each way."""
        self._sent[method, self._host].observe(sent)
        self._received[method, self._host].observe(received)
