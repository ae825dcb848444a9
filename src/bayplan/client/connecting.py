"""Opens connections, with TLS that takes few steps for each read and write.

asyncio's own TLS passes every read through a dozen methods, calls OpenSSL until it raises, and has two
buffers of its own. In a process that wakes up for a few hundred bytes, with cold caches, that costs as much
as the request itself. Here OpenSSL works in memory between a plain transport and a protocol, and is called
only while there is something to decrypt.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from bayplan.net.tls import ClientTLS

SECOND_ADDRESS_SECONDS: Final = 0.25
"""If a name has several addresses, the next one is tried after this time without a response."""
READ_BYTES: Final = 1 << 16
"""More than a TLS record holds, so that one read empties it."""


class Link(Protocol):
    """The connection of a protocol, with or without TLS."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str) -> Any: ...


class UpperProtocol(Protocol):
    """A protocol on a connection. `made` is called when requests can be sent."""

    def made(self, link: Link) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class _Plain(asyncio.Protocol):
    """Passes everything on."""

    def __init__(self, upper: UpperProtocol) -> None:
        self._upper = upper

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._upper.made(cast(Link, transport))

    def data_received(self, data: bytes) -> None:
        self._upper.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._upper.connection_lost(error)


class TLSLayer(asyncio.Protocol):
    """TLS between a plain transport, whose protocol it is, and an upper protocol, whose link it is."""

    def __init__(self, context: ssl.SSLContext, server_name: str, upper: UpperProtocol) -> None:
        self.handshake_done = asyncio.get_running_loop().create_future()
        """Done when the handshake is; `ssl.SSLError` or `OSError` if it failed."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._read = self._tls.read
        self._upper = upper
        self._transport: asyncio.Transport
        self._is_open = False

    # Called by the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not of this class, but have the same methods.
        self._transport = cast(asyncio.Transport, transport)
        self._continue_handshake()

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        incoming.write(data)
        if not self._is_open and not self._continue_handshake():
            return
        try:
            while incoming.pending:
                text = self._read(READ_BYTES)
                if not text:
                    self._transport.close()  # the server sent close_notify
                    break
                self._upper.data_received(text)
        except ssl.SSLWantReadError:
            pass  # a record that has not arrived whole, or one that carries no data
        except ssl.SSLError:
            self._transport.abort()
            return
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def connection_lost(self, error: Exception | None) -> None:
        if not self.handshake_done.done():
            self._fail(error or ConnectionResetError())
        if self._is_open:
            self._upper.connection_lost(error)

    # Called by the upper protocol

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Sends close_notify, without waiting for the server's."""
        with suppress(ssl.SSLError):  # it would wait for the server's
            self._tls.unwrap()
        self._transport.write(self._outgoing.read())
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

    def _continue_handshake(self) -> bool:
        """Continues the handshake. False if it is not complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._transport.write(self._outgoing.read())
            return False
        except ssl.SSLError as error:
            self._transport.write(self._outgoing.read())  # the alert
            self._fail(error)
            self._transport.close()
            return False
        self._transport.write(self._outgoing.read())
        self._is_open = True
        if not self.handshake_done.done():
            self._upper.made(self)
            self.handshake_done.set_result(None)
        return True

    def _fail(self, error: Exception) -> None:
        if not self.handshake_done.done():
            self.handshake_done.set_exception(error)
            self.handshake_done.exception()  # marks it as retrieved: there may be no waiter left


async def connect(upper: UpperProtocol, host: str, port: int, tls: ClientTLS | None, seconds: float) -> None:
    """Opens a connection for a protocol, handshake included.

    Raises:
        OSError: it cannot be opened, or not within the time (TimeoutError).
        ssl.SSLError: the handshake failed, or the server's certificate is not valid.
    """
    loop = asyncio.get_running_loop()
    # uvloop has no such option and tries the addresses of a name one after the other.
    options: dict[str, Any] = {}
    if isinstance(loop, asyncio.BaseEventLoop):
        options["happy_eyeballs_delay"] = SECOND_ADDRESS_SECONDS
    async with asyncio.timeout(seconds):
        if tls is None:
            await loop.create_connection(lambda: _Plain(upper), host, port, **options)
            return
        context, name = tls.context(), tls.server_name or host
        _, layer = await loop.create_connection(lambda: TLSLayer(context, name, upper), host, port, **options)
        try:
            await layer.handshake_done
        except BaseException:
            layer.abort()
            raise
