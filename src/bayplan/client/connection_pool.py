"""A pool of connections to one server: opened, reused and renewed. `short_requests.py` and `streams.py` are
based on it.

A connection has one request at a time (HTTP/1.1 without pipelining). Its TLS takes few steps for each read
and write: asyncio's own TLS passes every read through a dozen methods, calls OpenSSL until it raises, and has
two buffers of its own. In a process that wakes up for a few hundred bytes, with cold caches, that costs as
much as the request itself. Here OpenSSL works in memory between a plain transport and a protocol, and is
called only while there is something to decrypt.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit

from bayplan.client.transport import (
    CLOSED,
    CONNECT_SECONDS,
    MAX_HEAD_BYTES,
    Headers,
    LostError,
    NotSentError,
    ProxyError,
    Request,
    ResponseReader,
    end_openings,
    keep_alive,
    wait_for_transports,
    was_ended,
    why_not_connected,
)
from bayplan.errors import ConfigError
from bayplan.net.tls import ClientTLS, TLSSettings

SECOND_ADDRESS_SECONDS: Final = 0.25
"""If a name has several addresses, the next one is tried after this time without a response."""
READ_BYTES: Final = 1 << 16
"""More than a TLS record holds, so that one read empties it."""


class Link(Protocol):
    """The connection of a protocol, with or without TLS."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str) -> Any: ...


class UpperProtocol(Protocol):
    """A protocol on a connection. `made` is called when requests can be sent."""

    def made(self, link: Link) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class _Plain(asyncio.Protocol):
    """Passes everything on."""

    def __init__(self, upper: UpperProtocol) -> None:
        self._upper = upper

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._upper.made(cast(Link, transport))

    def data_received(self, data: bytes) -> None:
        self._upper.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._upper.connection_lost(error)


