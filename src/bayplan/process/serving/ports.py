"""The listening sockets of the server."""

from __future__ import annotations

import socket

from bayplan.errors import BayplanError
from bayplan.net.ports import bind
from bayplan.process.serving.settings import ServingSettings


class ListenError(BayplanError):
    """The port cannot be listened on."""


async def listen(settings: ServingSettings) -> list[socket.socket]:
    """Raises ListenError: the port is in use, or not permitted."""
    address, port = settings.bind_address, settings.port
    try:
        return await bind(address, port, reuse_address=settings.reuse_address, reuse_port=settings.reuse_port)
    except OSError as error:
        where = f"{address}:{port}"
        raise ListenError(f"failed to create listener: failed to listen on {where}: {error}") from error
