"""Listening for HTTP clients in bounded memory: the embedded API server and the serving port share it.

`Limits` says how many connections there may be and how long they may take, `Listener` turns bound sockets
(`ports.py`) into connections, `BoundedServer` is aiohttp's server within these limits, and `read_body` reads
the body of a request.

asyncio's own servers start TLS as soon as a client has connected, which takes 0.3 MB for each, and wait a
minute for the handshake. Here a connection takes only a socket until its first byte has arrived, and the
number of connections without a finished handshake is limited: the oldest ones are closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

_SPARE_DESCRIPTORS: Final = 100
"""File descriptors reserved for everything other than client connections."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server. A TLS connection takes about 0.4 MB, most of it asyncio's read buffer."""

    connections: int = 500
    """Above this, the connection that has been idle longest is closed; if none is idle, the new one."""
    handshakes: int = 100
    """Connections with an unfinished TLS handshake; above this, the oldest is closed."""
    handshake_seconds: float = 10.0
    """Timeout for the first byte, and then for the handshake."""
    idle_seconds: float = 90.0
    """Timeout for the next request and its headers, as in kube-apiserver."""
    body_seconds: float = 60.0
    """Timeout for a whole body."""
    stall_seconds: float = 30.0
    """A client that reads nothing of its response for this time is disconnected."""
    write_buffer_bytes: int = 64 * 1024
    """Bytes that may be buffered for a slow client; writers wait above this."""

    @property
    def max_connections(self) -> int:
        """`connections`, or fewer if the limit of open files requires it."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.connections
        return max(min(self.connections, files - _SPARE_DESCRIPTORS), files // 2 if files < 200 else 1)


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


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

LINGERING_SECONDS: Final = 2.0
"""Timeout for the rest of an unwanted body, after the response."""
_MANY: Final = 64
"""Memory is returned to the system when half of at least this number of connections has been closed."""

_log = logging.getLogger(__name__)


class BoundedServer(web.Server):
    """Calls `handle` for each request. Bodies are not decompressed: kube-apiserver does not do so, either."""

    def __init__(self, handle: Handler, limits: Limits, *, max_body_bytes: int) -> None:
        self.limits = limits
        self.throttled = ThrottledLog(_log)
        self._max_body_bytes = max_body_bytes
        self._peak = 0
        self._handle = handle
        super().__init__(
            self._handle_text,
            request_factory=self._bounded_request,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=LINGERING_SECONDS,
        )

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._loop, **self._kwargs)

    async def _handle_text(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handles requests whose path is valid UTF-8. Other bytes could neither be displayed nor logged."""
        try:
            request.path.encode()
        except UnicodeEncodeError:
            self.throttled.warning(
                "malformed HTTP request from %s: %s", request.remote, "its path is not UTF-8"
            )
            return _bad_request(400)
        return await self._handle(request)

    def _bounded_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
        return web.BaseRequest(
            message, payload, protocol, writer, task, self._loop, client_max_size=self._max_body_bytes
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        count = len(self._connections)
        self._peak = max(self._peak, count)
        if count <= self.limits.max_connections:
            return
        # The oldest come first. If none is idle, the newest is closed: the others are being served.
        self.throttled.warning("more than %d connections: closing one", count - 1)
        ours = [each for each in self._connections if isinstance(each, _Connection)]
        next((each for each in ours if each.is_idle), ours[-1]).abort()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if self._peak >= _MANY and len(self._connections) <= self._peak // 2:
            self._peak = len(self._connections)
            asyncio.get_running_loop().call_later(1, _release_memory)


class _Connection(web.RequestHandler):
    """One client's connection."""

    def __init__(self, server: BoundedServer, loop: asyncio.AbstractEventLoop, **kwargs: Any) -> None:
        super().__init__(server, loop=loop, **kwargs)
        self._limits = server.limits
        self._throttled = server.throttled
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress or waiting."""
        return not self._request_in_progress and not self._messages

    @property
    def _is_gone(self) -> bool:
        """Whether nothing can be sent to the client any more."""
        return self.transport is None or self.transport.is_closing()

    def abort(self) -> None:
        """Closes it immediately, without completing responses."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_stall()
        self._stalled = self._loop.call_later(self._limits.stall_seconds, self.abort)

    def resume_writing(self) -> None:
        self._cancel_stall()
        super().resume_writing()

    def _cancel_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Responds to what is not HTTP. Its text is not logged: it may contain a token.

        A client that has disconnected gets no response, and this is not an error: aiohttp would log a
        traceback each time that happens while a response is written.
        """
        if isinstance(exc, ConnectionError) and self._is_gone:
            raise exc  # ends the connection; nothing is logged
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        kind = "malformed request" if exc is None else type(exc).__name__
        self._throttled.warning("malformed HTTP request from %s: %s", request.remote, kind)
        return _bad_request(status)


def _bad_request(status: int) -> web.Response:
    response = web.Response(status=status, text=f"{status} Bad Request")
    response.force_close()
    return response


def _release_memory() -> None:
    """Returns memory to the system after many connections; the C library keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


PAUSE_SECONDS: Final = 1.0
"""Without a free file descriptor no connection is accepted for this time."""

_MAX_ACCEPTED: Final = 32
"""Connections that are accepted at once, before other tasks run."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REQUEST_BYTES: Final = 64 * 1024
_HANDSHAKE: Final = 0x16
"""The first byte of TLS."""
_NOT_TLS: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Listener:
    """Accepts connections for a server until it is closed. Without a TLS context they are plain HTTP."""

    def __init__(
        self,
        server: BoundedServer,
        limits: Limits,
        tls: ssl.SSLContext | None,
        *,
        plain: BoundedServer | None = None,
    ) -> None:
        """`plain` gets the connections of clients that begin no TLS handshake; without it they get an error
        response."""
        self._server = server
        self._plain = plain
        self._limits = limits
        self._tls = tls
        self._throttled = ThrottledLog(_log)
        self._sockets: list[socket.socket] = []
        self._arriving: dict[socket.socket, Callable[[], object]] = {}
        """Connections that are not the server's yet, oldest first, with the function that closes them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None

    def start(self, sockets: Sequence[socket.socket]) -> int:
        """Accepts the connections of bound sockets (`ports.py`), and closes them in the end.

        Returns the port.
        """
        self._sockets.extend(sockets)
        self._listen()
        found: int = self._sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Accepts no more connections; those of the server stay open."""
        if self._resume is not None:
            self._resume.cancel()
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for drop in list(self._arriving.values()):
            drop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTED):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            connection.setblocking(False)
            self._await_first_byte(connection)

    def _pause(self, error: OSError) -> None:
        self._throttled.warning("cannot accept connections: %s", error.strerror)
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        self._resume = loop.call_later(PAUSE_SECONDS, self._listen)

    def _await_first_byte(self, connection: socket.socket) -> None:
        if len(self._arriving) >= self._limits.handshakes:
            count = len(self._arriving)
            self._throttled.warning("more than %d connections without a request: closing one", count)
            next(iter(self._arriving.values()))()
        loop = asyncio.get_running_loop()

        def drop() -> None:
            timer.cancel()
            loop.remove_reader(connection)
            self._arriving.pop(connection, None)
            connection.close()

        def first_byte() -> None:
            timer.cancel()
            loop.remove_reader(connection)
            self._arriving.pop(connection, None)
            task = loop.create_task(self._hand_over(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        timer = loop.call_later(self._limits.handshake_seconds, drop)
        loop.add_reader(connection, first_byte)
        self._arriving[connection] = drop

    async def _hand_over(self, connection: socket.socket) -> None:
        """Passes it to the server, after the TLS handshake."""
        server, tls = self._server, self._tls
        if tls is not None and self._plain is not None and _begins_in_plain_text(connection):
            server, tls = self._plain, None
        elif tls is not None and not _is_tls(connection):
            return
        task = asyncio.current_task()
        assert task is not None
        self._arriving[connection] = task.cancel
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._limits.handshake_seconds,
            )
        except (OSError, TimeoutError) as error:
            # Usually an SSLError: the client does not trust our certificate.
            _log.debug("a connection ended before its first request: %s", error)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._arriving.pop(connection, None)


def _begins_in_plain_text(connection: socket.socket) -> bool:
    """Whether the first byte is that of an HTTP method."""
    try:
        return connection.recv(1, socket.MSG_PEEK).isalpha()
    except OSError:
        return False  # the client has disconnected


def _is_tls(connection: socket.socket) -> bool:
    """Whether the client begins a TLS handshake; otherwise it gets an error response and is closed."""
    try:
        first = connection.recv(1, socket.MSG_PEEK)
        if first and first[0] == _HANDSHAKE:
            return True
        if first.isalpha():
            connection.recv(_REQUEST_BYTES)  # unread data would reset the connection and lose the response
            connection.send(_NOT_TLS)
    except OSError:
        pass  # the client has disconnected
    connection.close()
    return False


_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyTooLargeError(Exception):
    """The body is larger than the limit."""


class BodyTimeoutError(Exception):
    """The body did not arrive in time."""


class EncodedBodyError(Exception):
    """The body is compressed."""


async def read_body(request: web.BaseRequest, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body, within limits of size and time.

    Call it after authentication: the server requests the body of a client that sends `Expect: 100-continue`
    only here, and reads nothing of a body before.

    Raises:
        BodyTooLargeError, BodyTimeoutError, EncodedBodyError: it cannot be read.
    """
    if request.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise EncodedBodyError
    if (request.content_length or 0) > max_bytes:
        raise BodyTooLargeError
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(_CONTINUE)
        request.writer.output_size = 0
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise BodyTooLargeError from error
    except TimeoutError as error:
        raise BodyTimeoutError from error
