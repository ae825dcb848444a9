"""HTTP client for one extender: POST requests over persistent connections.

The HTTP library is not visible outside this file: every failure is an `ExtenderError`. Its text is upstream's
where the protocol defines it, and otherwise that of Go's HTTP client in the most common cases, because that
is what people search for.

Requests go directly to the extender: proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from dataclasses import replace
from typing import Final, Protocol

import aiohttp

from bayplan.config.model import Extender as ExtenderSettings
from bayplan.config.model import ExtenderTLSConfig
from bayplan.errors import BayplanError, ConfigError
from bayplan.framework.args import Duration, quoted
from bayplan.net.http_logs import shown_url
from bayplan.net.tls import ClientTLS, TLSSettings

DEFAULT_TIMEOUT: Final = Duration.of(seconds=5)
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
MAX_REDIRECTS: Final = 10

_FAILED: Final = "failed {verb} with extender at URL {url}"
_TOO_LARGE: Final = f"the response is larger than {MAX_RESPONSE_BYTES >> 20} MiB"
_LATE_HEADERS: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_LATE_BODY: Final = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
_LARGE_BODY_BYTES: Final = 512 * 1024
"""Larger requests are sent in chunks, so that other connections are served in between."""
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "bayplan"}


class ExtenderError(BayplanError):
    """A request to an extender failed, or its answer was an error; users see the text."""

    url: str
    """urlPrefix of the extender, as configured."""

    def __init__(self, url: str, message: str) -> None:
        super().__init__(message)
        self.url = url


class Transport(Protocol):
    """The connection to an extender. Tests replace it."""

    async def post(self, verb: str, body: bytes, *, repeatable: bool) -> bytes:
        """The body of the response.

        Args:
            repeatable: whether the request may be sent twice.

        Raises:
            ExtenderError: there is no successful response.
        """

    async def close(self) -> None: ...


class _Call:
    """One try of a request. Records whether it used an existing connection."""

    reused = False


class ExtenderClient:
    """The transport over HTTP or HTTPS."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self._url_prefix = settings.url_prefix
        self._shown_prefix = shown_url(settings.url_prefix)
        seconds = (settings.http_timeout or DEFAULT_TIMEOUT).seconds
        # As in Go, a negative timeout means no timeout.
        self._timeout = seconds if seconds > 0 else None
        is_https = settings.url_prefix.lower().startswith("https:")
        uses_tls = is_https or settings.enable_https or settings.tls_config is not None
        self._tls = _tls(settings) if uses_tls else None
        self._session: aiohttp.ClientSession | None = None

    async def post(self, verb: str, body: bytes, *, repeatable: bool) -> bytes:
        url, shown = (f"{each.rstrip('/')}/{verb}" for each in (self._url_prefix, self._shown_prefix))
        answering = False
        try:
            async with asyncio.timeout(self._timeout):
                async with await self._send(url, body, repeatable) as response:
                    if response.status != 200:
                        raise self._error(f"{_FAILED.format(verb=verb, url=shown)}, code {response.status}")
                    answering = True
                    return await self._content(response, verb, shown)
        except TimeoutError as error:
            raise self._error(_LATE_BODY if answering else _post(shown, _LATE_HEADERS)) from error
        except aiohttp.ClientPayloadError as error:
            raise self._error("unexpected EOF") from error
        except (aiohttp.ClientError, ConfigError, OSError, ValueError) as error:
            raise self._error(_post(shown, _explained(error))) from error

    async def close(self) -> None:
        """Closes the idle connections. A later call opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _send(self, url: str, body: bytes, repeatable: bool) -> aiohttp.ClientResponse:
        """Sends until a connection works.

        The extender may have closed an idle connection in the meantime. A repeatable request is then sent
        again, in the end over a new connection; a bind request is not, because it may have been executed.
        """
        if self._session is None:
            self._session = _session()
        while True:
            call = _Call()
            try:
                return await self._session.post(
                    url,
                    data=body if len(body) < _LARGE_BODY_BYTES else io.BytesIO(body),
                    headers=_HEADERS,
                    ssl=True if self._tls is None else self._tls.context(),
                    server_hostname=None if self._tls is None else self._tls.server_name,
                    max_redirects=MAX_REDIRECTS,
                    trace_request_ctx=call,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not (call.reused and repeatable):
                    raise

    async def _content(self, response: aiohttp.ClientResponse, verb: str, url: str) -> bytes:
        too_large = self._error(f"{_FAILED.format(verb=verb, url=url)}: {_TOO_LARGE}")
        if (response.content_length or 0) > MAX_RESPONSE_BYTES:
            raise too_large
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > MAX_RESPONSE_BYTES:
                raise too_large
            pieces.append(piece)
        return b"".join(pieces)

    def _error(self, text: str) -> ExtenderError:
        return ExtenderError(self._shown_prefix, text)


def _tls(settings: ExtenderSettings) -> ClientTLS:
    """As in kube-scheduler, HTTPS without any CA disables verification, and half a client certificate is not
    used."""
    given = settings.tls_config or ExtenderTLSConfig()
    has_ca = bool(given.ca_file or given.ca_data)
    tls = TLSSettings(
        ca_file=given.ca_file,
        ca_data=given.ca_data,
        insecure=given.insecure or (settings.enable_https and not has_ca),
        server_name=given.server_name,
    )
    if (given.cert_file or given.cert_data) and (given.key_file or given.key_data):
        tls = replace(
            tls,
            cert_file=given.cert_file,
            cert_data=given.cert_data,
            key_file=given.key_file,
            key_data=given.key_data,
        )
    try:
        return ClientTLS(tls, defer_certificate=True)
    except ConfigError as error:
        raise ConfigError(f"couldn't build extenders: {error}") from error


def _session() -> aiohttp.ClientSession:
    """A session in the running loop. It only holds connections; timeouts are applied in `post`."""
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[tracing],
    )


async def _note_reuse(
    session: aiohttp.ClientSession, context: object, params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    call = getattr(context, "trace_request_ctx", None)
    assert isinstance(call, _Call)
    call.reused = True


def _post(url: str, why: str) -> str:
    return f"Post {quoted(url)}: {why}"


def _explained(error: Exception) -> str:
    """The error in Go's words, as far as they are known."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"tls: failed to verify certificate: {_certificate_problem(error.certificate_error)}"
        case aiohttp.ClientSSLError():
            return f"tls: {getattr(error.os_error, 'reason', None) or error.os_error}"
        case aiohttp.ClientConnectorError():
            return _not_connected(error)
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case aiohttp.TooManyRedirects():
            return f"stopped after {MAX_REDIRECTS} redirects"
        case aiohttp.InvalidURL():
            return "invalid URL"
        case aiohttp.ClientResponseError():
            return "malformed HTTP response"
        case OSError(strerror=str(text)) if text:
            return text.lower()
        case _:
            return str(error) or type(error).__name__


def _certificate_problem(error: Exception) -> str:
    text = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
    return text.rstrip(".")


def _not_connected(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error.os_error, socket.gaierror):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error.os_error, ConnectionRefusedError):
        reason = "connection refused"
    else:
        reason = (error.os_error.strerror or str(error.os_error) or "connection lost").lower()
    return f"dial tcp {error.host}:{error.port}: connect: {reason}"
