"""From a listening socket to the connections of a server.

asyncio's own servers start TLS as soon as a client has connected, which takes 0.3 MB for each, and wait a
minute for the handshake. Here a connection takes only a socket until its first byte has arrived, and the
number of connections without a finished handshake is limited: the oldest ones are closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from bayplan.net.listening.limits import Limits
from bayplan.net.listening.server import BoundedServer
from bayplan.net.listening.throttle import ThrottledLog

PAUSE_SECONDS: Final = 1.0
"""Without a free file descriptor no connection is accepted for this time."""

_MAX_ACCEPTED: Final = 32
"""Connections that are accepted at once, before other tasks run."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REQUEST_BYTES: Final = 64 * 1024
_HANDSHAKE: Final = 0x16
"""The first byte of TLS."""
_NOT_TLS: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

_log = logging.getLogger(__name__)


class Listener:
    """Accepts connections for a server until it is closed. Without a TLS context they are plain HTTP."""

    def __init__(self, server: BoundedServer, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._limits = limits
        self._tls = tls
        self._throttled = ThrottledLog(_log)
        self._sockets: list[socket.socket] = []
        self._arriving: dict[socket.socket, Callable[[], object]] = {}
        """Connections that are not the server's yet, oldest first, with the function that closes them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None

    def start(self, sockets: Sequence[socket.socket]) -> int:
        """Accepts the connections of bound sockets (`ports.py`), and closes them in the end.

        Returns the port.
        """
        self._sockets.extend(sockets)
        self._listen()
        found: int = self._sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Accepts no more connections; those of the server stay open."""
        if self._resume is not None:
            self._resume.cancel()
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for drop in list(self._arriving.values()):
            drop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTED):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            connection.setblocking(False)
            self._await_first_byte(connection)

    def _pause(self, error: OSError) -> None:
        self._throttled.warning("cannot accept connections: %s", error.strerror)
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        self._resume = loop.call_later(PAUSE_SECONDS, self._listen)

    def _await_first_byte(self, connection: socket.socket) -> None:
        if len(self._arriving) >= self._limits.handshakes:
            count = len(self._arriving)
            self._throttled.warning("more than %d connections without a request: closing one", count)
            next(iter(self._arriving.values()))()
        loop = asyncio.get_running_loop()

        def drop() -> None:
            timer.cancel()
            loop.remove_reader(connection)
            self._arriving.pop(connection, None)
            connection.close()

        def first_byte() -> None:
            timer.cancel()
            loop.remove_reader(connection)
            self._arriving.pop(connection, None)
            task = loop.create_task(self._hand_over(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        timer = loop.call_later(self._limits.handshake_seconds, drop)
        loop.add_reader(connection, first_byte)
        self._arriving[connection] = drop

    async def _hand_over(self, connection: socket.socket) -> None:
        """Passes it to the server, after the TLS handshake."""
        if self._tls is not None and not _is_tls(connection):
            return
        task = asyncio.current_task()
        assert task is not None
        self._arriving[connection] = task.cancel
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._limits.handshake_seconds,
            )
        except (OSError, TimeoutError) as error:
            # Usually an SSLError: the client does not trust our certificate.
            _log.debug("a connection ended before its first request: %s", error)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._arriving.pop(connection, None)


def _is_tls(connection: socket.socket) -> bool:
    """Whether the client begins a TLS handshake; otherwise it gets an error response and is closed."""
    try:
        first = connection.recv(1, socket.MSG_PEEK)
        if first and first[0] == _HANDSHAKE:
            return True
        if first.isalpha():
            connection.recv(_REQUEST_BYTES)  # unread data would reset the connection and lose the response
            connection.send(_NOT_TLS)
    except OSError:
        pass  # the client has disconnected
    connection.close()
    return False
