"""The pool for short requests: how connections are kept, shared and renewed, and when requests time out."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from bayplan.client import connection_pool, short_requests
from bayplan.client.connection_pool import Route
from bayplan.client.short_requests import ShortRequestPool
from bayplan.client.transport import ApiResponse, LostError, Request

from .raw_server import OK, Peer, answers, raw_server
from .transports import BIND, GET, HEADERS, PATIENT, connected, exchange, sending


async def cut_on_second(peer: Peer) -> None:
    await peer.request()
    await peer.send(OK)
    await peer.request()
    peer.cut()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(GET, ApiResponse(200, "", b"OK"), id="sent again where that does no harm"),
        pytest.param(BIND, "sent: ", id="lost where it might be done twice"),
    ],
)
def test_a_pooled_connection_that_breaks_unnoticed(request_: Request, expected: ApiResponse | str) -> None:
    first, second = exchange(ShortRequestPool, cut_on_second, GET, request_)[0]
    assert first == ApiResponse(200, "", b"OK")
    if isinstance(expected, str):
        assert isinstance(second, str)
        assert second.startswith(expected)
    else:
        assert second == expected


def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    found, server = exchange(ShortRequestPool, sending(), GET)
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


def test_after_a_cancelled_request_no_other_gets_its_response() -> None:
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


def test_a_connection_that_no_request_waits_for_is_kept() -> None:
    """The request was given up while it was being opened; the next one finds it."""

    async def main() -> int:
        async with raw_server(answers) as server, connected(ShortRequestPool, server) as transport:
            hasty = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            await asyncio.sleep(0)
            hasty.cancel()
            await asyncio.wait([hasty])
            assert isinstance(transport, ShortRequestPool)
            # The server may have accepted the connection before it is open for the client.
            while not (server.peers and transport._idle):
                await asyncio.sleep(0.001)
            await transport.send(GET, HEADERS, PATIENT)
            return len(server.peers)

    assert asyncio.run(main()) == 1


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
    _, server = exchange(ShortRequestPool, answers, GET, GET)
    assert [len(peer.heads) for peer in server.peers] == [1, 1]


def test_data_without_a_request_closes_the_connection() -> None:
    async def main() -> tuple[ApiResponse, int]:
        answered, sent = asyncio.Event(), asyncio.Event()

        async def chatty(peer: Peer) -> None:
            await peer.request()
            await peer.send(OK)
            await answered.wait()
            if not sent.is_set():
                await peer.send(b"HTTP/1.1 500 Surprise\r\nContent-Length: 0\r\n\r\n")
                sent.set()
            await asyncio.sleep(PATIENT)

        async with raw_server(chatty) as server, connected(ShortRequestPool, server) as transport:
            await transport.send(GET, HEADERS, PATIENT)
            answered.set()
            await sent.wait()
            # What is sent over loopback is there at once; the loop has to poll.
            await asyncio.sleep(0.01)
            return await transport.send(GET, HEADERS, PATIENT), len(server.peers)

    assert asyncio.run(main()) == (ApiResponse(200, "", b"OK"), 2)


def test_requests_at_the_same_time_are_late_each_at_its_own_time() -> None:
    """Although they share one timer."""

    async def unresponsive(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await asyncio.sleep(PATIENT)

    async def main() -> dict[float, float]:
        loop = asyncio.get_running_loop()
        limits, lost_after = (0.3, 0.1, 0.2), dict[float, float]()

        async with raw_server(unresponsive) as server, connected(ShortRequestPool, server) as transport:

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
            transport = ShortRequestPool(Route(url, None), response_delay=0.2)

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
            transport = ShortRequestPool(Route(url, None), response_delay=PATIENT)
            sending = asyncio.ensure_future(transport.send(GET, HEADERS, PATIENT))
            while not (server.peers and server.peers[0].heads):
                await asyncio.sleep(0.001)
            await transport.close()
            with pytest.raises(LostError):
                await sending

    asyncio.run(main())
