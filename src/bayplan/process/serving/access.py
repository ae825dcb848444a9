"""Authentication and authorization of incoming requests, delegated to the API server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aiohttp import web

from bayplan.client.requests import Requests
from bayplan.errors import APIError
from bayplan.process.serving.authentication import Authentication, UnauthenticatedError
from bayplan.process.serving.authorization import Authorization
from bayplan.process.serving.client_authorities import ClientAuthorities
from bayplan.process.serving.reviews import Reviews
from bayplan.process.serving.settings import AuthenticationSettings, AuthorizationSettings
from bayplan.process.serving.statuses import status_response

_log = logging.getLogger(__name__)


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
