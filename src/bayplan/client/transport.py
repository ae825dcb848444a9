"""The transport of requests: what `connection_pool.py` and `proxied_streams.py` have in common.

After a failure callers have to know whether the request may have taken effect. The two errors distinguish
that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from bayplan.errors import APIError, BayplanError

CONNECT_SECONDS: Final = 30.0
"""Timeout for opening a connection, TLS included; client-go's value."""

KEEP_ALIVE_SECONDS: Final = 30
"""Idle time before the kernel sends TCP keep-alive probes."""

CLOSE_SECONDS: Final = 0.2
"""Time for connections that are being opened to complete, so that they can be closed."""

ROUNDS_TO_CLOSE: Final = 5
"""Rounds of the loop until the last transport is closed: a TLS transport closes the plain one below it in the
next round."""

CLOSED: Final = "the client was closed"
LATE: Final = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)"


class Headers:
    """Headers of a request. Credentials are compared by identity: another object is another identity."""

    __slots__ = ("block", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)
        if any("\r" in text or "\n" in text for pair in self.pairs for text in pair):
            raise APIError("getting credentials: they contain a line break")
        self.block = "".join(f"{name}: {value}\r\n" for name, value in self.pairs).encode()
        """The headers as they are sent."""


class ApiResponse(NamedTuple):
    status: int
    retry_after: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    """Path and query."""
    body: bytes = b""
    content_type: str = ""
    repeatable: bool = True
    """Whether sending it twice does no harm, so that it may be sent again if there is no response."""
    permit: Callable[[], None] | None = None
    """Called right before it is sent; raises if it must not be sent any more."""


class NotSentError(BayplanError):
    """Nothing has reached the server."""


class LostError(BayplanError):
    """The request, or part of it, was sent, and there was no response."""


class Transport(Protocol):
    """Sends a request and returns the whole response."""

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        """Raises:
        NotSentError: the server cannot be reached.
        LostError: there is no response, or not in time.
        """

    def forget(self) -> None:
        """Does not reuse connections that are open now."""

    async def close(self) -> None:
        """Closes everything that is open or being opened; waiters get an error."""


async def end_openings(openings: Collection[asyncio.Task[Any]]) -> None:
    """Cancels connections that are being opened, after a little time to complete: asyncio leaks sockets that
    are cancelled at the beginning of a TLS handshake."""
    if openings:
        await asyncio.wait(openings, timeout=CLOSE_SECONDS)
    late = tuple(openings)
    for opening in late:
        opening.cancel()
    if late:
        await asyncio.wait(late, timeout=CLOSE_SECONDS)


def was_ended(opening: asyncio.Task[Any]) -> bool:
    """Whether the opening was cancelled, and not the task that waits for it."""
    task = asyncio.current_task()
    return opening.cancelled() and (task is None or not task.cancelling())


async def wait_for_transports() -> None:
    """Waits until transports that are closing have closed."""
    for _ in range(ROUNDS_TO_CLOSE):
        await asyncio.sleep(0)


def keep_alive(raw: socket.socket) -> None:
    """Enables TCP keep-alive, to detect peers that disappeared."""
    if raw.family not in (socket.AF_INET, socket.AF_INET6):
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", KEEP_ALIVE_SECONDS), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)
        if option is not None:
            raw.setsockopt(socket.IPPROTO_TCP, option, value)


def why_not_connected(error: BaseException, host: str, port: int) -> str:
    """Why a connection could not be opened, in Go's words where they are known."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"tls: failed to verify certificate: {error.verify_message.rstrip('.')}"
        case ssl.SSLError():
            return f"tls: {error.reason or error}"
        case socket.gaierror():
            return f"dial tcp: lookup {host}: no such host"
        case ConnectionRefusedError():
            return f"dial tcp {host}:{port}: connect: connection refused"
        case TimeoutError():
            return f"dial tcp {host}:{port}: i/o timeout"
        case OSError(errno=int(number)):
            return f"dial tcp {host}:{port}: connect: {os.strerror(number).lower()}"
        case OSError():
            # If all addresses of a name fail, there is one error without a number.
            known = "[Errno 111]" in str(error)
            return f"dial tcp {host}:{port}: connect: {'connection refused' if known else error}"
        case _:
            return str(error) or type(error).__name__
