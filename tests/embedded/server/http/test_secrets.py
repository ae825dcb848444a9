"""No request is served without a token, and no token is logged."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from bayplan.embedded.server.embedded import EmbeddedServer, open_api
from bayplan.embedded.server.http.application import Application
from tests.process.serving.secure_server import Client, here, with_server

SECRET = b"SECRETTOKEN"
MALFORMED = {
    "not UTF-8": b"Authorization: Bearer " + SECRET + b"\xff",
    "NUL": b"Authorization: Bearer " + SECRET + b"\x00",
    "a bad name": b"Authori\x01zation: Bearer " + SECRET,
    "a space before the colon": b"Authorization : Bearer " + SECRET,
    "no colon": b"Authorization Bearer " + SECRET,
    "folded": b"Authorization: Bearer\r\n\t" + SECRET,
    "a bare newline": b"Authorization: Bearer " + SECRET + b"\nX: y",
    "too long": b"Authorization: Bearer " + SECRET * 2000,
    "in another header": b"Content-Length: " + SECRET,
}


async def send(port: int, header: bytes, target: bytes = b"/api/v1/pods") -> bytes:
    """The first line of the answer."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n\r\n")
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return line


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests_are_logged_without_what_they_hold(
    header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> bytes:
        async with EmbeddedServer() as server:
            return await send(server.port, header)

    with caplog.at_level(logging.DEBUG):
        status = asyncio.run(scenario()).split()[1]
    assert status in (b"400", b"401")
    assert SECRET.decode() not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED)
def test_so_they_are_by_the_scheduler(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def act(client: Client) -> bytes:
        return await send(client.port, header, b"/metrics")

    with caplog.at_level(logging.DEBUG):
        status = with_server(act, settings=here()).split()[1]
    assert status in (b"400", b"401", b"403")
    assert SECRET.decode() not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "header", [b"", b"Authorization: Bearer", b"Authorization: Bearer ", b"Authorization:"]
)
def test_nothing_is_no_token(tmp_path: Path, header: bytes) -> None:
    """Not even where the file of the token is empty."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "token").touch(mode=0o600)

    async def scenario() -> bytes:
        async with EmbeddedServer(data) as server:
            return await send(server.port, header)

    assert asyncio.run(scenario()).split()[1] == b"401"


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_a_server_with_an_empty_token_cannot_be_made(token: str) -> None:
    with pytest.raises(ValueError, match="an empty token would let everybody in"):
        Application(open_api(), ["good", token])
