"""HTTP/1.1 for short requests: write one, read its answer, keep the connection.

A binding is some hundred bytes each way. aiohttp takes 170 to 330 µs of CPU for that (the latter with TLS and
one request at a time), this takes 40 to 70; with two or three requests for each pod that is more than all the
rest of scheduling it. It knows only what an API server's short answers need: no redirects, no cookies, no
compression, no pipelining. Lists, watches and everything that goes through a proxy are aiohttp's
(`streams.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import SplitResult

from bayplan.client.responses import ResponseReader
from bayplan.client.tls import ServerTLS
from bayplan.client.transport import (
    CLOSED,
    CONNECT_SECONDS,
    LATE,
    ApiResponse,
    Headers,
    LostError,
    NotSentError,
    Request,
    end_openings,
    keep_alive,
    transports_to_close,
    was_ended,
    why_not_connected,
)
from bayplan.errors import ConfigError

MAX_CONNECTIONS: Final = 64
"""Requests under way at once; others wait for their turn."""
IDLE_SECONDS: Final = 60.0
"""A connection that was not used for so long is not used again: the server may be about to close it."""
LIFETIME_SECONDS: Final = 600.0
"""Connections are renewed now and then: certificates are rotated, and servers join behind load balancers."""
SECOND_ADDRESS_SECONDS: Final = 0.25
"""Where a name has several addresses, the next one is tried after so long without an answer."""


class _SilenceError(LostError):
    """The connection ended without a single byte of an answer."""


class _Connection(asyncio.Protocol):
    """One connection; at most one request is under way on it.

    When `is_open` is false it is not to be used any more.
    """

    def __init__(self, lost: Callable[[_Connection], None]) -> None:
        self.is_open = False
        self.is_reused = False
        self.opened_at = self.used_at = asyncio.get_running_loop().time()
        self._lost = lost
        self._reader = ResponseReader()
        self._waiter: asyncio.Future[ApiResponse] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are not of this class, but do the same.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        keep_alive(transport.get_extra_info("socket"))

    def start(self, data: bytes) -> asyncio.Future[ApiResponse]:
        """Sends a request. The future brings its answer, or `LostError`."""
        assert self._transport is not None
        self._reader = ResponseReader()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        waiter, reader = self._waiter, self._reader
        if waiter is None or waiter.done():
            self.abort()  # it speaks without having been asked, or after its answer
            return
        try:
            reader.feed(data)
        except ValueError as error:
            self._fail(LostError(f"net/http: HTTP/1.x transport connection broken: {error}"))
            return
        if reader.response is not None:
            self.is_open = self.is_open and not reader.will_close
            waiter.set_result(reader.response)

    def connection_lost(self, error: Exception | None) -> None:
        self._reader.end()
        if self._reader.response is not None and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._reader.response)
        elif self._reader.has_begun:
            self._fail(LostError("unexpected EOF"))
        else:
            self._fail(_SilenceError((getattr(error, "strerror", None) or "EOF").replace("Conn", "conn")))
        self.is_open = False
        self._lost(self)

    def time_out(self) -> None:
        self._fail(LostError(LATE))

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: LostError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()


class ShortRequestPool:
    """Kept connections to one server, for short requests. `tls` is None for plain HTTP."""

    def __init__(self, server: SplitResult, tls: ServerTLS | None) -> None:
        self._host = server.hostname or ""
        self._port = server.port or (443 if tls is not None else 80)
        self._prefix = server.path
        self._host_line = f" HTTP/1.1\r\nHost: {server.netloc.rpartition('@')[2]}\r\n"
        self._tls = tls
        self._connections: set[_Connection] = set()
        self._opening: set[asyncio.Task[_Connection]] = set()
        self._idle: list[_Connection] = []
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renewed_at = float("-inf")
        self._is_closed = False

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        head = f"{request.method} {self._prefix}{request.target}{self._host_line}"
        if request.body:
            head = f"{head}Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
        data = b"".join((head.encode("ascii"), headers.block, b"\r\n", request.body))
        await self._enter()
        try:
            connection = self._kept() or await self._connect(seconds)
            try:
                return await self._exchange(connection, request, data, seconds)
            except _SilenceError:
                # The server may have closed a kept connection the moment before.
                if not (connection.is_reused and request.repeatable):
                    raise
            return await self._exchange(await self._connect(seconds), request, data, seconds)
        finally:
            self._leave()

    def forget(self) -> None:
        """Uses no connection any more that is open now; those under way get their answers."""
        self._renewed_at = asyncio.get_running_loop().time()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def close(self) -> None:
        self._is_closed = True
        await end_openings(self._opening)
        for connection in tuple(self._connections):
            connection.abort()
        self._idle.clear()
        await transports_to_close()

    async def _exchange(
        self, connection: _Connection, request: Request, data: bytes, seconds: float
    ) -> ApiResponse:
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(seconds, connection.time_out)
        try:
            if request.permit is not None:
                request.permit()
            return await connection.start(data)
        except asyncio.CancelledError:
            connection.abort()  # an answer may still come, to nobody
            raise
        finally:
            alarm.cancel()
            self._keep(connection, loop.time())

    # Connections

    def _kept(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.used_at < IDLE_SECONDS:
                connection.is_reused = True
                return connection
            connection.close()
        return None

    def _keep(self, connection: _Connection, now: float) -> None:
        opened_at = connection.opened_at
        if connection.is_open and opened_at > self._renewed_at and now - opened_at < LIFETIME_SECONDS:
            connection.used_at = now
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self, seconds: float) -> _Connection:
        """A new connection.

        Whoever waits for it may be cancelled, the opening itself is not: asyncio forgets sockets that are
        given up in the first steps of TLS. Such a connection is kept for whoever comes next.
        """
        if self._is_closed:
            raise NotSentError(CLOSED)
        opening = asyncio.ensure_future(self._open(min(seconds, CONNECT_SECONDS)))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if was_ended(opening):
                raise NotSentError(CLOSED) from None
            opening.add_done_callback(self._opened_for_nobody)
            raise
        except (OSError, ConfigError) as error:
            raise NotSentError(why_not_connected(error, self._host, self._port)) from error

    async def _open(self, seconds: float) -> _Connection:
        loop, tls = asyncio.get_running_loop(), self._tls
        # uvloop tries the addresses of a name one after the other, and knows no such option.
        options: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop):
            options["happy_eyeballs_delay"] = SECOND_ADDRESS_SECONDS
        async with asyncio.timeout(seconds):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._connections.discard),
                self._host,
                self._port,
                ssl=None if tls is None else tls.context(),
                server_hostname=None if tls is None else tls.server_name or self._host,
                **options,
            )
        self._connections.add(connection)
        return connection

    def _opened_for_nobody(self, opening: asyncio.Task[_Connection]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._keep(opening.result(), asyncio.get_running_loop().time())

    # Taking turns

    async def _enter(self) -> None:
        if self._busy < MAX_CONNECTIONS:
            self._busy += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # it was our turn already
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1
