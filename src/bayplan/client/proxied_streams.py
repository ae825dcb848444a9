"""Requests through a proxy, with aiohttp.

No other file of the client uses aiohttp.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import SplitResult

import aiohttp
import yarl
from aiohttp.connector import Connection

from bayplan.client.streams import READ_AHEAD_BYTES, Stream, Streams
from bayplan.client.transport import (
    CLOSE_SECONDS,
    CLOSED,
    CONNECT_SECONDS,
    LATE,
    Headers,
    LostError,
    NotSentError,
    Request,
    end_openings,
    keep_alive,
    wait_for_transports,
    was_ended,
    why_not_connected,
)
from bayplan.errors import ConfigError
from bayplan.net.tls import ClientTLS

_IDENTITY: Final = ("Accept-Encoding", "identity")


class _Response(aiohttp.ClientResponse):
    """Aborts its connection if it ends early. aiohttp would close it, which waits for the server's part of
    the TLS shutdown."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        try:
            return await super().start(connection)
        except BaseException:
            _abort(connection)
            raise

    def close(self) -> None:
        if self.connection is not None:  # the response is not complete
            _abort(self.connection)
        super().close()


def _abort(connection: Connection) -> None:
    if connection.transport is not None:
        connection.transport.abort()


class ProxiedStream(Stream):
    """A response that is read through aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse, ended: Callable[[ProxiedStream], None]) -> None:
        self._response = response
        self._ended = ended
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After", "")
        if response.connection is not None and response.connection.transport is not None:
            keep_alive(response.connection.transport.get_extra_info("socket"))

    async def read(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await self._response.content.readany()
        except TimeoutError as error:
            raise LostError(f"nothing was received for {seconds:g} seconds") from error
        except aiohttp.ClientPayloadError as error:
            raise LostError("unexpected EOF") from error
        except (aiohttp.ClientError, OSError) as error:
            raise LostError(str(error) or "connection lost") from error

    def close(self) -> None:
        self._response.close()
        self._ended(self)


class ProxiedStreamPool(Streams):
    """Connections to one server through a proxy, if one is given. `tls` is None for plain HTTP."""

    def __init__(self, server: SplitResult, tls: ClientTLS | None, proxy: str = "") -> None:
        self._server = server.geturl()
        self._tls = tls
        self._proxy = proxy or None
        self._session: aiohttp.ClientSession | None = None
        self._opening: set[asyncio.Task[aiohttp.ClientResponse]] = set()
        self._open: set[ProxiedStream] = set()
        self._is_closed = False

    async def open(self, request: Request, headers: Headers, seconds: float) -> Stream:
        try:
            async with asyncio.timeout(seconds):
                stream = ProxiedStream(await self._response(request, headers), self._open.discard)
                self._open.add(stream)
                return stream
        except aiohttp.ClientConnectorError as error:
            raise NotSentError(why_not_connected(_cause(error), error.host, error.port or 0)) from error
        except (aiohttp.ClientHttpProxyError, ConfigError, aiohttp.InvalidURL) as error:
            raise NotSentError(_proxy_problem(error)) from error
        except TimeoutError as error:
            raise LostError(LATE) from error
        except aiohttp.ServerDisconnectedError as error:
            raise LostError("EOF") from error
        except (aiohttp.ClientError, OSError) as error:
            raise LostError(getattr(error, "strerror", None) or str(error) or "connection lost") from error

    def forget(self) -> None:
        """Nothing to do: aiohttp itself opens new connections if the certificate has changed."""

    async def close(self) -> None:
        self._is_closed = True
        await end_openings(self._opening)
        for stream in tuple(self._open):
            stream.close()
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
        await wait_for_transports()

    async def _response(self, request: Request, headers: Headers) -> aiohttp.ClientResponse:
        """The response, as soon as its head has arrived.

        If the caller is cancelled, the request is cancelled a little later: asyncio leaks sockets that are
        cancelled at the beginning of a TLS handshake.
        """
        if self._is_closed:
            raise NotSentError(CLOSED)
        opening = asyncio.ensure_future(self._request(request, headers))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if was_ended(opening):
                raise LostError(CLOSED) from None
            opening.add_done_callback(_opened_after_cancel)
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, opening.cancel)
            raise

    async def _request(self, request: Request, headers: Headers) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=READ_AHEAD_BYTES,
                response_class=_Response,
            )
        pairs = [*headers.pairs, _IDENTITY]
        if request.body:
            pairs.append(("Content-Type", request.content_type))
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl": self._tls.context(), "server_hostname": self._tls.server_name}
        return await self._session.request(
            request.method,
            yarl.URL(self._server + request.target, encoded=True),
            data=request.body or None,
            headers=pairs,
            proxy=self._proxy,
            allow_redirects=False,
            **tls,
        )


def _opened_after_cancel(opening: asyncio.Task[aiohttp.ClientResponse]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _cause(error: aiohttp.ClientConnectorError) -> BaseException:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    inner: BaseException = error.os_error
    if isinstance(inner.__cause__, ssl.SSLError):
        return inner.__cause__
    return inner


def _proxy_problem(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"proxyconnect tcp: {error.status} {error.message}".strip()
    if isinstance(error, aiohttp.InvalidURL):
        return "proxyconnect tcp: the URL of the proxy is invalid"  # not shown: it may hold a password
    return str(error)
