"""TokenReviews and SubjectAccessReviews by the API server, with a cache of their results.

Tokens do not leave this file: the cache uses a keyed hash, and no logged text contains one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from bayplan.client.requests import Requests
from bayplan.errors import APIError, ServerError, UnknownOutcomeError
from bayplan.process.serving.users import User

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
