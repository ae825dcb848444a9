"""Responses that are long or never end: lists and watches, read piece by piece.

A watch delivers a few hundred bytes now and then, and each time the process wakes up. So there are few steps
between socket and reader: no timer is created for each piece, and a piece that has arrived is returned
without waiting.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from bayplan.client.connection_pool import ConnectionPool, HTTPConnection, NoResponseError, Route
from bayplan.client.transport import (
    LATE,
    TOO_LARGE,
    Headers,
    LostError,
    Request,
    ResponseReader,
)

READ_AHEAD_BYTES: Final = 1 << 20
"""How much is read ahead of the reader of the stream."""


class _Connection(HTTPConnection):
    """A connection for responses that are read piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._stream: Stream | None = None

    def start(self, data: bytes, pool: StreamPool) -> Stream:
        """Sends a request."""
        assert self._link is not None
        self._reader = ResponseReader()
        self._stream = Stream(self, self._reader, pool)
        self._link.write(data)
        return self._stream

    @property
    def is_awaiting(self) -> bool:
        return self._stream is not None and self._reader.response is None

    def fed(self, size: int) -> None:
        if self._stream is not None:
            self._stream.fed(size)

    def fail(self, error: LostError) -> None:
        if self._stream is not None:
            self._stream.fail(error)
        self.abort()


class Stream:
    """A response that is read piece by piece."""

    status: int
    retry_after: str

    def __init__(self, connection: _Connection, reader: ResponseReader, pool: StreamPool) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection: _Connection | None = connection
        self._reader = reader
        self._pool = pool
        self._error: LostError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waits_since = self._waits_for = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._unread = 0
        self._is_paused = False

    @property
    def has_begun(self) -> bool:
        return self._reader.status != 0

    async def begin(self, seconds: float) -> None:
        """Waits for the head of the response."""
        while not self._reader.status:
            if self._error is not None:
                raise self._error
            await self._wait(seconds, LATE)
        self.status, self.retry_after = self._reader.status, self._reader.retry_after

    async def read(self, seconds: float) -> bytes:
        """Waits for the next piece; empty at the end.

        Raises:
            LostError: the connection is lost, or nothing was received for this time.
        """
        while True:
            piece = self._reader.take()
            if piece:
                self._unread = 0
                if self._is_paused:
                    self._is_paused = False
                    if self._connection is not None:
                        self._connection.resume()
                return piece
            if self._reader.response is not None:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait(seconds, "")

    async def read_all(self, seconds: float, max_bytes: float = inf) -> bytes | bytearray:
        """The whole response. `seconds` is the timeout for each piece.

        Raises:
            LostError: as `read`, or it is larger than `max_bytes`.
        """
        whole: bytes | bytearray = await self.read(seconds)
        while piece := await self.read(seconds):
            if len(whole) + len(piece) > max_bytes:
                raise LostError(TOO_LARGE)
            # In place: a list may have hundreds of megabytes, and joining pieces would double them.
            whole = bytearray(whole) if isinstance(whole, bytes) else whole
            whole += piece
        return whole

    def close(self) -> None:
        """Ends the response. The connection is reused only if the response was complete."""
        if self._connection is not None:  # the response is not complete
            self.fail(LostError("the stream was closed"))
            self._connection.abort()
            self._leave()

    # Called by the connection

    def fed(self, size: int) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._reader.response is not None:
            self._leave()
            self._pool.keep(connection)
        else:
            self._unread += size
            if self._unread > READ_AHEAD_BYTES and not self._is_paused:
                self._is_paused = True
                connection.pause()
        self._wake()

    def fail(self, error: LostError) -> None:
        self._error = self._error or error
        self._wake()

    # Waiting

    async def _wait(self, seconds: float, message: str) -> None:
        """Waits until something arrives.

        One timer serves many waits: when it expires it checks how long the current wait has lasted.
        """
        self._waiter = self._loop.create_future()
        self._waits_since, self._waits_for = self._loop.time(), seconds
        if self._alarm is None or self._alarm.when() > self._waits_since + seconds:
            self._set_alarm()
        try:
            await self._waiter
        except TimeoutError:
            raise LostError(message or f"nothing was received for {seconds:g} seconds") from None
        finally:
            self._waiter = None

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._waits_since + self._waits_for, self._check_timeouts)

    def _check_timeouts(self) -> None:
        self._alarm = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() >= self._waits_since + self._waits_for:
            self._waiter.set_exception(TimeoutError())
        else:
            self._set_alarm()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _leave(self) -> None:
        """Gives up the connection."""
        self._connection = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class StreamPool(ConnectionPool[_Connection]):
    """Streams of one server."""

    def __init__(self, route: Route) -> None:
        super().__init__(route, _Connection)

    async def open(self, request: Request, headers: Headers, seconds: float) -> Stream:
        """Sends a request and waits for the head of its response.

        Raises:
            NotSentError: the server cannot be reached.
            LostError: there is no response, or not in time.
        """
        data = self._encoded(request, headers)
        connection = self._take_idle()
        if connection is not None:
            try:
                return await self._begin(connection, data, seconds)
            except NoResponseError:
                # The server may have closed an idle connection just before.
                if not request.repeatable:
                    raise
        return await self._begin(await self._connect(seconds), data, seconds)

    def keep(self, connection: _Connection) -> None:
        """Keeps a connection whose response is complete."""
        self._return_to_pool(connection)

    async def _begin(self, connection: _Connection, data: bytes, seconds: float) -> Stream:
        stream = connection.start(data, self)
        try:
            await stream.begin(seconds)
        except BaseException:
            stream.close()
            raise
        return stream
