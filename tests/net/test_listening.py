"""Clients that are slow, idle, malformed or too many, over real sockets."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
from aiohttp import web

from bayplan.embedded.server.tls import certificates_in
from bayplan.net.listening import (
    BodyTimeoutError,
    BoundedServer,
    EncodedBodyError,
    Limits,
    Listener,
    ThrottledLog,
    read_body,
)
from bayplan.net.ports import bind

PATIENT = Limits(handshake_seconds=60, idle_seconds=60, stall_seconds=60, body_seconds=60)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
GET_ONCE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
PAGE = b"x" * 1_000_000
MAX_BODY = 1000


class Endpoint(NamedTuple):
    port: int
    server: BoundedServer
    listener: Listener
    written: list[int]
    """How many pages of endless answers have been written."""


@asynccontextmanager
async def serving(limits: Limits, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    written = [0]

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(PAGE)
                written[0] += 1
        if request.path == "/hang":
            await asyncio.sleep(60)
        if request.method == "POST":
            try:
                body = await read_body(request, max_bytes=MAX_BODY, seconds=limits.body_seconds)
            except BodyTimeoutError:
                return web.Response(status=408)
            except EncodedBodyError:
                return web.Response(status=415)
            return web.Response(text=f"{len(body)} bytes")
        return web.Response(text="hello")

    server = BoundedServer(handle, limits, max_body_bytes=MAX_BODY)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    listener = Listener(server, limits, tls)
    try:
        yield Endpoint(listener.start(await bind("127.0.0.1", 0)), server, listener, written)
    finally:
        await listener.close()
        await runner.cleanup()


def run(
    scenario: Callable[[Endpoint], Awaitable[Any]], limits: Limits, tls: ssl.SSLContext | None = None
) -> Any:
    async def main() -> Any:
        async with serving(limits, tls) as endpoint, asyncio.timeout(30):
            return await scenario(endpoint)

    return asyncio.run(main())


async def exchange(port: int, request: bytes) -> bytes:
    """Sends bytes, and returns all that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_a_connection_without_a_request_ends() -> None:
    limits = replace(PATIENT, handshake_seconds=0.1)
    assert run(lambda endpoint: exchange(endpoint.port, b""), limits) == b""


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HT", id="half a line"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA", id="half a header"),
        pytest.param(GET, id="one request, and then nothing"),
    ],
)
def test_idle_connections_end(sent: bytes) -> None:
    """Else a thousand of them would stay open forever."""
    answer = run(lambda endpoint: exchange(endpoint.port, sent), replace(PATIENT, idle_seconds=0.1))
    assert answer == b"" if sent != GET else answer.startswith(b"HTTP/1.1 200 OK")


def test_a_request_that_takes_long_is_not_idle() -> None:
    """A watch without events continues."""

    async def scenario(endpoint: Endpoint) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: endpoint.server.requests_count == 1)
        await asyncio.sleep(0.5)
        is_open = not reader.at_eof()
        writer.close()
        return is_open

    assert run(scenario, replace(PATIENT, idle_seconds=0.1))


def test_a_body_that_does_not_come() -> None:
    sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nab"
    answer = run(lambda endpoint: exchange(endpoint.port, sent), replace(PATIENT, body_seconds=0.1))
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_takes_nothing_is_disconnected() -> None:
    """What waits for it is no more than the buffers, whatever the size of the response."""

    async def scenario(endpoint: Endpoint) -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port, limit=1024)
        writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(endpoint.server.connections))
        await until(lambda: not endpoint.server.connections)
        writer.close()
        return endpoint.written[0]

    assert run(scenario, replace(PATIENT, stall_seconds=0.1)) < 30


def test_a_client_that_keeps_reading_is_not_disconnected() -> None:
    """A stall ends when the buffer is empty enough again, and the next one begins from the start."""

    async def main() -> tuple[bool, bool]:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response()

        transport = Mock(spec=asyncio.Transport)
        connection = BoundedServer(handle, replace(PATIENT, stall_seconds=0.05), max_body_bytes=0)()
        connection.connection_made(transport)
        for _ in range(3):
            connection.pause_writing()
            connection.resume_writing()
        await asyncio.sleep(0.2)
        was_aborted = transport.abort.called
        connection.pause_writing()
        await until(lambda: transport.abort.called)
        connection.connection_lost(None)
        return was_aborted, transport.abort.called

    assert asyncio.run(main()) == (False, True)


def test_of_too_many_connections_an_idle_one_is_closed() -> None:
    """A new client is served, however many others keep connections open."""

    async def scenario(endpoint: Endpoint) -> tuple[bytes, int]:
        idle = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(20)]
        for reader, writer in idle:
            writer.write(GET)
            with suppress(ConnectionError):
                await reader.readuntil(b"hello")
        answer = await exchange(endpoint.port, GET_ONCE)
        count = len(endpoint.server.connections)
        for _, writer in idle:
            writer.close()
        return answer, count

    answer, count = run(scenario, replace(PATIENT, connections=5))
    assert answer.endswith(b"hello")
    assert count <= 5