class TLSLayer(asyncio.Protocol):
    """TLS between a plain transport (or a tunnel), whose protocol it is, and an upper protocol, whose link it
    is."""

    def __init__(self, context: ssl.SSLContext, server_name: str, upper: UpperProtocol) -> None:
        self.handshake_done = asyncio.get_running_loop().create_future()
        """Done when the handshake is; `ssl.SSLError` or `OSError` if it failed."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._read = self._tls.read
        self._upper = upper
        self._transport: Link
        self._is_open = False

    # Called by the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made(cast(Link, transport))

    def made(self, link: Link) -> None:
        self._transport = link
        self._continue_handshake()

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        incoming.write(data)
        if not self._is_open and not self._continue_handshake():
            return
        try:
            while incoming.pending:
                text = self._read(READ_BYTES)
                if not text:
                    self._transport.close()  # the server sent close_notify
                    break
                self._upper.data_received(text)
        except ssl.SSLWantReadError:
            pass  # a record that has not arrived whole, or one that carries no data
        except ssl.SSLError:
            self._transport.abort()
            return
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def connection_lost(self, error: Exception | None) -> None:
        if not self.handshake_done.done():
            self._fail(error or ConnectionResetError())
        if self._is_open:
            self._upper.connection_lost(error)

    # Called by the upper protocol

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Sends close_notify, without waiting for the server's."""
        with suppress(ssl.SSLError):  # it would wait for the server's
            self._tls.unwrap()
        self._transport.write(self._outgoing.read())
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

    def _continue_handshake(self) -> bool:
        """Continues the handshake. False if it is not complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._transport.write(self._outgoing.read())
            return False
        except ssl.SSLError as error:
            self._transport.write(self._outgoing.read())  # the alert
            self._fail(error)
            self._transport.close()
            return False
        self._transport.write(self._outgoing.read())
        self._is_open = True
        if not self.handshake_done.done():
            self._upper.made(self)
            self.handshake_done.set_result(None)
        return True

    def _fail(self, error: Exception) -> None:
        if not self.handshake_done.done():
            self.handshake_done.set_exception(error)
            self.handshake_done.exception()  # marks it as retrieved: there may be no waiter left


class Tunnel:
    """A tunnel through a proxy: the upper protocol is connected when the proxy has opened it."""

    def __init__(self, request: bytes, upper: UpperProtocol) -> None:
        self.opened = asyncio.get_running_loop().create_future()
        """Done when the tunnel is open; `OSError` if it could not be opened."""
        self._request = request
        self._upper = upper
        self._link: Link
        self._head = b""
        self._is_open = False

    def made(self, link: Link) -> None:
        self._link = link
        link.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._upper.data_received(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(head) > MAX_HEAD_BYTES:
                self._fail(ProxyError("the response of the proxy is too large"))
            return
        _, _, status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if not status.startswith("200"):
            self._fail(ProxyError(status or "malformed HTTP response"))
            return
        self._is_open = True
        self.opened.set_result(None)
        self._upper.made(self._link)
        if rest:
            self._upper.data_received(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_open:
            self._upper.connection_lost(error)
        else:
            self._fail(error or ProxyError("EOF"))

    def _fail(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # marks it as retrieved: there may be no waiter left
        self._link.abort()


class Route:
    """How to reach a server: directly, or through a proxy.

    As Go does, TLS to the proxy itself (`https://`) uses the settings for the server.

    Args:
        server: the URL of the server.
        tls: None for plain HTTP.
        proxy: the URL of the proxy; empty: directly.
    """

    def __init__(self, server: SplitResult, tls: ClientTLS | None, proxy: str = "") -> None:
        via = urlsplit(proxy) if proxy else None
        netloc = server.netloc.rpartition("@")[2]
        name, port = server.hostname or "", server.port or (443 if tls is not None else 80)
        self.host, self.port = name, port
        """Where to connect to."""
        self.prefix = server.path
        """What comes before the path in each request."""
        self.headers = f"Host: {netloc}\r\n"
        """In each request."""
        self._tls = tls
        self._name = name if tls is None else tls.server_name or name
        self._proxy_tls: ClientTLS | None = None
        self._tunnel = b""
        self._is_proxied = via is not None
        if via is None:
            return
        self.host, self.port = via.hostname or "", via.port or (443 if via.scheme == "https" else 80)
        authorization = ""
        if via.username is not None:
            pair = f"{unquote(via.username)}:{unquote(via.password or '')}".encode()
            authorization = f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}\r\n"
        if via.scheme == "https":
            self._proxy_tls = tls or ClientTLS(TLSSettings())
        if tls is None:
            self.prefix = f"http://{netloc}{server.path}"
            self.headers += authorization
        else:
            target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n"
            self._tunnel = head.encode("ascii")

    def why_not_connected(self, error: BaseException) -> str:
        """Why a connection could not be opened, in Go's words where they are known."""
        prefix = "proxyconnect tcp: " if self._is_proxied and not isinstance(error, ssl.SSLError) else ""
        return prefix + why_not_connected(error, self.host, self.port)

    async def connect(self, upper: UpperProtocol, seconds: float) -> None:
        """Opens a connection for a protocol, with tunnel and handshakes.

        Raises:
            OSError: it cannot be opened, or not within the time (TimeoutError).
            ssl.SSLError: a handshake failed, or a certificate is not valid.
        """
        loop = asyncio.get_running_loop()
        # uvloop has no such option and tries the addresses of a name one after the other.
        options: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop):
            options["happy_eyeballs_delay"] = SECOND_ADDRESS_SECONDS
        async with asyncio.timeout(seconds):
            top, steps = upper, list[asyncio.Future[None]]()
            if self._tls is not None:
                top = TLSLayer(self._tls.context(), self._name, top)
                steps.append(top.handshake_done)
            if self._tunnel:
                top = Tunnel(self._tunnel, top)
                steps.append(top.opened)
            if self._proxy_tls is not None:
                top = TLSLayer(self._proxy_tls.context(), self.host, top)
                steps.append(top.handshake_done)
            bottom = top if isinstance(top, TLSLayer) else _Plain(top)
            transport, _ = await loop.create_connection(lambda: bottom, self.host, self.port, **options)
            try:
                for step in reversed(steps):
                    await step
            except BaseException:
                transport.abort()
                raise


# The pool

IDLE_SECONDS: Final = 60.0
"""A connection that was idle for this time is not reused: the server may be about to close it."""
LIFETIME_SECONDS: Final = 600.0
"""Connections are renewed after this time: certificates are rotated, and load balancers get new servers."""


class NoResponseError(LostError):
    """The connection ended before the first byte of a response."""


