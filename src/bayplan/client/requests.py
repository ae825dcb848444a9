"""Sending requests to the API server: as whom, how fast, how often, and what its answers mean.

    limit ─► credentials ─► transport ─► answer ── 401, and there are newer credentials ──► again, once
                               │           ├────── 429, or 5xx of what does no harm twice,
                               │           │       with Retry-After ─────────────────────► again, 10 times
                               │           └────── any other refusal ──► NotFound, Conflict, Gone, Server, API
                               ├─ could not be sent ──────────────────► UnreachableError (a ServerError)
                               └─ no answer ──────────────────────────► UnknownOutcomeError for a write

So an error always says whether something may have happened.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from bayplan import __version__
from bayplan.client.access import Access
from bayplan.client.api_errors import TooLargeError, refusal
from bayplan.client.credentials import Credentials
from bayplan.client.rate_limit import TokenBucket
from bayplan.client.request_metrics import RequestMetrics
from bayplan.client.short_requests import ShortRequestPool
from bayplan.client.streams import Stream, StreamPool, Streams
from bayplan.client.tls import ServerTLS
from bayplan.client.transport import ApiResponse, Headers, LostError, NotSentError, Request, Transport
from bayplan.errors import APIError, ServerError, UnknownOutcomeError
from bayplan.metrics.instruments import Families

REQUEST_SECONDS: Final = 30.0
"""For the answer to a short request; the server itself gives up after a minute."""
MAX_RETRIES: Final = 10

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

ResultT = TypeVar("ResultT", ApiResponse, Stream)

_log = logging.getLogger(__name__)


class UnreachableError(ServerError):
    """The server could not be reached: nothing was sent."""

    code = 0


class NotLeadingError(APIError):
    """Nothing was written: our lease has lapsed, so another may lead by now."""

    def __init__(self) -> None:
        super().__init__("nothing was written: the lease has lapsed, so another scheduler may lead by now")


class Connections:
    """What all clients of one API server share: credentials, long connections, and how to open short ones.

    Args:
        access: where the server is and as whom to speak to it.
        now: seconds since the epoch.
        metrics: where requests are counted; None for nowhere.
    """

    def __init__(
        self, access: Access, *, now: Callable[[], float] = time.time, metrics: Families | None = None
    ) -> None:
        server = urlsplit(access.server)
        host = server.netloc.rpartition("@")[2]
        self.metrics = None if metrics is None else RequestMetrics(metrics, host)
        tls = ServerTLS(access.tls) if access.uses_tls else None
        self.server = access.server
        self.streams: Streams = (
            _proxied_streams(server, tls, access.proxy) if access.proxy else StreamPool(server, tls)
        )
        self.credentials = Credentials(access, tls, now=now, when_shown=self._forget)
        self._url = server
        self._tls = tls
        self._wires: list[ShortRequestPool] | None = None if access.proxy else []

    def short(self, response_delay: float = 0.0) -> Transport:
        """A dedicated pool for short requests, which do not wait for those of others."""
        if self._wires is None:
            return self.streams
        wire = ShortRequestPool(self._url, self._tls, response_delay)
        self._wires.append(wire)
        return wire

    async def close(self) -> None:
        await asyncio.gather(*(wire.close() for wire in self._wires or ()), self.streams.close())

    def _forget(self) -> None:
        for wire in (*(self._wires or ()), self.streams):
            wire.forget()


class Requests:
    """One client of an API server, with a rate limit and a name of its own.

    Args:
        connections: to the server.
        bucket: the rate limit; None for none.
        component: what the client is for, as part of the User-Agent.
        seconds: for the answer to a short request.
        response_delay: seconds after which responses to short requests are read (`short_requests.py`).
        may_write: asked right before a write is sent; where it says no there is a NotLeadingError. A process
            that was paused wakes up believing that it leads, but can tell by its clock that its lease may
            have lapsed: then it starts no write, and one that was in progress can only lose against the new
            leader's (409).
    """

    def __init__(
        self,
        connections: Connections,
        bucket: TokenBucket | None = None,
        *,
        component: str = "scheduler",
        seconds: float = REQUEST_SECONDS,
        response_delay: float = 0.0,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self.connections = connections
        self.seconds = seconds
        self._short = connections.short(response_delay)
        self._permit = None if may_write is None else _refuse_unless(may_write)
        self._bucket = bucket
        self._about_us = (("Accept", JSON), ("User-Agent", user_agent(component)))
        self._identity: Headers | None = None
        self._headers = Headers()

    async def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        content_type: str = JSON,
        repeatable: bool = True,
        seconds: float | None = None,
    ) -> bytes:
        """The body of the answer to a short request.

        Args:
            method: GET, POST, PUT, PATCH, DELETE.
            target: path and query.
            repeatable: carrying it out twice does no harm.

        Raises:
            APIError: what went wrong; see the picture above.
        """
        permit = None if method == "GET" else self._permit
        request = Request(method, target, body, content_type, repeatable, permit)
        transport, limit = self._short, self.seconds if seconds is None else seconds
        metrics, clock = self.connections.metrics, asyncio.get_running_loop().time
        began = clock()
        try:
            answer = await self._until_accepted(
                request, lambda headers: transport.send(request, headers, limit)
            )
        finally:
            if metrics is not None:
                metrics.took(method, clock() - began)
        if metrics is not None:
            metrics.carried(method, len(body), len(answer.body))
        return answer.body

    async def open(self, target: str, seconds: float | None = None) -> Stream:
        """A long answer, to be read (and closed) by the caller. `seconds` is for its beginning."""
        request = Request("GET", target)
        streams, limit = self.connections.streams, self.seconds if seconds is None else seconds
        return await self._until_accepted(request, lambda headers: streams.open(request, headers, limit))

    async def _until_accepted(
        self, request: Request, act: Callable[[Headers], Awaitable[ResultT]]
    ) -> ResultT:
        retries, renewed = 0, False
        credentials, metrics = self.connections.credentials, self.connections.metrics
        while True:
            if self._bucket is not None:
                waited = await self._bucket.wait()
                if metrics is not None:
                    metrics.held_back(request.method, waited)
            identity: Headers = await credentials.identity()
            if identity is not self._identity:
                self._headers = Headers((*self._about_us, *identity.pairs))
                self._identity = identity
            try:
                result = await act(self._headers)
                if metrics is not None:
                    metrics.tried(request.method, result.status)
                if result.status < 300:
                    return result
                body = result.body if isinstance(result, ApiResponse) else await self._content(result)
            except NotSentError as error:
                if metrics is not None:
                    metrics.tried(request.method, None)
                raise UnreachableError(self._failed(request, error)) from error
            except LostError as error:
                if metrics is not None:
                    metrics.tried(request.method, None)
                if request.method == "GET":
                    raise ServerError(self._failed(request, error), 0) from error
                raise UnknownOutcomeError(self._failed(request, error)) from error
            if result.status == 401 and not renewed and await credentials.refused(identity):
                renewed = True
                continue
            wait = _retry_seconds(request, result.status, result.retry_after)
            refused = refusal(result.status, body, f"{request.method.lower()} {request.target}")
            # A version of the future is no nearer in a second; the caller can request without it.
            if wait is None or retries >= MAX_RETRIES or isinstance(refused, TooLargeError):
                raise refused
            retries += 1
            _log.debug("%s %s: %d, again in %d s", request.method, request.target, result.status, wait)
            await asyncio.sleep(wait)

    async def _content(self, stream: Stream) -> bytes:
        try:
            return bytes(await stream.read_all(self.seconds))
        finally:
            stream.close()

    def _failed(self, request: Request, error: Exception) -> str:
        return f'{request.method.title()} "{self.connections.server}{request.target}": {error}'


def _proxied_streams(server: SplitResult, tls: ServerTLS | None, proxy: str) -> Streams:
    # Imported here: aiohttp takes a quarter of a start, and few clusters are behind a proxy.
    from bayplan.client.proxied_streams import ProxiedStreamPool

    return ProxiedStreamPool(server, tls, proxy)


def _refuse_unless(may_write: Callable[[], bool]) -> Callable[[], None]:
    def permit() -> None:
        if not may_write():
            raise NotLeadingError

    return permit


def user_agent(component: str) -> str:
    """Who we say we are, in the form that Kubernetes' own programs use."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"bayplan/v{__version__} ({platform.system().lower()}/{machine})/{component}"


def _retry_seconds(request: Request, status: int, retry_after: str) -> int | None:
    """How long the server asks us to wait before another try; None if there is to be none.

    429 comes before a request is looked at. Other trouble may have come after it was carried out.
    """
    if status != 429 and not (status >= 500 and request.repeatable):
        return None
    return int(retry_after) if retry_after.isdecimal() else None
