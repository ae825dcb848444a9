"""HTTP/1.1 for short requests: write one, read its answer, keep the connection.

A binding is some hundred bytes each way. aiohttp takes 170 to 330 µs of CPU for that (the latter with TLS and
one request at a time), this takes 40 to 70; with two or three requests for each pod that is more than all the
rest of scheduling it. It knows only what an API server's short answers need: no redirects, no cookies, no
compression, no pipelining. Lists and watches are read by `streams.py`, and everything that goes through a
proxy by aiohttp (`proxied_streams.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Final
from urllib.parse import SplitResult

from bayplan.client.connection_pool import ConnectionPool, HTTPConnection, SilenceError
from bayplan.client.responses import ResponseReader
from bayplan.client.tls import ServerTLS
from bayplan.client.transport import LATE, ApiResponse, Headers, LostError, Request

MAX_CONNECTIONS: Final = 64
"""Requests in progress at once; others wait for their turn."""


class _Connection(HTTPConnection):
    """A connection for responses that are read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.due = inf
        """When the response must be there."""
        self._waiter: asyncio.Future[ApiResponse] | None = None

    def start(self, data: bytes) -> asyncio.Future[ApiResponse]:
        """Sends a request. The future brings its answer, or `LostError`."""
        assert self._link is not None
        self._reader = ResponseReader()
        self._waiter = asyncio.get_running_loop().create_future()
        self._link.write(data)
        return self._waiter

    @property
    def is_awaiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def fed(self, size: int) -> None:
        if self._reader.response is not None and self._waiter is not None:
            self._waiter.set_result(self._reader.response)

    def fail(self, error: LostError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()

    def time_out(self) -> None:
        self.fail(LostError(LATE))


class ShortRequestPool(ConnectionPool[_Connection]):
    """Kept connections to one server, for short requests. `tls` is None for plain HTTP.

    With `response_delay`, responses are read so many seconds after the first request without one. Many that
    nobody waits for are then read in one wake-up, not in one each.
    """

    def __init__(self, server: SplitResult, tls: ServerTLS | None, response_delay: float = 0.0) -> None:
        super().__init__(server, tls, _Connection)
        self._response_delay = response_delay
        self._awaiting: set[_Connection] = set()
        """Connections with a request that has no response yet."""
        self._alarm: asyncio.TimerHandle | None = None
        self._unread: list[_Connection] = []
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        data = self._encoded(request, headers)
        await self._enter()
        try:
            connection = self._kept() or await self._connect(seconds)
            try:
                return await self._exchange(connection, request, data, seconds)
            except SilenceError:
                # The server may have closed a kept connection the moment before.
                if not (connection.is_reused and request.repeatable):
                    raise
            return await self._exchange(await self._connect(seconds), request, data, seconds)
        finally:
            self._leave()

    async def _exchange(
        self, connection: _Connection, request: Request, data: bytes, seconds: float
    ) -> ApiResponse:
        self._await(connection, seconds)
        try:
            if request.permit is not None:
                request.permit()
            response = connection.start(data)
            if self._response_delay:
                self._read_later(connection)
            return await response
        except asyncio.CancelledError:
            connection.abort()  # a response may still arrive, and is ignored
            raise
        finally:
            self._awaiting.discard(connection)
            self._keep(connection)

    async def close(self) -> None:
        await super().close()
        if self._alarm is not None:
            self._alarm.cancel()

    # Time-outs

    def _await(self, connection: _Connection, seconds: float) -> None:
        """One alarm serves all requests. Hardly any is late, so it is not cancelled when a response comes."""
        connection.due = asyncio.get_running_loop().time() + seconds
        self._awaiting.add(connection)
        if self._alarm is None or connection.due < self._alarm.when():
            self._set_alarm(connection.due)

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        """Gives up the requests that are late."""
        self._alarm = None
        now = asyncio.get_running_loop().time()
        late = [connection for connection in self._awaiting if connection.due <= now]
        for connection in late:
            connection.time_out()
        left = self._awaiting.difference(late)
        if left:
            self._set_alarm(min(connection.due for connection in left))

    # Reading later

    def _read_later(self, connection: _Connection) -> None:
        connection.pause()
        if not self._unread:
            asyncio.get_running_loop().call_later(self._response_delay, self._read_all)
        self._unread.append(connection)

    def _read_all(self) -> None:
        unread, self._unread = self._unread, []
        for connection in unread:
            connection.resume()

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
