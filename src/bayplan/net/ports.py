"""Binding a port before there is a server for its connections.

A process can report a port that is in use before it does anything else. Connections that arrive before the
server is ready wait in the backlog of the socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

_BACKLOG: Final = 128


async def bind(
    host: str | None, port: int, *, reuse_address: bool = False, reuse_port: bool = False
) -> list[socket.socket]:
    """Listening sockets for all addresses of a host.

    Raises:
        OSError: the port cannot be listened on.
    """
    bound = await asyncio.get_running_loop().create_server(
        asyncio.Protocol,
        host,
        port,
        reuse_address=reuse_address or None,
        reuse_port=reuse_port or None,
        start_serving=False,
    )
    sockets: list[socket.socket] = []
    try:
        for each in bound.sockets:
            listening = socket.socket(fileno=os.dup(each.fileno()))
            sockets.append(listening)
            listening.setblocking(False)
            listening.listen(_BACKLOG)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    finally:
        bound.close()
    return sockets
