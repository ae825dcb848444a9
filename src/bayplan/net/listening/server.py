"""aiohttp's server, with limits for connections and for clients that do not read."""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from bayplan.net.listening.limits import Limits
from bayplan.net.listening.throttle import ThrottledLog

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
