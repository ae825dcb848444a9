"""Parses an HTTP/1.1 response from the pieces in which it arrives.

No I/O: `short_requests.py` feeds it. It handles the short responses of an API server and of proxies in front
of one: with Content-Length, chunked, without a body, or with a body that ends with the connection.
"""

from __future__ import annotations

from typing import Final

from bayplan.client.transport import ApiResponse

_END_OF_HEAD: Final = b"\r\n\r\n"
_NO_BODY: Final = frozenset((204, 304))


class MalformedError(ValueError):
    """The response is not HTTP."""


class ResponseReader:
    """Parses a response from pieces of any size. `response` is set when it is complete."""

    __slots__ = (
        "_body",
        "_buffer",
        "_left",
        "_retry_after",
        "_status",
        "response",
        "until_close",
        "will_close",
    )

    def __init__(self) -> None:
        self._buffer = b""
        self._status = 0
        self._retry_after = ""
        self._body: list[bytes] = []
        self._left = 0
        """Bytes of the body, or of a chunk with its end, that are still to come; -1: a chunk's size is."""
        self.until_close = False
        self.will_close = False
        self.response: ApiResponse | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._buffer or self._status)

    def feed(self, data: bytes) -> None:
        self._buffer = data = self._buffer + data if self._buffer else data
        while not self._status:
            end = data.find(_END_OF_HEAD)
            if end < 0:
                return
            self._head(data[:end])
            self._buffer = data = data[end + 4 :]
        if self.response is None:
            if self.until_close:
                self._body.append(data)
                self._buffer = b""
            elif self._left >= 0 and not self._body and len(data) == self._left:
                self._finish(data)  # nearly always
            elif self._left >= 0:
                self._sized()
            else:
                self._chunks()

    def end(self) -> None:
        """The server has closed the connection."""
        if self.until_close and self.response is None:
            self._finish(b"".join(self._body))

    def _head(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1."):
            raise MalformedError("malformed HTTP response")
        status = int(head[9:12])
        if 100 <= status < 200:
            return  # an interim response; the final one follows
        self._status = status
        lower = head.lower()
        self.will_close = b"close" in _header(lower, b"\r\nconnection:") or head.startswith(b"HTTP/1.0")
        self._retry_after = _header(lower, b"\r\nretry-after:").decode("latin-1")
        length = _header(lower, b"\r\ncontent-length:")
        if status in _NO_BODY:
            self._finish(b"")
        elif b"chunked" in _header(lower, b"\r\ntransfer-encoding:"):
            self._left = -1
        elif length:
            if not length.isdigit():
                raise MalformedError("bad Content-Length")
            self._left = int(length)
        else:
            self.until_close = self.will_close = True

    def _sized(self) -> None:
        data = self._buffer
        if len(data) > self._left:
            raise MalformedError("more than was announced")
        self._body.append(data)
        self._left -= len(data)
        self._buffer = b""
        if not self._left:
            self._finish(b"".join(self._body))

    def _chunks(self) -> None:
        data, position = self._buffer, 0
        while True:
            end = data.find(b"\r\n", position)
            if end < 0:
                break
            size = int(data[position:end].partition(b";")[0], 16)
            if not size:
                # Trailers may follow; they end with an empty line.
                last = end if data.startswith(b"\r\n", end + 2) else data.find(_END_OF_HEAD, end)
                if last < 0:
                    break
                self._finish(b"".join(self._body))
                return
            if len(data) < end + 4 + size:
                break
            self._body.append(data[end + 2 : end + 2 + size])
            position = end + 4 + size
        self._buffer = data[position:]

    def _finish(self, body: bytes) -> None:
        self._buffer = b""
        self.response = ApiResponse(self._status, self._retry_after, body)


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(name)
    if start < 0:
        return b""
    end = head.find(b"\r\n", start + 2)
    return head[start + len(name) : end if end >= 0 else None].strip()
