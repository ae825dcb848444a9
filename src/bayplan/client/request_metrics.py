"""Metrics of requests to one API server (`rest_client_*`), counted as in client-go.

Each try is counted with its code, or `<error>` if there was no response. Duration and size are those of the
whole request, with all tries and waits. Watches, which last for minutes, have neither.
"""

from __future__ import annotations

from typing import Final

from bayplan.metrics.families import (
    REST_RATE_LIMIT_SECONDS,
    REST_REQUEST_BYTES,
    REST_REQUEST_SECONDS,
    REST_REQUESTS,
    REST_RESPONSE_BYTES,
)
from bayplan.metrics.instruments import Families

NO_RESPONSE: Final = "<error>"


class RequestMetrics:
    """Counts the requests to one server; `host` is its name and port."""

    def __init__(self, families: Families, host: str) -> None:
        self._host = host
        self._requests = families[REST_REQUESTS]
        self._seconds = families[REST_REQUEST_SECONDS]
        self._throttled = families[REST_RATE_LIMIT_SECONDS]
        self._sent = families[REST_REQUEST_BYTES]
        self._received = families[REST_RESPONSE_BYTES]

    def tried(self, method: str, code: int | None) -> None:
        """One try ended with this status, or without a response (None)."""
        self._requests[NO_RESPONSE if code is None else str(code), method, self._host].inc()

    def throttled(self, method: str, seconds: float) -> None:
        """The rate limit delayed a request by this time."""
        self._throttled[method, self._host].observe(seconds)

    def took(self, method: str, seconds: float) -> None:
        self._seconds[method, self._host].observe(seconds)

    def carried(self, method: str, sent: int, received: int) -> None:
        """The sizes of the bodies of request and response, in bytes."""
        self._sent[method, self._host].observe(sent)
        self._received[method, self._host].observe(received)
