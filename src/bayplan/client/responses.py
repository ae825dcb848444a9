"""Parses an HTTP/1.1 response from the pieces in which it arrives.

No I/O: `short_requests.py` and `streams.py` feed it. It handles the responses of an API server and of proxies
in front of one: with Content-Length, chunked, without a body, or with a body that ends with the connection.
"""

from __future__ import annotations

from typing import Final

from bayplan.client.transport import ApiResponse

_END_OF_HEAD: Final = b"\r\n\r\n"
_NO_BODY: Final = frozenset((204, 304))


class MalformedError(ValueError):
    """The response is not HTTP."""


class ResponseReader:
    """Parses a response from pieces of any size.

    `status` is set when its head is complete, `response` when all of it is. To read a long response piece by
    piece, call `take` in between; the body of `response` is then the rest.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_is_chunked",
        "_left",
        "response",
        "retry_after",
        "status",
        "until_close",
        "will_close",
    )

    def __init__(self) -> None:
        self._buffer = b""
        self.status = 0
        self.retry_after = ""
        self._body: list[bytes] = []
        self._is_chunked = False
        self._left = 0
        """Missing bytes of the body, or of a chunk with the line break after it."""
        self.until_close = False
        self.will_close = False
        self.response: ApiResponse | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._buffer or self.status)

    def feed(self, data: bytes) -> None:
        self._buffer = data = self._buffer + data if self._buffer else data
        while not self.status:
            end = data.find(_END_OF_HEAD)
            if end < 0:
                return
            self._head(data[:end])
            self._buffer = data = data[end + 4 :]
        if self.response is not None:
            return
        if self._is_chunked:
            self._chunks()
        elif self.until_close:
            self._body.append(data)
            self._buffer = b""
        elif len(data) == self._left and not self._body:
            self._finish(data)  # nearly always
        else:
            self._sized()

    def take(self) -> bytes:
        """The part of the body that has arrived since the last call."""
        body, self._body = self._body, []
        if self.response is not None and self.response.body:
            body, self.response = [self.response.body], self.response._replace(body=b"")
        return body[0] if len(body) == 1 else b"".join(body)

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
        self.status = status
        lower = head.lower()
        self.will_close = b"close" in _header(lower, b"\r\nconnection:") or head.startswith(b"HTTP/1.0")
        if status >= 300:
            self.retry_after = _header(lower, b"\r\nretry-after:").decode("latin-1")
        if status in _NO_BODY:
            self._finish(b"")
        elif b"chunked" in _header(lower, b"\r\ntransfer-encoding:"):
            self._is_chunked = True
        elif length := _header(lower, b"\r\ncontent-length:"):
            if not length.isdigit():
                raise MalformedError("bad Content-Length")
            self._left = int(length)
        else:
            self.until_close = self.will_close = True

    def _sized(self) -> None:
        data = self._buffer
        if len(data) > self._left:
            raise MalformedError("body longer than Content-Length")
        self._body.append(data)
        self._left -= len(data)
        self._buffer = b""
        if not self._left:
            self._finish(b"".join(self._body))

    def _chunks(self) -> None:
        data, position, body = self._buffer, 0, self._body
        while True:
            if not self._left:
                end = data.find(b"\r\n", position)
                if end < 0:
                    break
                size = int(data[position:end].partition(b";")[0], 16)
                if size < 0:
                    raise MalformedError("invalid chunk length")
                if not size:
                    # Trailers may follow; they end with an empty line.
                    last = end if data.startswith(b"\r\n", end + 2) else data.find(_END_OF_HEAD, end)
                    if last < 0:
                        break
                    self._finish(b"".join(body))
                    return
                position = end + 2
                self._left = size + 2
            arrived = len(data) - position
            if arrived < self._left:
                # Take the part of a chunk that has arrived: a chunk may be as large as a whole list.
                part = min(arrived, self._left - 2)
                if part > 0:
                    body.append(data[position : position + part])
                    position += part
                    self._left -= part
                break
            body.append(data[position : position + self._left - 2])
            position += self._left
            self._left = 0
        self._buffer = data[position:]

    def _finish(self, body: bytes) -> None:
        self._buffer = b""
        self.response = ApiResponse(self.status, self.retry_after, body)


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(name)
    if start < 0:
        return b""
    end = head.find(b"\r\n", start + 2)
    return head[start + len(name) : end if end >= 0 else None].strip()
