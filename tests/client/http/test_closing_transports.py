"""Whatever a connection is doing, nothing is left of it when its transport is closed."""

from __future__ import annotations

import asyncio
import gc
from urllib.parse import urlsplit

import pytest

from bayplan.client.connection_pool import Route
from bayplan.client.transport import LostError, NotSentError
from bayplan.net.tls import ClientTLS, TLSSettings

from .certificates import authority, server_tls
from .raw_server import OK, Peer, answers, raw_server
from .transports import GET, HEADERS, PATIENT, Make, WholeStreams, connected, each


@each
@pytest.mark.parametrize("rounds", range(0, 40, 3))
def test_nothing_is_left_of_a_connection_that_is_being_opened(make: Make, rounds: int) -> None:
    """However far it is when everything is closed. (What is left would be a warning, and so an error.)"""

    async def main() -> None:
        certificate = TLSSettings(ca_data=authority("cluster").certificate)
        async with raw_server(answers, server_tls()) as server:
            transport = make(Route(urlsplit(f"https://127.0.0.1:{server.port}"), ClientTLS(certificate)))
            hasty = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            for _ in range(rounds):
                await asyncio.sleep(0)
            hasty.cancel()
            await asyncio.wait([hasty])
            await transport.close()

    asyncio.run(main())
    gc.collect()


async def hangs(peer: Peer) -> None:
    """A server that accepts, and then does not even read."""
    peer.stop_reading()
    try:
        await asyncio.sleep(PATIENT)
    finally:
        peer.cut()


async def stops_sending(peer: Peer) -> None:
    """A server that begins to answer."""
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    await hangs(peer)


@each
@pytest.mark.parametrize(
    ("scheme", "tls"),
    [
        pytest.param("http", None, id="plain"),
        pytest.param("https", ClientTLS(TLSSettings(insecure=True)), id="in the first steps of TLS"),
    ],
)
def test_a_request_to_a_server_that_hangs_ends_when_all_is_closed(
    make: Make, scheme: str, tls: ClientTLS | None
) -> None:
    async def main() -> bool:
        async with raw_server(hangs) as server:
            transport = make(Route(urlsplit(f"{scheme}://127.0.0.1:{server.port}"), tls))
            sending = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            while not server.peers:
                await asyncio.sleep(0.001)
            await transport.close()
            with pytest.raises((LostError, NotSentError)):
                await sending
            return server.peers[0].has_ended()

    assert asyncio.run(main())
    gc.collect()


@pytest.mark.parametrize("tls", [pytest.param(False, id="plain"), pytest.param(True, id="TLS")])
@pytest.mark.parametrize(
    "how", ["closed before", "left open", "being read", "given up before its answer begins"]
)
def test_a_stream_of_a_server_that_stops_sending_ends_when_all_is_closed(tls: bool, how: str) -> None:
    """TLS closes on both sides, and such a server sends nothing."""

    async def main() -> bool:
        handle = answers_once if how.startswith("given up") else stops_sending
        async with raw_server(handle, server_tls() if tls else None) as server:
            url = urlsplit(f"{'https' if tls else 'http'}://127.0.0.1:{server.port}")
            streams = WholeStreams(Route(url, ClientTLS(TLSSettings(insecure=True)) if tls else None))
            if how.startswith("given up"):
                await streams.send(GET, HEADERS, PATIENT)
                with pytest.raises(LostError):
                    await streams.send(GET, HEADERS, 0.01)
                await streams.close()
                return server.peers[0].has_ended()
            stream = await streams.open(GET, HEADERS, PATIENT)
            assert await stream.read(PATIENT) == b"{}"
            reading = asyncio.ensure_future(stream.read(PATIENT)) if how == "being read" else None
            await asyncio.sleep(0)
            if how == "closed before":
                stream.close()
            await streams.close()
            if reading is not None:
                with pytest.raises(LostError):
                    await reading
            return server.peers[0].has_ended()

    assert asyncio.run(main())
    gc.collect()


async def answers_once(peer: Peer) -> None:
    await peer.request()
    await peer.send(OK)
    await hangs(peer)


@each
def test_nothing_is_opened_any_more_when_all_is_closed(make: Make) -> None:
    async def main() -> int:
        async with raw_server(answers) as server, connected(make, server) as transport:
            await transport.close()
            with pytest.raises(NotSentError, match="the client was closed"):
                await transport.send(GET, HEADERS, PATIENT)
            return len(server.peers)

    assert asyncio.run(main()) == 0
