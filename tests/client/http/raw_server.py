"""A server that sends exactly the given bytes at the given time."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


@dataclass
class Peer:
    """One connection, from the server's side."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heads: list[bytes] = field(default_factory=list)
    """The requests on this connection so far."""

    async def request(self) -> bytes:
        """The next request, with its body; the connection's end raises `IncompleteReadError`."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        self.heads.append(head)
        return head + await self.reader.readexactly(length)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def stop_reading(self) -> None:
        """Reads no more, so that not even the end of the connection is detected."""
        assert isinstance(self.writer.transport, asyncio.Transport)
        self.writer.transport.pause_reading()

    def has_ended(self) -> bool:
        """Whether the other side has ended the connection; for use after reading was stopped."""
        number = os.dup(self.writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=number) as raw:
            try:
                while raw.recv(1 << 16):
                    pass
            except BlockingIOError:
                return False
            except ConnectionError:
                pass
            return True

    def cut(self) -> None:
        """Ends the connection without a response."""
        assert isinstance(self.writer.transport, asyncio.WriteTransport)
        self.writer.transport.abort()


@dataclass
class RawServer:
    port: int = 0
    peers: list[Peer] = field(default_factory=list)
    """All connections so far."""
    closed: int = 0
    """How many of them the server has closed."""


@asynccontextmanager
async def raw_server(
    handle: Callable[[Peer], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Runs `handle` for each connection, which is closed when it returns."""
    server, tasks = RawServer(), set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer = Peer(reader, writer)
        server.peers.append(peer)
        try:
            await handle(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            server.closed += 1
            tasks.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()


async def answers(peer: Peer) -> None:
    """A good server: every request is answered."""
    while True:
        await peer.request()
        await peer.send(OK)
