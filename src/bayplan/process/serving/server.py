"""From a connection to a response: TLS, authentication, authorization, routing."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from bayplan.net.listening import BoundedServer, Limits, Listener
from bayplan.process.serving.access import AccessControl
from bayplan.process.serving.pages import NO_STORE, Routes, RouteTable
from bayplan.process.serving.settings import ServingSettings
from bayplan.process.serving.tls import ServerTLS

LIMITS: Final = Limits(connections=200)
"""Probes, scrapes and a few users: they need no more connections."""
MAX_BODY_BYTES: Final = 64 * 1024
"""The only request body is a number."""
GRACE_SECONDS: Final = 5.0
"""Time for responses in progress when the server stops."""
_log = logging.getLogger(__name__)


class SecureServer:
    """The HTTPS server of a scheduler.

    Args:
        settings: where it listens, and its certificate.
        routes: what it serves.
        access: authentication and authorization (`delegated_access`).

    Raises:
        ConfigError: a certificate, a version or a cipher suite is invalid.
    """

    def __init__(self, settings: ServingSettings, routes: Routes, access: AccessControl) -> None:
        self._settings = settings
        self._access = access
        self._table = RouteTable(routes)
        self._tls = ServerTLS(settings, access.authorities)
        self._runner: web.ServerRunner | None = None
        self._listener: Listener | None = None
        self.port = 0
        """Where it listens, once it has started."""

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serves the connections of these sockets (`settings.listen`), and closes them in the end.

        Raises:
            APIError: the client CAs cannot be read from the cluster, and that is not tolerated.
        """
        await self._access.start()
        server = BoundedServer(self._answer, LIMITS, max_body_bytes=MAX_BODY_BYTES)
        self._runner = runner = web.ServerRunner(server, shutdown_timeout=GRACE_SECONDS)
        await runner.setup()
        self._listener = Listener(server, LIMITS, self._tls.context())
        self.port = self._listener.start(sockets)
        _log.info("Serving securely on %s:%d", self._settings.bind_address, self.port)

    async def close(self) -> None:
        """Stops listening; responses in progress may finish."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._access.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._access.rejection(request) or await self._table.answer(request)
        except (asyncio.CancelledError, ConnectionError, web.HTTPException):
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            text = f'This request caused the server to panic while it was answering "{request.path}"\n'
            response = web.Response(status=500, text=text)
        if not response.prepared:
            response.headers.update(NO_STORE)
        return response
