"""The body of a request: limited in size and time, and read only from clients that may send one.

Call it after authentication: the server requests the body of a client that sends `Expect: 100-continue` only
here, and reads nothing of a body before.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyTooLargeError(Exception):
    """The body is larger than the limit."""


class BodyTimeoutError(Exception):
    """The body did not arrive in time."""


class EncodedBodyError(Exception):
    """The body is compressed."""


async def read_body(request: web.BaseRequest, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body.

    Raises:
        BodyTooLargeError, BodyTimeoutError, EncodedBodyError: it cannot be read.
    """
    if request.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise EncodedBodyError
    if (request.content_length or 0) > max_bytes:
        raise BodyTooLargeError
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(_CONTINUE)
        request.writer.output_size = 0
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise BodyTooLargeError from error
    except TimeoutError as error:
        raise BodyTimeoutError from error
