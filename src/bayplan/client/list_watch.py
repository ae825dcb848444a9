"""Lists and watches: all objects of a kind, and then every change.

A streaming list is tried first: a watch that begins with all objects and a bookmark, and then continues. That
is the cheapest for the server. If the server does not support it, a plain list is requested in pages.

    stream ── bookmark ──► done; the stream continues as the watch
      ├─ 410, or a version in the future: again without a version
      ├─ unreachable, 429: an error, the caller retries later
      └─ any other error ──► plain list ── 410 on a later page: again without pages
                               └─ 410, or a version in the future: again without a version

A watch is a stream of frames, one line of JSON for each change, in chunks that may end anywhere. It ends with
its connection, when its timeout (some minutes) has expired, or when nothing was received for too long. A
server sends bookmarks about every minute; with an old etcd it does not for kinds that never change, but
opening such a watch again costs little, and the server may be unreachable. Nothing is lost in any case: the
next watch continues from the last complete event.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple
from urllib.parse import urlencode

import msgspec

from bayplan.api.cluster_api import Change, ObjectT, WatchEvent
from bayplan.api.kinds import KINDS, Kind, Watch
from bayplan.client.api_errors import NotServedError, OnceLogger, TooLargeError, explained
from bayplan.client.decoding import INITIAL_EVENTS_END, Page, decode_frames, decode_page
from bayplan.client.requests import Requests, UnreachableError
from bayplan.client.streams import Stream
from bayplan.client.transport import LostError
from bayplan.errors import APIError, ForbiddenError, GoneError, NotFoundError, ServerError

PAGE_SIZE: Final = 500
MAX_PAGES: Final = 5000
"""A list with more pages (2.5 million objects) has no end."""
MAX_LINE_BYTES: Final = 16 << 20
"""A longer line of a watch has no end: etcd stores objects of at most a few megabytes."""
STREAM_TRIES: Final = 3
"""How often a stream is tried that ends before its bookmark."""
LIST_SECONDS: Final = 70.0
"""Timeout for the first chunk of a list, and between two chunks. A busy server gives up after 60."""

MIN_TIMEOUT_SECONDS: Final = 300
"""The timeout of a watch is this long to twice as long, at random, so that not all end at the same time."""
IDLE_SECONDS: Final = 180.0
"""A watch that receives nothing for this time has missed three bookmarks and counts as lost."""

FIRST_BACKOFF_SECONDS: Final = 0.8
MAX_BACKOFF_SECONDS: Final = 30.0

_log = logging.getLogger(__name__)


class Listed(NamedTuple, Generic[ObjectT]):
    """A list, and the watch that follows it if it was a stream."""

    items: Sequence[ObjectT]
    resource_version: str
    watch: WatchStream[ObjectT] | None = None


class _Resource(msgspec.Struct):
    name: str = ""


class _ResourceList(msgspec.Struct):
    """An APIResourceList."""

    resources: list[_Resource] = []


class _StreamEndedError(APIError):
    """A stream ended before its bookmark."""

    def __init__(self, *, was_empty: bool) -> None:
        super().__init__("the stream ended before its bookmark")
        self.was_empty = was_empty


async def list_all(
    requests: Requests,
    kind: type[ObjectT],
    known_version: str,
    rng: random.Random,
    idle_seconds: float = IDLE_SECONDS,
) -> Listed[ObjectT]:
    """All objects of a kind, not older than the known version (empty: none is known).

    Raises:
        APIError: it cannot be listed.
    """
    for version in dict.fromkeys((known_version, "")):
        try:
            return await _stream(requests, kind, version, rng, idle_seconds)
        except (GoneError, TooLargeError) as error:
            _log.info("cannot stream %s from %r: %s", KINDS.of(kind), version, error)
        except UnreachableError:
            raise
        except APIError as error:
            if error.code == 429:
                raise
            _log.debug("no stream of %s, listing: %s", KINDS.of(kind), error)
            break
    return await list_pages(requests, kind, known_version)


# Lists as a stream


async def _stream(
    requests: Requests, kind: type[ObjectT], version: str, rng: random.Random, idle_seconds: float
) -> Listed[ObjectT]:
    target = watch_target(
        KINDS.of(kind),
        rng,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        resourceVersion=version,
    )
    for tries_left in reversed(range(STREAM_TRIES)):
        started = asyncio.get_running_loop().time()
        watch = WatchStream(kind, await requests.open(target, LIST_SECONDS), idle_seconds)
        try:
            return await _collect(watch)
        except _StreamEndedError as error:
            watch.close()
            at_once = asyncio.get_running_loop().time() - started < 1.0
            if not tries_left or (at_once and error.was_empty):
                raise
        except BaseException:
            watch.close()
            raise
    raise AssertionError("the last try returns or raises")


async def _collect(watch: WatchStream[ObjectT]) -> Listed[ObjectT]:
    """Reads everything up to the bookmark. What follows in the same chunk belongs to the watch."""
    items: dict[tuple[str, str], ObjectT] = {}
    while events := await watch.next():
        for index, event in enumerate(events):
            item = event.object
            if item is None:
                continue
            meta = item.metadata
            if event.change is Change.BOOKMARK:
                if meta.annotations.get(INITIAL_EVENTS_END) == "true":
                    watch.unread = events[index + 1 :]
                    return Listed(list(items.values()), event.resource_version, watch)
            elif event.change is Change.DELETED:
                items.pop((meta.namespace, meta.name), None)
            else:
                items[meta.namespace, meta.name] = item
    raise _StreamEndedError(was_empty=not items)


# Lists in pages


async def list_pages(requests: Requests, kind: type[ObjectT], known_version: str = "") -> Listed[ObjectT]:
    """Like `list_all`, without a stream: this needs no permission to watch."""
    resource = KINDS.of(kind)
    try:
        if known_version:
            return await _pages(requests, kind, {"resourceVersion": known_version})
        return await _pages(requests, kind, {"resourceVersion": "0", "limit": str(PAGE_SIZE)})
    except (GoneError, TooLargeError) as error:
        _log.info("cannot list %s from %r: %s", resource, known_version, error)
    return await _pages(requests, kind, {"limit": str(PAGE_SIZE)})


async def _pages(requests: Requests, kind: type[ObjectT], options: dict[str, str]) -> Listed[ObjectT]:
    page = await _page(requests, kind, options)
    items = page.items
    pages = 1
    while page.continue_:
        if pages >= MAX_PAGES:
            raise APIError(f"the list of {KINDS.of(kind)} has more than {MAX_PAGES} pages")
        pages += 1
        try:
            following = {"limit": str(PAGE_SIZE), "continue": page.continue_}
            page = await _page(requests, kind, following)
        except GoneError as error:
            _log.info(
                "the list of %s expired between pages, listing without pages: %s", KINDS.of(kind), error
            )
            whole = {name: value for name, value in options.items() if name != "limit"}
            page = await _page(requests, kind, whole)
            return Listed(page.items, page.resource_version)
        items.extend(page.items)
    return Listed(items, page.resource_version)


async def _page(requests: Requests, kind: type[ObjectT], options: dict[str, str]) -> Page[ObjectT]:
    resource = KINDS.of(kind)
    query = dict(options)
    if resource.field_selector:
        query["fieldSelector"] = resource.field_selector
    target = f"{resource.collection()}?{urlencode(query)}"
    try:
        stream = await requests.open(target, LIST_SECONDS)
    except NotFoundError as error:
        raise _not_served(resource, error) from error
    except ForbiddenError as error:
        # The server checks permissions first, and roles of an older release do not contain newer kinds.
        if resource.watch is not Watch.REQUIRED and not await _is_served(requests, resource):
            raise _not_served(resource, error) from error
        raise
    try:
        return decode_page(kind, await stream.read_all(LIST_SECONDS))
    except LostError as error:
        raise ServerError(f"listing {resource}: {error}", 0) from error
    finally:
        stream.close()


async def _is_served(requests: Requests, resource: Kind) -> bool:
    """Whether discovery, which every user may read, lists the resource."""
    try:
        stream = await requests.open(resource.root, LIST_SECONDS)
    except NotFoundError:
        return False
    try:
        listed = msgspec.json.decode(await stream.read_all(LIST_SECONDS), type=_ResourceList)
    except (LostError, msgspec.MsgspecError) as error:
        raise ServerError(f"reading which resources {resource.api_version} has: {error}", 0) from error
    finally:
        stream.close()
    return any(each.name == resource.plural for each in listed.resources)


def _not_served(resource: Kind, error: APIError) -> NotServedError:
    return NotServedError(
        f"the API server does not serve {resource.plural} of {resource.api_version}: {error}"
    )


# Watches


class LineSplitter:
    """Joins pieces that may end anywhere to complete lines."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> bytes:
        """Adds a piece. Returns the lines that are now complete; empty if there are none.

        Raises:
            APIError: a line is too long.
        """
        end = piece.rfind(b"\n") + 1
        if not end:
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size > MAX_LINE_BYTES:
                raise APIError(f"a line of the watch is longer than {MAX_LINE_BYTES >> 20} MiB")
            return b""
        if not self._pieces:
            lines = piece if end == len(piece) else piece[:end]
        else:
            self._pieces.append(piece[:end])
            lines = b"".join(self._pieces)
            self._pieces.clear()
        self._size = len(piece) - end
        if self._size:
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