class HTTPConnection:
    """One connection. If `is_open` is false it must not be used any more."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_reused = False
        self.opened_at = self.used_at = asyncio.get_running_loop().time()
        self.ended: Callable[[], None] = lambda: None
        """Called when the connection is lost."""
        self._reader = ResponseReader()
        self._link: Link | None = None

    # Called by the link

    def made(self, link: Link) -> None:
        self._link = link
        self.is_open = True
        keep_alive(link.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if not self.is_awaiting:
            self.abort()  # data without a request, or after its response
            return
        reader = self._reader
        try:
            reader.feed(data)
        except ValueError as error:
            self.fail(LostError(f"net/http: HTTP/1.x transport connection broken: {error}"))
            return
        if reader.response is not None:
            self.is_open = self.is_open and not reader.will_close
        self.fed(len(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        reader, was_awaiting = self._reader, self.is_awaiting
        reader.end()
        if was_awaiting:
            if reader.response is not None:
                self.fed(0)
            elif reader.has_begun:
                self.fail(LostError("unexpected EOF"))
            else:
                reason = getattr(error, "strerror", None) or "EOF"
                self.fail(NoResponseError(reason.replace("Conn", "conn")))
        self.ended()

    # For the kinds of requests

    @property
    def is_awaiting(self) -> bool:
        """Whether (the rest of) a response is expected."""
        raise NotImplementedError

    def fed(self, size: int) -> None:
        """More of the response is in the reader, perhaps all of it."""
        raise NotImplementedError

    def fail(self, error: LostError) -> None:
        """There will be no more of the response."""
        raise NotImplementedError

    # For the pool

    def pause(self) -> None:
        """Reads nothing until `resume`."""
        if self._link is not None and self.is_open:
            self._link.pause_reading()

    def resume(self) -> None:
        if self._link is not None and self.is_open:
            self._link.resume_reading()

    def abort(self) -> None:
        self.is_open = False
        if self._link is not None:
            self._link.abort()

    def close(self) -> None:
        self.is_open = False
        if self._link is not None:
            self._link.close()


ConnectionT = TypeVar("ConnectionT", bound=HTTPConnection)


class ConnectionPool(Generic[ConnectionT]):
    """Connections to one server."""

    def __init__(self, route: Route, make: Callable[[], ConnectionT]) -> None:
        self._route = route
        self._headers = f" HTTP/1.1\r\n{route.headers}"
        self._make = make
        self._connections: set[ConnectionT] = set()
        self._opening: set[asyncio.Task[ConnectionT]] = set()
        self._idle: list[ConnectionT] = []
        self._renewed_at = float("-inf")
        self._is_closed = False

    def forget(self) -> None:
        """Does not reuse connections that are open now. Requests in progress get their responses."""
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
        await wait_for_transports()

    def _encoded(self, request: Request, headers: Headers) -> bytes:
        """The request as it is sent."""
        head = f"{request.method} {self._route.prefix}{request.target}{self._headers}"
        if request.body:
            head = f"{head}Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
        return b"".join((head.encode("ascii"), headers.block, b"\r\n", request.body))

    def _take_idle(self) -> ConnectionT | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.used_at < IDLE_SECONDS:
                connection.is_reused = True
                return connection
            connection.close()
        return None

    def _return_to_pool(self, connection: ConnectionT) -> None:
        now, opened_at = asyncio.get_running_loop().time(), connection.opened_at
        if connection.is_open and opened_at > self._renewed_at and now - opened_at < LIFETIME_SECONDS:
            connection.used_at = now
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self, seconds: float) -> ConnectionT:
        """Opens a new connection.

        If the caller is cancelled, the connection is still opened, and kept for the next request.
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
            opening.add_done_callback(self._opened_after_cancel)
            raise
        except (OSError, ConfigError) as error:
            raise NotSentError(self._route.why_not_connected(error)) from error

    async def _open(self, seconds: float) -> ConnectionT:
        connection = self._make()
        connection.ended = lambda: self._connections.discard(connection)
        await self._route.connect(connection, seconds)
        if connection.is_open:
            self._connections.add(connection)
        return connection

    def _opened_after_cancel(self, opening: asyncio.Task[ConnectionT]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._return_to_pool(opening.result())
