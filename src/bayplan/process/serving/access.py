"""Authentication and authorization of incoming requests, delegated to the API server.

The user is identified by a front proxy, a client certificate, or a bearer token, in that order. The first
method that identifies a user wins. Invalid credentials make the request unauthenticated, unless another
method succeeds; without any credentials the user is anonymous.

system:masters may do everything, some paths are open to all, and the API server decides the rest. Results of
TokenReviews and SubjectAccessReviews are cached. Tokens do not leave this file: the cache uses a keyed hash,
and no logged text contains one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote

import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID

from bayplan.client.requests import Requests
from bayplan.errors import APIError, ServerError, UnknownOutcomeError
from bayplan.process.serving.client_authorities import ClientAuthorities
from bayplan.process.serving.pages import status_response
from bayplan.process.serving.settings import AuthenticationSettings, AuthorizationSettings, ProxySettings

ANONYMOUS: Final = "system:anonymous"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def known(self) -> User:
        """The user as a member of system:authenticated."""
        return replace(self, groups=tuple(dict.fromkeys((*self.groups, AUTHENTICATED))))


ANONYMOUS_USER: Final = User(ANONYMOUS, (UNAUTHENTICATED,))


TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

REVIEW_SECONDS: Final = 10.0
"""Timeout of one review."""
TRIES: Final = 5
FIRST_WAIT_SECONDS: Final = 0.5
WAIT_FACTOR: Final = 1.5
WAIT_JITTER: Final = 0.2
MAX_CACHED: Final = 8192

_RETRIED: Final = frozenset((429, 500, 504))
"""Status codes after which a retry may help."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ReviewCache(Generic[T]):
    """Results by key, each with its lifetime; concurrent identical reviews share one request."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[bytes, tuple[float, T]] = {}
        self._pending: dict[bytes, asyncio.Task[tuple[T, float]]] = {}

    async def get(self, key: bytes, review: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        """The cached result or that of `review`, which also returns its lifetime in seconds."""
        known = self._known.get(key)
        if known is not None and known[0] > self._clock():
            return known[1]
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = asyncio.ensure_future(self._review(key, review))
            pending.add_done_callback(lambda task: self._done(key, task))
        result, _ = await asyncio.shield(pending)
        return result

    async def _review(self, key: bytes, review: Callable[[], Awaitable[tuple[T, float]]]) -> tuple[T, float]:
        result, seconds = await review()
        if seconds > 0:
            if len(self._known) >= MAX_CACHED:
                self._drop_expired()
            self._known[key] = (self._clock() + seconds, result)
        return result, seconds

    def _done(self, key: bytes, task: asyncio.Task[tuple[T, float]]) -> None:
        del self._pending[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: there may be no waiter left

    def _drop_expired(self) -> None:
        now = self._clock()
        left = {key: known for key, known in self._known.items() if known[0] > now}
        self._known = left if len(left) < MAX_CACHED else {}


class Reviews:
    """Reviews by one API server."""

    def __init__(self, requests: Requests, rng: random.Random | None = None) -> None:
        self._requests = requests
        self._rng = rng or random.Random()

    async def token(self, token: str) -> User | None:
        """The user of a token; None if it is not valid."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = await self._review(TOKEN_REVIEWS, body)
        if not status.get("authenticated"):
            if status.get("error"):
                _log.info("a token was not accepted: %s", str(status["error"]).replace(token, "[token]"))
            return None
        user = status.get("user") or {}
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        return User(user.get("username", ""), tuple(user.get("groups") or ()), user.get("uid", ""), extra)

    async def access(self, spec: dict[str, Any]) -> tuple[bool, str]:
        """Whether it is allowed, and the reason."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        status = await self._review(ACCESS_REVIEWS, body)
        return bool(status.get("allowed")) and not status.get("denied"), status.get("reason") or ""

    async def _review(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        text = msgspec.json.encode(body)
        wait = FIRST_WAIT_SECONDS
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                answer = await self._requests.send("POST", path, text, seconds=REVIEW_SECONDS)
                status: dict[str, Any] = msgspec.json.decode(answer).get("status") or {}
                return status
            except (ServerError, UnknownOutcomeError) as error:
                lost = isinstance(error, UnknownOutcomeError)
                if not tries_left or not (lost or error.code in _RETRIED):
                    raise
            except (msgspec.DecodeError, RecursionError) as error:
                raise APIError(f"the response to POST {path} is invalid: {error}") from error
            await asyncio.sleep(wait * (1 + WAIT_JITTER * self._rng.random()))
            wait *= WAIT_FACTOR
        raise AssertionError("the last try returns or raises")


class TokenHash:
    """The cache key of a token: the token cannot be recovered from it."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def __call__(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(), key=self._key).digest()


