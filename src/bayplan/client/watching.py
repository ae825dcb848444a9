"""Watches: a stream of frames, one line of JSON for each change, in chunks that may end anywhere.

A watch ends with its connection, when its timeout (some minutes) has expired, or when nothing was received
for too long. A server sends bookmarks about every minute; with an old etcd it does not for kinds that never
change, but opening such a watch again costs little, and the server may be unreachable. Nothing is lost in any
case: the next watch continues from the last complete event.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final, Generic
from urllib.parse import urlencode

from bayplan.api.cluster_api import ObjectT, WatchEvent
from bayplan.api.kinds import KINDS, Kind
from bayplan.client.decoding import decode_frames
from bayplan.client.once_logger import OnceLogger
from bayplan.client.remedies import explained
from bayplan.client.requests import Requests, UnreachableError
from bayplan.client.streams import Stream
from bayplan.client.transport import LostError
from bayplan.errors import APIError, ServerError

MIN_TIMEOUT_SECONDS: Final = 300
"""The timeout of a watch is this long to twice as long, at random, so that not all end at the same time."""
IDLE_SECONDS: Final = 180.0
"""A watch that receives nothing for this time has missed three bookmarks and counts as lost."""

FIRST_BACKOFF_SECONDS: Final = 0.8
MAX_BACKOFF_SECONDS: Final = 30.0

_log = logging.getLogger(__name__)


class LineSplitter:
    """Joins pieces that may end anywhere to complete lines."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> bytes:
        """Adds a piece. Returns the lines that are now complete; empty if there are none."""
        end = piece.rfind(b"\n") + 1
        if not end:
            self._pieces.append(piece)
            return b""
        if not self._pieces:
            lines = piece if end == len(piece) else piece[:end]
        else:
            self._pieces.append(piece[:end])
            lines = b"".join(self._pieces)
            self._pieces.clear()
        if end < len(piece):
            self._pieces.append(piece[end:])
        return lines


class WatchStream(Generic[ObjectT]):
    """An open watch."""

    def __init__(self, kind: type[ObjectT], stream: Stream, idle_seconds: float) -> None:
        self._kind = kind
        self._stream = stream
        self._idle_seconds = idle_seconds
        self._lines = LineSplitter()
        self._error: APIError | None = None
        self.unread: Sequence[WatchEvent[ObjectT]] = ()
        """Events that were read with the list, for the next call of `next`."""

    async def next(self) -> Sequence[WatchEvent[ObjectT]]:
        """The next events, at least one; none at the end.

        Raises:
            APIError: the server has ended the watch with an error (GoneError: list again).
        """
        if self.unread:
            events, self.unread = self.unread, ()
            return events
        while self._error is None:
            try:
                piece = await self._stream.read(self._idle_seconds)
            except LostError as error:
                _log.debug("watch of %s ended: %s", self._kind.__name__, error)
                return ()
            if not piece:
                return ()
            lines = self._lines.feed(piece)
            if lines:
                events, self._error = decode_frames(self._kind, lines)
                if events:
                    return events
        raise self._error

    def close(self) -> None:
        self._stream.close()


def watch_target(resource: Kind, rng: random.Random, **options: str) -> str:
    """Path and query of a watch."""
    query = {"watch": "true", "allowWatchBookmarks": "true"}
    query["timeoutSeconds"] = str(MIN_TIMEOUT_SECONDS + rng.randrange(MIN_TIMEOUT_SECONDS + 1))
    if resource.field_selector:
        query["fieldSelector"] = resource.field_selector
    query.update((name, value) for name, value in options.items() if value)
    return f"{resource.collection()}?{urlencode(query)}"


async def open_watch(
    requests: Requests,
    kind: type[ObjectT],
    resource_version: str,
    rng: random.Random,
    idle_seconds: float = IDLE_SECONDS,
) -> WatchStream[ObjectT]:
    """Opens a watch from a resourceVersion on. Retries while the server is unreachable or overloaded.

    Raises:
        APIError: the server rejects it (GoneError: list again).
    """
    resource = KINDS.of(kind)
    backoff, problems = FIRST_BACKOFF_SECONDS, OnceLogger(_log, logging.WARNING)
    while True:
        target = watch_target(resource, rng, resourceVersion=resource_version)
        try:
            return WatchStream(kind, await requests.open(target), idle_seconds)
        except ServerError as error:
            if not isinstance(error, UnreachableError) and error.code != 429:
                raise
            problems.log(f"cannot watch {resource}, trying again: {explained(error)}")
        await asyncio.sleep(backoff * (1 + rng.random()))
        backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
