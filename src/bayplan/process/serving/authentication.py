"""Identifies the user of a request: by a front proxy, a client certificate, or a bearer token, in that order.

The first method that identifies a user wins. Invalid credentials make the request unauthenticated, unless
another method succeeds; without any credentials the user is anonymous.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID

from bayplan.errors import APIError
from bayplan.process.serving.client_authorities import ClientAuthorities
from bayplan.process.serving.reviews import ReviewCache, Reviews, TokenHash
from bayplan.process.serving.settings import ProxySettings
from bayplan.process.serving.users import ANONYMOUS_USER, User

BEARER: Final = "bearer"

_log = logging.getLogger(__name__)


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
