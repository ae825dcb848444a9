"""Short requests, streams and aiohttp do the same: responses, kept connections, and which failure it was."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bayplan.client import connection_pool, short_requests
from bayplan.client.access import TLSSettings
from bayplan.client.proxied_streams import ProxiedStreamPool
from bayplan.client.short_requests import ShortRequestPool
from bayplan.client.streams import StreamPool, Streams
from bayplan.client.tls import ServerTLS
from bayplan.client.transport import ApiResponse, Headers, LostError, NotSentError, Request, Transport

from .certificates import authority, server_tls
from .raw_server import OK, Peer, RawServer, answers, raw_server

GET = Request("GET", "/a?b=c")
BIND = Request("POST", "/bind", b"{}", "application/json", repeatable=False)
HEADERS = Headers((("User-Agent", "me"), ("Authorization", "Bearer t")))
PATIENT = 60.0

each = pytest.mark.parametrize(
    "make",
    [
        pytest.param(ShortRequestPool, id="short requests"),
        pytest.param(StreamPool, id="streams"),
        pytest.param(ProxiedStreamPool, id="aiohttp"),
    ],
)
Make = Callable[..., Transport]


@asynccontextmanager
async def connected(make: Make, server: RawServer, path: str = "") -> AsyncIterator[Transport]:
    transport = make(urlsplit(f"http://127.0.0.1:{server.port}{path}"), None)
    try:
        yield transport
    finally:
        await transport.close()


def speak(
    make: Make, handle: Callable[[Peer], Awaitable[None]], *requests: Request, seconds: float = PATIENT
) -> tuple[list[ApiResponse | str], RawServer]:
    """What comes of some requests, one after the other: answers, or what is said about their loss."""

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


@each
def test_a_request_says_what_it_has_to(make: Make) -> None:
    _, server = speak(make, answers, GET, BIND)
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
    found, server = speak(make, answers, GET, BIND, GET)
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
    assert speak(make, sending(*pieces), GET)[0] == [expected]


@each
@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        pytest.param([], "sent: EOF", id="closed without a word"),
        pytest.param([OK[:-1]], "sent: unexpected EOF", id="closed in the middle"),
        pytest.param([b"SSH-2.0\r\n\r\n"], "sent: ", id="not HTTP"),
    ],
)
def test_an_answer_that_does_not_come_is_lost(make: Make, pieces: Iterable[bytes], problem: str) -> None:
    [found] = speak(make, sending(*pieces), BIND)[0]
    assert isinstance(found, str)
    assert found.startswith(problem)


@each
def test_an_answer_that_comes_too_late_is_lost(make: Make) -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await asyncio.sleep(PATIENT)

    async def main() -> str:
        async with raw_server(silent) as server, connected(make, server) as transport:
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
        pytest.param(
            "127.0.0.1", "dial tcp 127.0.0.1:PORT: connect: connection refused", id="nobody listens"
        ),
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
        transport = make(urlsplit(f"http://{host}:{port}"), None)
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
                for _ in range(5):  # rounds of the event loop in which the client can learn of it
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


# Only short requests


async def cut_on_second(peer: Peer) -> None:
    await peer.request()
    await peer.send(OK)
    await peer.request()
    peer.cut()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(GET, ApiResponse(200, "", b"OK"), id="asked again where that does no harm"),
        pytest.param(BIND, "sent: ", id="lost where it might be done twice"),
    ],
)
def test_a_kept_connection_that_breaks_silently(request_: Request, expected: ApiResponse | str) -> None:
    first, second = speak(ShortRequestPool, cut_on_second, GET, request_)[0]
    assert first == ApiResponse(200, "", b"OK")
    if isinstance(expected, str):
        assert isinstance(second, str)
        assert second.startswith(expected)
    else:
        assert second == expected


def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    found, server = speak(ShortRequestPool, sending(), GET)
    assert (found, len(server.peers)) == (["sent: EOF"], 1)


def test_no_more_connections_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_requests, "MAX_CONNECTIONS", 3)
    busiest = 0

    async def main() -> int:
        nonlocal busiest
        busy, all_busy = 0, asyncio.Event()

        async def slow(peer: Peer) -> None:
            nonlocal busy, busiest
            while True:
                await peer.request()
                busy += 1
                busiest = max(busy, busiest)
                if busy == 3:
                    all_busy.set()
                await all_busy.wait()
                await asyncio.sleep(0.005)
                busy -= 1
                await peer.send(OK)

        async with raw_server(slow) as server, connected(ShortRequestPool, server) as transport:
            tasks = [asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT)) for _ in range(12)]
            await asyncio.sleep(0)
            tasks[8].cancel()  # one that waits for its turn
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(answer, ApiResponse) for answer in found) == 11
            await transport.send(GET, HEADERS, PATIENT)
            return len(server.peers)

    assert asyncio.run(main()) == 3
    assert busiest == 3


def test_who_gives_up_gets_nobody_elses_answer() -> None:
    """The answer to a request that was given up does not become that of the next one."""

    async def main() -> list[ApiResponse]:
        async def handle(peer: Peer) -> None:
            while True:
                head = await peer.request()
                await asyncio.sleep(0.05 if b"/slow" in head else 0)
                await peer.send(OK.replace(b"OK", b"SL") if b"/slow" in head else OK)

        async with raw_server(handle) as server, connected(ShortRequestPool, server) as transport:
            slow = asyncio.ensure_future(transport.send(Request("GET", "/slow"), HEADERS, PATIENT))
            await asyncio.sleep(0.01)
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            return [await transport.send(GET, HEADERS, PATIENT) for _ in range(2)]

    assert asyncio.run(main()) == [ApiResponse(200, "", b"OK")] * 2


def test_a_connection_that_nobody_waits_for_any_more_is_kept() -> None:
    """The request was given up while it was being opened; the next one finds it."""

    async def main() -> int:
        async with raw_server(answers) as server, connected(ShortRequestPool, server) as transport:
            hasty = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            await asyncio.sleep(0)
            hasty.cancel()
            await asyncio.wait([hasty])
            assert isinstance(transport, ShortRequestPool)
            # The server may have accepted the connection before the client knows that it is open.
            while not (server.peers and transport._idle):
                await asyncio.sleep(0.001)
            await transport.send(GET, HEADERS, PATIENT)
            return len(server.peers)

    assert asyncio.run(main()) == 1


@each
@pytest.mark.parametrize("rounds", range(0, 40, 3))
def test_nothing_is_left_of_a_connection_that_is_being_opened(make: Make, rounds: int) -> None:
    """However far it is when everything is closed. (What is left would be a warning, and so an error.)"""

    async def main() -> None:
        certificate = TLSSettings(ca_data=authority("cluster").certificate)
        async with raw_server(answers, server_tls()) as server:
            transport = make(urlsplit(f"https://127.0.0.1:{server.port}"), ServerTLS(certificate))
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


async def falls_silent(peer: Peer) -> None:
    """A server that begins to answer."""
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    await hangs(peer)


@each
@pytest.mark.parametrize(
    ("scheme", "tls"),
    [
        pytest.param("http", None, id="plain"),
        pytest.param("https", ServerTLS(TLSSettings(insecure=True)), id="in the first steps of TLS"),
    ],
)
def test_a_request_to_a_server_that_hangs_ends_when_all_is_closed(
    make: Make, scheme: str, tls: ServerTLS | None
) -> None:
    async def main() -> bool:
        async with raw_server(hangs) as server:
            transport = make(urlsplit(f"{scheme}://127.0.0.1:{server.port}"), tls)
            sending = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            while not server.peers:
                await asyncio.sleep(0.001)
            await transport.close()
            with pytest.raises((LostError, NotSentError)):
                await sending
            return server.peers[0].has_ended()

    assert asyncio.run(main())
    gc.collect()


@pytest.mark.parametrize("make", [StreamPool, ProxiedStreamPool])
@pytest.mark.parametrize("tls", [pytest.param(False, id="plain"), pytest.param(True, id="TLS")])
@pytest.mark.parametrize(
    "how", ["closed before", "left open", "being read", "given up before its answer begins"]
)
def test_a_stream_of_a_server_that_falls_silent_ends_when_all_is_closed(
    make: Callable[..., Streams], tls: bool, how: str
) -> None:
    """TLS would have both sides say goodbye, and such a server says nothing."""

    async def main() -> bool:
        handle = answers_once if how.startswith("given up") else falls_silent
        async with raw_server(handle, server_tls() if tls else None) as server:
            url = urlsplit(f"{'https' if tls else 'http'}://127.0.0.1:{server.port}")
            streams = make(url, ServerTLS(TLSSettings(insecure=True)) if tls else None)
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


def test_after_a_renewal_old_connections_are_left() -> None:
    async def main() -> list[int]:
        async with raw_server(answers) as server, connected(ShortRequestPool, server) as transport:
            await transport.send(GET, HEADERS, PATIENT)
            transport.forget()
            await asyncio.sleep(0.01)
            await transport.send(GET, HEADERS, PATIENT)
            return [len(peer.heads) for peer in server.peers]

    assert asyncio.run(main()) == [1, 1]


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "LIFETIME_SECONDS"])
def test_connections_do_not_live_for_ever(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(connection_pool, limit, 0.0)
    _, server = speak(ShortRequestPool, answers, GET, GET)
    assert [len(peer.heads) for peer in server.peers] == [1, 1]


def test_a_server_that_speaks_unasked_is_not_listened_to() -> None:
    async def main() -> tuple[ApiResponse, int]:
        answered, spoken = asyncio.Event(), asyncio.Event()

        async def chatty(peer: Peer) -> None:
            await peer.request()
            await peer.send(OK)
            await answered.wait()
            if not spoken.is_set():
                await peer.send(b"HTTP/1.1 500 Surprise\r\nContent-Length: 0\r\n\r\n")
                spoken.set()
            await asyncio.sleep(PATIENT)

        async with raw_server(chatty) as server, connected(ShortRequestPool, server) as transport:
            await transport.send(GET, HEADERS, PATIENT)
            answered.set()
            await spoken.wait()
            # What is sent over loopback is there at once; the loop has to look.
            await asyncio.sleep(0.01)
            return await transport.send(GET, HEADERS, PATIENT), len(server.peers)

    assert asyncio.run(main()) == (ApiResponse(200, "", b"OK"), 2)


def test_requests_at_the_same_time_are_late_each_at_its_own_time() -> None:
    """Although one alarm serves them all."""

    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await asyncio.sleep(PATIENT)

    async def main() -> dict[float, float]:
        loop = asyncio.get_running_loop()
        limits, lost_after = (0.3, 0.1, 0.2), dict[float, float]()

        async with raw_server(silent) as server, connected(ShortRequestPool, server) as transport:

            async def send(limit: float) -> None:
                began = loop.time()
                with pytest.raises(LostError):
                    await transport.send(BIND, HEADERS, limit)
                lost_after[limit] = loop.time() - began

            await asyncio.gather(*(transport.send(GET, HEADERS, PATIENT) for _ in limits))
            await asyncio.gather(*map(send, limits))
        return lost_after

    lost_after = asyncio.run(main())
    assert len(lost_after) == 3
    assert all(after >= limit for limit, after in lost_after.items())


def test_responses_that_are_read_later_are_read_together() -> None:
    """They arrive one after the other, long before they are read."""

    async def main() -> list[float]:
        loop, read_at = asyncio.get_running_loop(), list[float]()

        async with raw_server(answers) as server:
            url = urlsplit(f"http://127.0.0.1:{server.port}")
            transport = ShortRequestPool(url, None, response_delay=0.2)

            async def send() -> None:
                await transport.send(GET, HEADERS, PATIENT)
                read_at.append(loop.time())

            try:
                await asyncio.gather(*(send() for _ in range(3)))  # opens connections
                began = loop.time()
                read_at.clear()
                await asyncio.gather(*(send() for _ in range(3)))
                assert len(server.peers) == 3
            finally:
                await transport.close()
        return [moment - began for moment in read_at]

    waited = asyncio.run(main())
    assert len(waited) == 3
    assert min(waited) >= 0.2


def test_a_response_that_is_not_read_yet_ends_when_all_is_closed() -> None:
    async def main() -> None:
        async with raw_server(answers) as server:
            url = urlsplit(f"http://127.0.0.1:{server.port}")
            transport = ShortRequestPool(url, None, response_delay=PATIENT)
            sending = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            while not (server.peers and server.peers[0].heads):
                await asyncio.sleep(0.001)
            await transport.close()
            with pytest.raises(LostError):
                await sending

    asyncio.run(main())