BEARER: Final = "bearer"


class UnauthenticatedError(Exception):
    """There are credentials, but they are invalid."""


class Authentication:
    """Identifies users. Without `reviews` tokens are ignored."""

    def __init__(
        self,
        authorities: ClientAuthorities,
        reviews: Reviews | None,
        token_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._authorities = authorities
        self._reviews = reviews
        self._token_seconds = token_seconds
        self._tokens: ReviewCache[User | None] = ReviewCache(clock)
        self._hash = TokenHash()

    async def user(self, request: web.BaseRequest) -> User:
        """Raises UnauthenticatedError if no method identifies the user."""
        problems: list[str] = []
        certificate = peer_certificate(request)
        if certificate is not None:
            found = self._by_certificate(request, certificate, problems)
            if found is not None:
                return found.known()
        token = bearer_token(request)
        if token and self._reviews is not None:
            found = await self._by_token(token, self._reviews, problems)
            if found is not None:
                return found.known()
        if problems:
            _log.info("unable to authenticate the request: %s", ", ".join(problems))
            raise UnauthenticatedError
        return ANONYMOUS_USER

    def _by_certificate(
        self, request: web.BaseRequest, certificate: x509.Certificate, problems: list[str]
    ) -> User | None:
        authorities, proxy = self._authorities, self._authorities.proxy
        common_name = _first(certificate, NameOID.COMMON_NAME)
        if authorities.proxies:
            if not authorities.is_proxy(certificate):
                problems.append("the certificate is not of a proxy's authority")
            elif proxy.allowed_names and common_name not in proxy.allowed_names:
                problems.append(f"subject with cn={common_name} is not in the allowed list")
            else:
                user = user_from_headers(request, proxy)
                if user is not None:
                    return user
        if authorities.clients:
            if authorities.is_client(certificate):
                if common_name:
                    return User(common_name, _all(certificate, NameOID.ORGANIZATION_NAME))
            else:
                problems.append("the certificate is not of a client's authority")
        return None

    async def _by_token(self, token: str, reviews: Reviews, problems: list[str]) -> User | None:
        async def review() -> tuple[User | None, float]:
            return await reviews.token(token), self._token_seconds

        try:
            user = await self._tokens.get(self._hash(token), review)
        except APIError as error:
            problems.append(f"the token could not be reviewed: {error}")
            return None
        if user is None:
            problems.append("invalid bearer token")
        return user


def peer_certificate(request: web.BaseRequest) -> x509.Certificate | None:
    """The client certificate; the TLS layer has verified that a trusted CA issued it."""
    connection = request.get_extra_info("ssl_object")
    data = None if connection is None else connection.getpeercert(True)
    return None if not data else x509.load_der_x509_certificate(data)


def bearer_token(request: web.BaseRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() != BEARER:
        return ""
    # Bytes that are not UTF-8 become surrogates, which cannot be encoded: no valid token contains them.
    return token.strip().encode(errors="surrogateescape").decode(errors="replace")


def user_from_headers(request: web.BaseRequest, proxy: ProxySettings) -> User | None:
    """The user that a proxy names; None if it names none."""
    headers = request.headers
    name = next((headers[header] for header in proxy.username_headers if headers.get(header)), "")
    if not name:
        return None
    groups = tuple(value for header in proxy.group_headers for value in headers.getall(header, ()))
    uid = next((headers[header] for header in proxy.uid_headers if headers.get(header)), "")
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in proxy.extra_prefixes:
        for header, value in headers.items():
            lower = header.lower()
            if lower.startswith(prefix.lower()):
                key = unquote(lower[len(prefix) :])
                extra[key] = (*extra.get(key, ()), value)
    return User(name, groups, uid, extra)


def _first(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    return next(iter(_all(certificate, oid)), "")


def _all(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid))


class Authorization:
    """Without `reviews` only the always-allowed paths are allowed."""

    def __init__(
        self, settings: AuthorizationSettings, reviews: Reviews | None, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._reviews = reviews
        self._exact = frozenset(_path(path) for path in settings.open_paths if not path.endswith("*"))
        self._prefixes = tuple(_path(path[:-1]) for path in settings.open_paths if path.endswith("*"))
        self._results: ReviewCache[tuple[bool, str]] = ReviewCache(clock)

    async def allows(self, user: User, method: str, path: str) -> tuple[bool, str]:
        """Whether the user may do that, and the reason if not.

        Raises:
            APIError: the SubjectAccessReview failed.
        """
        if MASTERS in user.groups or _path(path) in self._exact or _path(path).startswith(self._prefixes):
            return True, ""
        if self._reviews is None:
            return False, ""
        reviews, settings, spec = self._reviews, self._settings, _spec(user, method, path)

        async def review() -> tuple[tuple[bool, str], float]:
            allowed, reason = await reviews.access(spec)
            return (allowed, reason), settings.allowed_seconds if allowed else settings.denied_seconds

        return await self._results.get(msgspec.json.encode(spec, order="sorted"), review)


def _path(path: str) -> str:
    return path.removeprefix("/")


def _spec(user: User, method: str, path: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nonResourceAttributes": {"path": path, "verb": method.lower()},
        "user": user.name,
        "groups": list(user.groups),
    }
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    return spec


class AccessControl:
    """Admits or rejects requests."""

    def __init__(
        self, authorities: ClientAuthorities, authentication: Authentication, authorization: Authorization
    ) -> None:
        self.authorities = authorities
        self._authentication = authentication
        self._authorization = authorization
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises APIError if the client CAs cannot be read from the cluster, and that is not tolerated."""
        await self.authorities.look_up()
        self._looking = asyncio.ensure_future(self.authorities.poll())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def rejection(self, request: web.BaseRequest) -> web.Response | None:
        """The response to a rejected request; None if it is admitted."""
        try:
            user = await self._authentication.user(request)
        except UnauthenticatedError:
            return status_response(401, "Unauthorized", "Unauthorized")
        try:
            allowed, reason = await self._authorization.allows(user, request.method, request.path)
        except APIError as error:
            _log.error(
                "cannot find out whether %s may %s %s: %s", user.name, request.method, request.path, error
            )
            return web.Response(status=500, text=f'Internal Server Error: "{request.path}": {error}\n')
        if allowed:
            return None
        verb = request.method.lower()
        message = f'forbidden: User "{user.name}" cannot {verb} path "{request.path}"'
        return status_response(403, "Forbidden", f"{message}: {reason}" if reason else message, {})


def delegated_access(
    authentication: AuthenticationSettings,
    authorization: AuthorizationSettings,
    *,
    authentication_client: Requests | None,
    authorization_client: Requests | None,
    clock: Callable[[], float] = time.monotonic,
) -> AccessControl:
    """Access as the cluster defines it.

    Args:
        authentication_client: a client for TokenReviews and for the client CAs; None: tokens are ignored.
        authorization_client: a client for SubjectAccessReviews; None: only the open paths are allowed.

    Raises:
        ConfigError: a CA file is invalid.
    """
    authorities = ClientAuthorities(authentication, authentication_client)
    tokens = None if authentication_client is None else Reviews(authentication_client)
    rights = None if authorization_client is None else Reviews(authorization_client)
    return AccessControl(
        authorities,
        Authentication(authorities, tokens, authentication.token_seconds, clock),
        Authorization(authorization, rights, clock),
    )
