"""TLS on a plain transport: however it is cut on its way, and whatever the server does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest

from bayplan.client.connection_pool import Link, TLSLayer
from bayplan.net.tls import ClientTLS, TLSSettings

from .certificates import authority, server_tls


class Reader:
    """A protocol above TLS."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.read = b""
        self.is_lost = False

    def made(self, link: Link) -> None:
        self.link = link

    def data_received(self, data: bytes) -> None:
        self.read += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Wire:
    """A transport whose other side is TLS of a server in this process. Bytes arrive in pieces of `size`."""

    def __init__(self, size: int, trusted: str = "cluster") -> None:
        self.size = size
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server_tls().wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.is_shaken = self.is_closed = False
        self.reader = Reader()
        settings = TLSSettings(ca_data=authority(trusted).certificate)
        self.layer = TLSLayer(ClientTLS(settings).context(), "localhost", self.reader)

    def write(self, data: bytes) -> None:
        self.incoming.write(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def shake_hands(self) -> None:
        self.layer.connection_made(cast(asyncio.Transport, self))
        while not self.is_shaken:
            try:
                self.server.do_handshake()
                self.is_shaken = True
            except ssl.SSLWantReadError:
                pass
            self.deliver()

    def deliver(self) -> None:
        data = self.outgoing.read()
        for start in range(0, len(data), self.size):
            self.layer.data_received(data[start : start + self.size])


def on_loop(story: Callable[[], Any]) -> None:
    async def main() -> None:
        story()

    asyncio.run(main())


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_both_sides_understand_each_other(size: int) -> None:
    def story() -> None:
        wire = Wire(size)
        wire.shake_hands()
        assert wire.layer.handshake_done.done()
        assert wire.reader.link is wire.layer
        wire.layer.write(b"a request")
        assert wire.server.read(100) == b"a request"
        answer = bytes(range(256)) * 200  # several records
        wire.server.write(answer)
        wire.deliver()
        assert wire.reader.read == answer

    on_loop(story)


def test_records_that_arrive_together_are_all_read() -> None:
    def story() -> None:
        wire = Wire(1 << 20)
        wire.shake_hands()
        for word in (b"one ", b"two ", b"three"):
            wire.server.write(word)
        wire.deliver()
        assert wire.reader.read == b"one two three"

    on_loop(story)


def test_a_close_notify_of_the_server_closes_the_connection() -> None:
    def story() -> None:
        wire = Wire(1 << 20)
        wire.shake_hands()
        wire.server.write(b"the end")
        with pytest.raises(ssl.SSLWantReadError):
            wire.server.unwrap()
        wire.deliver()
        assert (wire.reader.read, wire.is_closed) == (b"the end", True)

    on_loop(story)


def test_what_is_not_tls_ends_the_connection() -> None:
    def story() -> None:
        wire = Wire(1 << 20)
        wire.shake_hands()
        wire.layer.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert (wire.reader.read, wire.is_closed) == (b"", True)

    on_loop(story)


def test_closing_sends_a_close_notify() -> None:
    def story() -> None:
        wire = Wire(1 << 20)
        wire.shake_hands()
        wire.layer.close()
        assert wire.is_closed
        assert wire.server.read(1) == b""

    on_loop(story)


def test_an_untrusted_server_is_reported() -> None:
    def story() -> None:
        wire = Wire(1 << 20, trusted="another")
        with pytest.raises(ssl.SSLError):
            wire.shake_hands()
        error = wire.layer.handshake_done.exception()
        assert isinstance(error, ssl.SSLCertVerificationError)
        assert wire.reader.link is None
        assert wire.is_closed

    on_loop(story)


def test_a_connection_that_is_lost_in_the_handshake() -> None:
    def story() -> None:
        wire = Wire(1 << 20)
        wire.layer.connection_made(cast(asyncio.Transport, wire))
        wire.layer.connection_lost(None)
        assert isinstance(wire.layer.handshake_done.exception(), ConnectionResetError)
        assert not wire.reader.is_lost

    on_loop(story)