def test_where_no_connection_is_idle_the_new_one_is_closed() -> None:
    async def scenario(endpoint: Endpoint) -> bytes:
        busy = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(5)]
        for _, writer in busy:
            writer.write(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: endpoint.server.requests_count == 5)
        answer = await exchange(endpoint.port, GET_ONCE)
        assert not any(reader.at_eof() for reader, _ in busy)
        for _, writer in busy:
            writer.close()
        return answer

    assert run(scenario, replace(PATIENT, connections=5)) in (b"", b"reset")


def test_connections_without_a_handshake_are_limited(tmp_path: Path) -> None:
    """They take no TLS buffers, and a client that sends a request gets its response."""
    certificates = certificates_in(tmp_path)

    async def scenario(endpoint: Endpoint) -> bytes:
        idle = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(50)]
        half = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(5)]
        for _, writer in half:
            writer.write(b"\x16\x03\x01")
        trusted = ssl.create_default_context(cafile=certificates.ca)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", endpoint.port, ssl=trusted, server_hostname="localhost"
        )
        writer.write(GET_ONCE)
        answer = await reader.read()
        assert len(endpoint.server.connections) <= 1
        for _, each in (*idle, *half, (reader, writer)):
            each.close()
        return answer

    assert run(scenario, replace(PATIENT, handshakes=10), certificates.context()).endswith(b"hello")


def test_a_handshake_that_does_not_end(tmp_path: Path) -> None:
    tls, limits = certificates_in(tmp_path).context(), replace(PATIENT, handshake_seconds=0.1)
    assert run(lambda endpoint: exchange(endpoint.port, b"\x16\x03\x01"), limits, tls) in (b"", b"reset")
    assert run(lambda endpoint: exchange(endpoint.port, b""), limits, tls) == b""


def test_http_to_the_https_port(tmp_path: Path) -> None:
    answer = run(lambda endpoint: exchange(endpoint.port, GET), PATIENT, certificates_in(tmp_path).context())
    assert answer.startswith(b"HTTP/1.0 400 Bad Request")
    assert b"Client sent an HTTP request to an HTTPS server." in answer


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nAuthorization\xff: Bearer secret\r\n\r\n", id="a bad header name"),
        pytest.param(b"GET / HTTP/1.1\r\nA\0B: Bearer secret\r\n\r\n", id="NUL in a name"),
        pytest.param(b"GET / HTTP/1.1\r\nA: Bearer secret\0\r\n\r\n", id="NUL in a value"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\rBearer: secret\r\n\r\n", id="CR in a value"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"secret" * 5000 + b"\r\n\r\n", id="a long header"),
        pytest.param(b"secret secret secret\r\n\r\n", id="not HTTP"),
        pytest.param(b"GET /\xffsecret HTTP/1.1\r\nHost: x\r\n\r\n", id="a path that is not text"),
        pytest.param(b"\x16\x03\x01secret\r\n\r\n", id="TLS to a plain port"),
    ],
)
def test_what_is_not_http(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Is answered with 400, and logged in one line without what was sent."""
    with caplog.at_level(logging.INFO):
        answer = run(lambda endpoint: exchange(endpoint.port, sent), PATIENT)
    assert answer.startswith((b"HTTP/1.1 400 Bad Request", b"HTTP/1.0 400 Bad Request"))
    assert b"secret" not in answer
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


def test_a_client_that_expects_100_continue() -> None:
    async def scenario(endpoint: Endpoint) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        answer = await reader.readuntil(b"3 bytes")
        writer.close()
        return answer

    assert run(scenario, PATIENT).startswith(b"HTTP/1.1 200 OK")


def test_compressed_bodies_are_not_unpacked() -> None:
    sent = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n"
        b"Connection: close\r\n\r\nabc"
    )
    assert run(lambda endpoint: exchange(endpoint.port, sent), PATIENT).startswith(b"HTTP/1.1 415 ")


def test_without_file_descriptors_the_log_stays_short(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection is accepted for a while, and then all that have waited."""
    failures = [0]
    accept = socket.socket.accept

    def exhausted(self: socket.socket) -> Any:
        if failures[0] < 3:
            failures[0] += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    monkeypatch.setattr("bayplan.net.listening.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(socket.socket, "accept", exhausted)
    with caplog.at_level(logging.INFO):
        answer = run(lambda endpoint: exchange(endpoint.port, GET_ONCE), PATIENT)
    assert answer.endswith(b"hello")
    assert [record.getMessage() for record in caplog.records] == [
        "cannot accept connections: Too many open files"
    ]


def test_a_throttled_log_counts_what_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = ThrottledLog(logging.getLogger("x"), clock=lambda: now[0])
    for number in range(5):
        log.warning("no %s", number)
    now[0] = 11.0
    log.warning("no %s", 9)
    assert [record.getMessage() for record in caplog.records] == ["no 0", "no 9 (and 4 more before)"]
