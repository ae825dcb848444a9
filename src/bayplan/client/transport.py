"""Requests and responses as bytes: what all ways to send a request have in common, and the parser of
responses.

After a failure, callers have to know whether the request may have taken effect. `NotSentError` and
`LostError` distinguish that. `ResponseReader` does no I/O: connections feed it the pieces in which a response
arrives. It handles the responses of an API server and of proxies in front of one: with Content-Length,
chunked, without a body, or with a body that ends with the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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

MAX_RESPONSE_BYTES: Final = 64 << 20
"""The maximum size of a short response. Lists and watches are read piece by piece."""
MAX_HEAD_BYTES: Final = 1 << 20
"""The maximum size of the head of a response, and of a line between chunks."""

TOO_LARGE: Final = f"the response is larger than {MAX_RESPONSE_BYTES >> 20} MiB"
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


class ProxyError(OSError):
    """A proxy did not open a tunnel to the server."""


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
        case ProxyError():
            return str(error)
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


# Responses

_END_OF_HEAD: Final = b"\r\n\r\n"
_NO_BODY: Final = frozenset((204, 304))


class MalformedError(ValueError):
    """The response is not HTTP."""


class ResponseReader:
    """Parses a response from pieces of any size.

    `status` is set when its head is complete, `response` when all of it is. To read a long response piece by
    piece, call `take` in between; the body of `response` is then the rest.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_is_chunked",
        "_left",
        "response",
        "retry_after",
        "status",
        "until_close",
        "will_close",
    )

    def __init__(self) -> None:
        self._buffer = b""
        self.status = 0
        self.retry_after = ""
        self._body: list[bytes] = []
        self._is_chunked = False
        self._left = 0
        """Missing bytes of the body, or of a chunk with the line break after it."""
        self.until_close = False
        self.will_close = False
        self.response: ApiResponse | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._buffer or self.status)

    def feed(self, data: bytes) -> None:
        self._buffer = data = self._buffer + data if self._buffer else data
        while not self.status:
            end = data.find(_END_OF_HEAD)
            if end < 0:
                _check_head(len(data))
                return
            self._head(data[:end])
            self._buffer = data = data[end + 4 :]
        if self.response is not None:
            return
        if self._is_chunked:
            self._chunks()
        elif self.until_close:
            self._body.append(data)
            self._buffer = b""
        elif len(data) == self._left and not self._body:
            self._finish(data)  # nearly always
        else:
            self._sized()

    def take(self) -> bytes:
        """The part of the body that has arrived since the last call."""
        body, self._body = self._body, []
        if self.response is not None and self.response.body:
            body, self.response = [self.response.body], self.response._replace(body=b"")
        return body[0] if len(body) == 1 else b"".join(body)

    def end(self) -> None:
        """The server has closed the connection."""
        if self.until_close and self.response is None:
            self._finish(b"".join(self._body))

    def _head(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1."):
            raise MalformedError("malformed HTTP response")
        status = int(head[9:12])
        if 100 <= status < 200:
            return  # an interim response; the final one follows
        self.status = status
        lower = head.lower()
        self.will_close = b"close" in _header(lower, b"\r\nconnection:") or head.startswith(b"HTTP/1.0")
        if status >= 300:
            self.retry_after = _header(lower, b"\r\nretry-after:").decode("latin-1")
        if status in _NO_BODY:
            self._finish(b"")
        elif b"chunked" in _header(lower, b"\r\ntransfer-encoding:"):
            self._is_chunked = True
        elif length := _header(lower, b"\r\ncontent-length:"):
            if not length.isdigit():
                raise MalformedError("bad Content-Length")
            self._left = int(length)
        else:
            self.until_close = self.will_close = True

    def _sized(self) -> None:
        data = self._buffer
        if len(data) > self._left:
            raise MalformedError("body longer than Content-Length")
        self._body.append(data)
        self._left -= len(data)
        self._buffer = b""
        if not self._left:
            self._finish(b"".join(self._body))

    def _chunks(self) -> None:
        data, position, body = self._buffer, 0, self._body
        while True:
            if not self._left:
                end = data.find(b"\r\n", position)
                if end < 0:
                    _check_head(len(data) - position)
                    break
                size = int(data[position:end].partition(b";")[0], 16)
                if size < 0:
                    raise MalformedError("invalid chunk length")
                if not size:
                    # Trailers may follow; they end with an empty line.
                    last = end if data.startswith(b"\r\n", end + 2) else data.find(_END_OF_HEAD, end)
                    if last < 0:
                        _check_head(len(data) - end)
                        break
                    self._finish(b"".join(body))
                    return
                position = end + 2
                self._left = size + 2
            arrived = len(data) - position
            if arrived < self._left:
                # Take the part of a chunk that has arrived: a chunk may be as large as a whole list.
                part = min(arrived, self._left - 2)
                if part > 0:
                    body.append(data[position : position + part])
                    position += part
                    self._left -= part
                break
            body.append(data[position : position + self._left - 2])
            position += self._left
            self._left = 0
        self._buffer = data[position:]

    def _finish(self, body: bytes) -> None:
        self._buffer = b""
        self.response = ApiResponse(self.status, self.retry_after, body)


def _check_head(size: int) -> None:
    """Checks the size of a head, a line between chunks or trailers whose end has not arrived."""
    if size > MAX_HEAD_BYTES:
        raise MalformedError("the head of the response is too large")


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(name)
    if start < 0:
        return b""
    end = head.find(b"\r\n", start + 2)
    return head[start + len(name) : end if end >= 0 else None].strip()
