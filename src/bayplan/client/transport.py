"""How requests travel: what `connection_pool.py` and `proxied_streams.py` have in common.

Whether a request may have been carried out is the one thing that everything above has to know about a
failure, so that is what the two errors say.
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
"""To open a connection, TLS included; client-go's value."""

KEEP_ALIVE_SECONDS: Final = 30
"""Between two signs of life that the kernel exchanges on a quiet connection."""

CLOSE_SECONDS: Final = 0.2
"""For connections that are being opened to come about, so that they can be closed."""

ROUNDS_TO_CLOSE: Final = 5
"""Of the loop, until the last transport has heard that it is to close: TLS stands on a plain one, and each
tells the next in the next round."""

CLOSED: Final = "the client was closed"
LATE: Final = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)"


class Headers:
    """Headers of a request. Those that say who we are: another object is another identity."""

    __slots__ = ("block", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)
        if any("\r" in text or "\n" in text for pair in self.pairs for text in pair):
            raise APIError("getting credentials: there is a line break in the middle of them")
        self.block = "".join(f"{name}: {value}\r\n" for name, value in self.pairs).encode()
        """The same as they are sent."""


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
    """Carrying it out twice does no harm, so that it may be sent again where the first was lost."""
    permit: Callable[[], None] | None = None
    """Asked when its turn has come and nothing was sent yet; raises where it is not to be sent any more."""


class NotSentError(BayplanError):
    """Nothing has reached the server."""


class LostError(BayplanError):
    """The request was sent, or part of it, and no answer came."""


class Transport(Protocol):
    """Sends a request and brings the whole answer."""

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        """Raises:
        NotSentError: the server cannot be reached.
        LostError: no answer, within the time or at all.
        """

    def forget(self) -> None:
        """Uses no connection any more that is open now."""

    async def close(self) -> None:
        """Closes everything that is open or being opened; waiters get an error."""


async def end_openings(openings: Collection[asyncio.Task[Any]]) -> None:
    """Ends what is being opened. It gets a little time to come about: asyncio forgets sockets that are given
    up in the first steps of TLS."""
    if openings:
        await asyncio.wait(openings, timeout=CLOSE_SECONDS)
    late = tuple(openings)
    for opening in late:
        opening.cancel()
    if late:
        await asyncio.wait(late, timeout=CLOSE_SECONDS)


def was_ended(opening: asyncio.Task[Any]) -> bool:
    """Whether what we waited for was cancelled, and not we ourselves."""
    task = asyncio.current_task()
    return opening.cancelled() and (task is None or not task.cancelling())


async def transports_to_close() -> None:
    """Returns when transports that are closing have closed."""
    for _ in range(ROUNDS_TO_CLOSE):
        await asyncio.sleep(0)


def keep_alive(raw: socket.socket) -> None:
    """Has the kernel find out about peers that vanished without a word."""
    if raw.family not in (socket.AF_INET, socket.AF_INET6):
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", KEEP_ALIVE_SECONDS), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)
        if option is not None:
            raw.setsockopt(socket.IPPROTO_TCP, option, value)


def why_not_connected(error: BaseException, host: str, port: int) -> str:
    """What went wrong before anything was sent, in Go's words as far as they are known."""
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
            # Several addresses that all fail come as one error without a number.
            known = "[Errno 111]" in str(error)
            return f"dial tcp {host}:{port}: connect: {'connection refused' if known else error}"
        case _:
            return str(error) or type(error).__name__
