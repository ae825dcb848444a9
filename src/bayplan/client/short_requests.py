"""HTTP/1.1 for short requests: write one, read its response, keep the connection.

A binding is a few hundred bytes each way. aiohttp takes 170 to 330 µs of CPU for that (the latter with TLS
and one request at a time), this takes 40 to 70 µs. With two or three requests for each pod, the difference is
more than the rest of scheduling it. It supports only what an API server's short responses need: no redirects,
no cookies, no compression, no pipelining. Lists and watches are read by `streams.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Final

from bayplan.client.connection_pool import ConnectionPool, HTTPConnection, NoResponseError, Route
from bayplan.client.transport import (
    LATE,
    MAX_RESPONSE_BYTES,
    TOO_LARGE,
    ApiResponse,
    Headers,
    LostError,
    Request,
    ResponseReader,
)

MAX_CONNECTIONS: Final = 64
"""The maximum number of concurrent requests; others wait."""


class _Connection(HTTPConnection):
    """A connection for responses that are read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.due = inf
        """When the request times out."""
        self._waiter: asyncio.Future[ApiResponse] | None = None
        self._received = 0
        """The size of an incomplete response so far."""

    def start(self, data: bytes) -> asyncio.Future[ApiResponse]:
        """Sends a request. The result of the future is its response, or `LostError`."""
        assert self._link is not None
        self._reader = ResponseReader()
        self._waiter = asyncio.get_running_loop().create_future()
        self._received = 0
        self._link.write(data)
        return self._waiter

    @property
    def is_awaiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def fed(self, size: int) -> None:
        if self._reader.response is not None and self._waiter is not None:
            self._waiter.set_result(self._reader.response)
            return
        self._received += size
        if self._received > MAX_RESPONSE_BYTES:
            self.fail(LostError(TOO_LARGE))

    def fail(self, error: LostError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()

    def time_out(self) -> None:
        self.fail(LostError(LATE))


class ShortRequestPool(ConnectionPool[_Connection]):
    """Connections to one server for short requests.

    With `response_delay`, responses are read this many seconds after the first request without one: if
    nothing waits for them, many are read in one wake-up of the process.
    """

    def __init__(self, route: Route, response_delay: float = 0.0) -> None:
        super().__init__(route, _Connection)
        self._response_delay = response_delay
        self._awaiting: set[_Connection] = set()
        """Connections with a request that has no response yet."""
        self._alarm: asyncio.TimerHandle | None = None
        self._unread: list[_Connection] = []
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        """Sends a request and returns the whole response.

        Raises:
            NotSentError: the server cannot be reached.
            LostError: there is no response, or not in time.
        """
        data = self._encoded(request, headers)
        if self._busy < MAX_CONNECTIONS:
            self._busy += 1
        else:
            await self._enter()
        try:
            connection = self._take_idle() or await self._connect(seconds)
            try:
                return await self._exchange(connection, request, data, seconds)
            except NoResponseError:
                # The server may have closed an idle connection just before.
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
            self._return_to_pool(connection)

    async def close(self) -> None:
        await super().close()
        if self._alarm is not None:
            self._alarm.cancel()

    # Time-outs

    def _await(self, connection: _Connection, seconds: float) -> None:
        """Sets the timeout. One timer serves all requests; it is not cancelled when a response arrives."""
        connection.due = asyncio.get_running_loop().time() + seconds
        self._awaiting.add(connection)
        if self._alarm is None or connection.due < self._alarm.when():
            self._set_alarm(connection.due)

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(due, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Fails the requests that have timed out."""
        self._alarm = None
        now = asyncio.get_running_loop().time()
        late = [connection for connection in self._awaiting if connection.due <= now]
        for connection in late:
            connection.time_out()
        left = self._awaiting.difference(late)
        if left:
            self._set_alarm(min(connection.due for connection in left))

    # Delayed responses

    def _read_later(self, connection: _Connection) -> None:
        connection.pause()
        if not self._unread:
            asyncio.get_running_loop().call_later(self._response_delay, self._read_all)
        self._unread.append(connection)

    def _read_all(self) -> None:
        unread, self._unread = self._unread, []
        for connection in unread:
            connection.resume()

    # Limit of concurrent requests

    async def _enter(self) -> None:
        """Waits until another request has ended."""
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
