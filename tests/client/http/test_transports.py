"""Short requests and streams do the same: responses, kept connections, and which failure it was."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import pytest

from bayplan.client.connection_pool import Route
from bayplan.client.transport import ApiResponse, LostError, NotSentError

from .raw_server import OK, Peer, answers, raw_server
from .transports import BIND, GET, HEADERS, PATIENT, Make, connected, each, exchange, sending


@each
def test_a_request_has_what_is_required(make: Make) -> None:
    _, server = exchange(make, answers, GET, BIND)
    get, bind = server.peers[0].heads
    assert get.startswith(b"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert bind.startswith(b"POST /bind HTTP/1.1\r\nHost: 127.0.0.1:")
    for head in (get, bind):
        assert b"\r\nUser-Agent: me\r\n" in head
        assert b"\r\nAuthorization: Bearer t\r\n" in head
        assert b"gzip" not in head
    assert b"\r\nContent-Type: application/json\r\n" in bind
    assert b"\r\nContent-Length: 2\r\n" in bind


@each
def test_paths_begin_with_that_of_the_server(make: Make) -> None:
    async def main() -> bytes:
        async with raw_server(answers) as server, connected(make, server, "/k8s/c-1") as transport:
            await transport.send(GET, HEADERS, PATIENT)
            return server.peers[0].heads[0]

    assert asyncio.run(main()).startswith(b"GET /k8s/c-1/a?b=c HTTP/1.1\r\n")


@each
def test_a_connection_is_kept(make: Make) -> None:
    found, server = exchange(make, answers, GET, BIND, GET)
    assert found == [ApiResponse(200, "", b"OK")] * 3
    assert [len(peer.heads) for peer in server.peers] == [3]


@each
@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([OK], ApiResponse(200, "", b"OK"), id="in one piece"),
        pytest.param([bytes([b]) for b in OK], ApiResponse(200, "", b"OK"), id="byte by byte"),
        pytest.param(
            [b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"],
            ApiResponse(429, "7", b""),
            id="with when to try again",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r", b"\n2\r\nde\r\n0\r\n\r\n"],
            ApiResponse(200, "", b"abcde"),
            id="in chunks",
        ),
        pytest.param([b"HTTP/1.1 502 Bad\r\n\r\nsorry"], ApiResponse(502, "", b"sorry"), id="until the end"),
        pytest.param(
            [b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"],
            ApiResponse(302, "", b""),
            id="not followed",
        ),
    ],
)
def test_answers(make: Make, pieces: Iterable[bytes], expected: ApiResponse) -> None:
    assert exchange(make, sending(*pieces), GET)[0] == [expected]


@each
@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        pytest.param([], "sent: EOF", id="closed without a response"),
        pytest.param([OK[:-1]], "sent: unexpected EOF", id="closed in the middle"),
        pytest.param([b"SSH-2.0\r\n\r\n"], "sent: ", id="not HTTP"),
    ],
)
def test_an_answer_that_does_not_come_is_lost(make: Make, pieces: Iterable[bytes], problem: str) -> None:
    [found] = exchange(make, sending(*pieces), BIND)[0]
    assert isinstance(found, str)
    assert found.startswith(problem)


@each
def test_an_answer_that_comes_too_late_is_lost(make: Make) -> None:
    async def unresponsive(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await asyncio.sleep(PATIENT)

    async def main() -> str:
        async with raw_server(unresponsive) as server, connected(make, server) as transport:
            # On a connection that is open: opening one may take longer than this.
            await transport.send(GET, HEADERS, PATIENT)
            with pytest.raises(LostError) as lost:
                await transport.send(BIND, HEADERS, 0.05)
            return str(lost.value)

    expected = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)"
    assert asyncio.run(main()) == expected


@each
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param("127.0.0.1", "dial tcp 127.0.0.1:PORT: connect: connection refused", id="no listener"),
        pytest.param(
            "no.such.host.invalid", "dial tcp: lookup no.such.host.invalid: no such host", id="no host"
        ),
        pytest.param(
            "localhost", "dial tcp localhost:PORT: connect: connection refused", id="several addresses"
        ),
    ],
)
def test_what_could_not_be_sent_was_not_sent(make: Make, host: str, expected: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def main() -> None:
        transport = make(Route(urlsplit(f"http://{host}:{port}"), None))
        try:
            await transport.send(BIND, HEADERS, PATIENT)
        finally:
            await transport.close()

    with pytest.raises(NotSentError) as error:
        asyncio.run(main())
    assert str(error.value) == expected.replace("PORT", str(port))


@each
def test_a_connection_that_the_server_closed_is_not_used_again(make: Make) -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)

    async def main() -> int:
        async with raw_server(once) as server, connected(make, server) as transport:
            for number in range(3):
                await transport.send(BIND, HEADERS, PATIENT)
                while server.closed <= number:
                    await asyncio.sleep(0.001)
                for _ in range(5):  # rounds of the event loop in which the client can detect it
                    await asyncio.sleep(0)
            return len(server.peers)

    assert asyncio.run(main()) == 3


@each
def test_requests_at_once_have_connections_of_their_own(make: Make) -> None:
    async def main() -> int:
        async with raw_server(answers) as server, connected(make, server) as transport:
            await asyncio.gather(*(transport.send(GET, HEADERS, PATIENT) for _ in range(5)))
            return len(server.peers)

    assert asyncio.run(main()) == 5
