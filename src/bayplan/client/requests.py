"""Sends requests to the API server: rate limit, credentials, retries, and the meaning of responses.

    limit ─► credentials ─► transport ─► response ── 401, and the credentials changed ──► again, once
                               │           ├──────── 429 with Retry-After, or 5xx with it
                               │           │         if the request is repeatable ──────► again, 10 times
                               │           └──────── any other error ──► NotFound, Conflict, Gone, Server, API
                               ├─ could not be sent ──────────────────► UnreachableError (a ServerError)
                               └─ no response ────────────────────────► UnknownOutcomeError for a write

So an error always tells whether the request may have taken effect.

The client-side rate limit (`clientConnection.qps` and `burst`) is a token bucket, as upstream: `burst`
requests at once, then `qps` per second, first come, first served. It protects the API server, in addition to
the server's own priority and fairness (429).

Requests are counted as in client-go (`rest_client_*`): each try with its code, or `<error>` if there was no
response; duration and size are those of the whole request, with all tries and waits. Watches, which last for
minutes, have neither.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit

from bayplan import __version__
from bayplan.client.access import Access
from bayplan.client.api_errors import DisruptionBudgetError, TooLargeError, response_error
from bayplan.client.connection_pool import Route
from bayplan.client.credentials import Credentials
from bayplan.client.short_requests import ShortRequestPool
from bayplan.client.streams import Stream, StreamPool
from bayplan.client.transport import (
    MAX_RESPONSE_BYTES,
    ApiResponse,
    Headers,
    LostError,
    NotSentError,
    Request,
)
from bayplan.errors import APIError, ConfigError, ServerError, UnknownOutcomeError
from bayplan.metrics.instruments import Families
from bayplan.metrics.process_families import (
    REST_RATE_LIMIT_SECONDS,
    REST_REQUEST_BYTES,
    REST_REQUEST_SECONDS,
    REST_REQUESTS,
    REST_RESPONSE_BYTES,
)
from bayplan.net.tls import ClientTLS

REQUEST_SECONDS: Final = 30.0
"""Timeout of a short request; the server itself gives up after a minute."""
MAX_RETRIES: Final = 10
MAX_RETRY_SECONDS: Final = 60
"""A server that asks for more (`Retry-After`) is asked again after this time."""

_MAX_RETRY_DIGITS: Final = 10

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

ResultT = TypeVar("ResultT", ApiResponse, Stream)

_log = logging.getLogger(__name__)


class UnreachableError(ServerError):
    """The server could not be reached: nothing was sent."""

    code = 0


class NotLeadingError(APIError):
    """Nothing was written: our lease has expired, so there may be another leader."""

    def __init__(self) -> None:
        super().__init__("nothing was written: the lease has expired, so another scheduler may be the leader")


class Connections:
    """Credentials and connections that all clients of one API server share.

    Args:
        access: the address of the server, and the credentials.
        now: seconds since the epoch.
        metrics: where the requests are counted; None: nowhere that is shown.
    """

    def __init__(
        self, access: Access, *, now: Callable[[], float] = time.time, metrics: Families | None = None
    ) -> None:
        server = urlsplit(access.server)
        host = server.netloc.rpartition("@")[2]
        self.metrics = RequestMetrics(metrics or Families(()), host)
        tls = ClientTLS(access.tls) if access.uses_tls else None
        self.server = access.server
        self._route = Route(server, tls, access.proxy)
        self.streams = StreamPool(self._route)
        self.credentials = Credentials(access, tls, now=now, certificate_changed=self._forget)
        self._short_pools: list[ShortRequestPool] = []

    def short(self, response_delay: float = 0.0) -> ShortRequestPool:
        """A dedicated pool for short requests, which do not wait for those of others."""
        pool = ShortRequestPool(self._route, response_delay)
        self._short_pools.append(pool)
        return pool

    async def close(self) -> None:
        await asyncio.gather(*(pool.close() for pool in self._short_pools), self.streams.close())

    def _forget(self) -> None:
        self.streams.forget()
        for pool in self._short_pools:
            pool.forget()


class Requests:
    """One client of an API server, with its own rate limit and User-Agent.

    Args:
        connections: to the server.
        bucket: the rate limit; None for none.
        component: what the client is for, as part of the User-Agent.
        seconds: timeout of a short request.
        response_delay: seconds after which responses to short requests are read (`short_requests.py`).
        may_write: called right before a write is sent; if it returns False, the write raises NotLeadingError.
            A process that was paused still assumes that it leads, but its clock shows that its lease may have
            expired: it then starts no write, and one in progress gets a conflict (409) after the new
            leader's.
        accept: the media types of responses.
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
        accept: str = JSON,
    ) -> None:
        self.connections = connections
        self.seconds = seconds
        self._short = connections.short(response_delay)
        self._permit = None if may_write is None else _check_permission(may_write)
        self._bucket = bucket
        self._own_headers = (("Accept", accept), ("User-Agent", user_agent(component)))
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
        """Sends a short request and returns the body of the response.

        Args:
            method: GET, POST, PUT, PATCH, DELETE.
            target: path and query.
            repeatable: whether sending it twice does no harm.

        Raises:
            APIError: see the module's docstring.
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
            metrics.took(method, clock() - began)
        metrics.carried(method, len(body), len(answer.body))
        return answer.body

    async def open(self, target: str, seconds: float | None = None) -> Stream:
        """A long response, which the caller reads and closes. `seconds` is the timeout for its beginning."""
        request = Request("GET", target)
        streams, limit = self.connections.streams, self.seconds if seconds is None else seconds
        return await self._until_accepted(request, lambda headers: streams.open(request, headers, limit))

    async def _until_accepted(
        self, request: Request, send: Callable[[Headers], Awaitable[ResultT]]
    ) -> ResultT:
        retries, renewed = 0, False
        credentials, metrics = self.connections.credentials, self.connections.metrics
        while True:
            if self._bucket is not None:
                now = asyncio.get_running_loop().time()
                waited = 0.0 if self._bucket.take(now) else await self._bucket.wait()
                metrics.throttled(request.method, waited)
            identity: Headers = credentials.fresh() or await credentials.identity()
            if identity is not self._identity:
                self._headers = Headers((*self._own_headers, *identity.pairs))
                self._identity = identity
            try:
                result = await send(self._headers)
                metrics.tried(request.method, result.status)
                if result.status < 300:
                    return result
                body = result.body if isinstance(result, ApiResponse) else await self._content(result)
            except NotSentError as error:
                metrics.tried(request.method, None)
                raise UnreachableError(self._failed(request, error)) from error
            except LostError as error:
                metrics.tried(request.method, None)
                if request.method == "GET":
                    raise ServerError(self._failed(request, error), 0) from error
                raise UnknownOutcomeError(self._failed(request, error)) from error
            if result.status == 401 and not renewed and await credentials.renew_after_401(identity):
                renewed = True
                continue
            wait = _retry_seconds(request, result.status, result.retry_after)
            failure = response_error(result.status, body, f"{request.method.lower()} {request.target}")
            # Waiting does not help if the resourceVersion is in the future; the caller can omit it. Whether
            # to wait for a budget is decided by whoever evicts pods: others may be evicted meanwhile.
            is_final = isinstance(failure, TooLargeError | DisruptionBudgetError)
            if wait is None or retries >= MAX_RETRIES or is_final:
                raise failure
            retries += 1
            _log.debug("%s %s: %d, again in %d s", request.method, request.target, result.status, wait)
            await asyncio.sleep(wait)

    async def _content(self, stream: Stream) -> bytes:
        try:
            return bytes(await stream.read_all(self.seconds, MAX_RESPONSE_BYTES))
        finally:
            stream.close()

    def _failed(self, request: Request, error: Exception) -> str:
        return f'{request.method.title()} "{self.connections.server}{request.target}": {error}'


def _check_permission(may_write: Callable[[], bool]) -> Callable[[], None]:
    def permit() -> None:
        if not may_write():
            raise NotLeadingError

    return permit


def user_agent(component: str) -> str:
    """The User-Agent, in the form of Kubernetes' own programs."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"bayplan/v{__version__} ({platform.system().lower()}/{machine})/{component}"


