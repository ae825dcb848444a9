"""The transports for short requests and streams, and exchanges of them with a raw server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bayplan.client.connection_pool import Route
from bayplan.client.short_requests import ShortRequestPool
from bayplan.client.streams import StreamPool
from bayplan.client.transport import ApiResponse, Headers, LostError, NotSentError, Request

from .raw_server import Peer, RawServer, raw_server

GET = Request("GET", "/a?b=c")
BIND = Request("POST", "/bind", b"{}", "application/json", repeatable=False)
HEADERS = Headers((("User-Agent", "me"), ("Authorization", "Bearer t")))
PATIENT = 60.0


class WholeStreams(StreamPool):
    """Streams that are read to their end."""

    async def send(self, request: Request, headers: Headers, seconds: float) -> ApiResponse:
        stream = await self.open(request, headers, seconds)
        try:
            return ApiResponse(stream.status, stream.retry_after, bytes(await stream.read_all(seconds)))
        finally:
            stream.close()


Transport = ShortRequestPool | WholeStreams

each = pytest.mark.parametrize(
    "make",
    [
        pytest.param(ShortRequestPool, id="short requests"),
        pytest.param(WholeStreams, id="streams"),
    ],
)
Make = Callable[..., Transport]


@asynccontextmanager
async def connected(make: Make, server: RawServer, path: str = "") -> AsyncIterator[Transport]:
    transport = make(Route(urlsplit(f"http://127.0.0.1:{server.port}{path}"), None))
    try:
        yield transport
    finally:
        await transport.close()


def exchange(
    make: Make, handle: Callable[[Peer], Awaitable[None]], *requests: Request, seconds: float = PATIENT
) -> tuple[list[ApiResponse | str], RawServer]:
    """The results of some requests, one after the other: responses, or the errors."""

    async def main() -> tuple[list[ApiResponse | str], RawServer]:
        found: list[ApiResponse | str] = []
        async with raw_server(handle) as server, connected(make, server) as transport:
            for request in requests:
                try:
                    found.append(await transport.send(request, HEADERS, seconds))
                except (LostError, NotSentError) as error:
                    found.append(f"{'sent' if isinstance(error, LostError) else 'not sent'}: {error}")
            return found, server

    return asyncio.run(main())


def sending(*pieces: bytes) -> Callable[[Peer], Awaitable[None]]:
    """A server that answers the first request of a connection with these pieces, then closes it."""

    async def handle(peer: Peer) -> None:
        await peer.request()
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0.002)

    return handle