def _retry_seconds(request: Request, status: int, retry_after: str) -> int | None:
    """How long the server asks us to wait before a retry; None if there must be none.

    The server sends a 429 before it handles a request. Other errors may follow after it has taken effect.
    """
    if status != 429 and not (status >= 500 and request.repeatable):
        return None
    if not retry_after.isdecimal():
        return None
    # The length first: Python does not convert texts of any length.
    if len(retry_after) > _MAX_RETRY_DIGITS or int(retry_after) > MAX_RETRY_SECONDS:
        _log.warning(
            "%s %s: %d, retrying in %d s although the server asks for %.20s s (Retry-After)",
            request.method,
            request.target,
            status,
            MAX_RETRY_SECONDS,
            retry_after,
        )
        return MAX_RETRY_SECONDS
    return int(retry_after)


# Rate limit

DEFAULT_QPS: Final = 5.0
DEFAULT_BURST: Final = 10
"""Used if nothing is configured. The scheduler's default configuration has 50 and 100."""

LONG_WAIT_SECONDS: Final = 1.0
LOG_AGAIN_SECONDS: Final = 10.0
"""Usually many requests wait at once, so only one of them is logged in this time."""


class TokenBucket:
    """A token bucket; time is that of the running loop."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._last = float("-inf")
        self._logged_at = float("-inf")

    def take(self, now: float) -> bool:
        """Takes a token if there is one. Nearly always there is, and then nothing has to be awaited."""
        self._tokens = tokens = min(self._burst, self._tokens + max(now - self._last, 0.0) * self._qps)
        self._last = now
        if tokens < 1.0:
            return False
        self._tokens = tokens - 1.0
        return True

    def reserve(self, now: float) -> float:
        """Takes a token, if necessary a future one. Returns the seconds until it may be used."""
        if self.take(now):
            return 0.0
        self._tokens = tokens = self._tokens - 1.0
        return -tokens / self._qps

    def give_back(self) -> None:
        """A reserved token is not used after all."""
        self._tokens += 1.0

    async def wait(self) -> float:
        """Waits for a token. Returns the seconds that it took."""
        now = asyncio.get_running_loop().time()
        seconds = self.reserve(now)
        if not seconds:
            return 0.0
        if seconds > LONG_WAIT_SECONDS and now - self._logged_at >= LOG_AGAIN_SECONDS:
            self._logged_at = now
            _log.info(
                "requests wait for %.1f s due to client-side throttling (clientConnection.qps and burst), "
                "not priority and fairness",
                seconds,
            )
        try:
            await asyncio.sleep(seconds)
            return seconds
        except asyncio.CancelledError:
            self.give_back()
            raise


def make_bucket(qps: float, burst: int) -> TokenBucket | None:
    """The limit of a configuration; None if it has none (negative qps).

    Raises:
        ConfigError: the rate is positive, but no request is allowed.
    """
    if qps < 0:
        return None
    if qps > 0 and burst <= 0:
        raise ConfigError(
            "burst is required to be greater than 0 when RateLimiter is not set "
            "and QPS is set to greater than 0"
        )
    return TokenBucket(qps or DEFAULT_QPS, burst or DEFAULT_BURST)


# Metrics

NO_RESPONSE: Final = "<error>"


class RequestMetrics:
    """Counts the requests to one server; `host` is its name and port."""

    def __init__(self, families: Families, host: str) -> None:
        self._host = host
        self._requests = families[REST_REQUESTS]
        self._seconds = families[REST_REQUEST_SECONDS]
        self._throttled = families[REST_RATE_LIMIT_SECONDS]
        self._sent = families[REST_REQUEST_BYTES]
        self._received = families[REST_RESPONSE_BYTES]

    def tried(self, method: str, code: int | None) -> None:
        """One try ended with this status, or without a response (None)."""
        self._requests[NO_RESPONSE if code is None else str(code), method, self._host].inc()

    def throttled(self, method: str, seconds: float) -> None:
        """The rate limit delayed a request by this time."""
        self._throttled[method, self._host].observe(seconds)

    def took(self, method: str, seconds: float) -> None:
        self._seconds[method, self._host].observe(seconds)

    def carried(self, method: str, sent: int, received: int) -> None:
        """The sizes of the bodies of request and response, in bytes."""
        self._sent[method, self._host].observe(sent)
        self._received[method, self._host].observe(received)
