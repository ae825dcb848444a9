"""Watches: changes as they happen, one JSON object per line.

A watcher is a cursor into the history of its resource, so a slow one costs no memory and delays nothing. It
gets chunks as fast as it reads them; one that does not read for a while is disconnected, and one that falls
behind the history gets a 410 and has to list again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec
from aiohttp import web

from bayplan.api.cluster_api import Change
from bayplan.embedded.server import statuses
from bayplan.embedded.server.documents import Document, Entry
from bayplan.embedded.server.http.answers import pieces
from bayplan.embedded.server.http.reading import body_of, metadata_only, select, selection_of
from bayplan.embedded.server.http.requests import JSON, Form, Target, flag, integer
from bayplan.embedded.server.http.turns import paced
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.selecting import Selection
from bayplan.embedded.server.tables.printer import Printer
from bayplan.errors import GoneError

BOOKMARK_SECONDS: Final = 30.0
"""Interval of bookmarks for a watcher without events."""
STALL_SECONDS: Final = 30.0
"""A watcher that reads nothing for this time is disconnected."""
_MAX_SECONDS: Final = 1800
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

_encode = msgspec.json.Encoder().encode


class Watcher:
    """Handles watch requests."""

    def __init__(
        self, api: ObjectAPI, printer: Printer, *, bookmark_seconds: float = BOOKMARK_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:  # fmt: skip
        self._api = api
        self._printer = printer
        self._bookmark_seconds = bookmark_seconds
        self._patience_seconds = stall_seconds

    async def watch(self, request: web.BaseRequest, target: Target, form: Form) -> web.StreamResponse:
        resource = target.resource
        selection = selection_of(request, target)
        initial, cursor, version = await self._start(request, resource, selection)
        stream = _Stream(request, self._patience_seconds)
        show = self._formatter(resource, form)
        seconds = min(integer(request, "timeoutSeconds") or _MAX_SECONDS, _MAX_SECONDS)
        bookmarks = flag(request, "allowWatchBookmarks")
        await self._api.store.durable(version)
        await stream.open()
        try:
            async with asyncio.timeout(seconds):
                await stream.send(show(Change.ADDED, document) for document in initial)
                if bookmarks and flag(request, "sendInitialEvents"):
                    await stream.send([_bookmark(resource, version, {_INITIAL_EVENTS_END: "true"})])
                await self._follow(stream, resource, selection, (cursor, version), show, bookmarks)
        except TimeoutError:
            pass  # timeoutSeconds of the request; the client continues with another one
        except GoneError as error:
            status = statuses.ForgottenError(str(error), reason="Expired").status()
            await stream.send([_frame("ERROR", _encode(status))])
        except _SlowClientError:
            stream.cut()
            return stream.response
        await stream.close()
        return stream.response

    async def _start(
        self, request: web.BaseRequest, resource: Resource, selection: Selection
    ) -> tuple[list[Document], int, int]:
        """The first events, the position in the history from which the watch continues, and its version."""
        query = request.query
        store = self._api.store
        text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        initial_wanted = flag(request, "sendInitialEvents")
        version = statuses.version_number(text or "0")
        if "sendInitialEvents" in query and match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            problem = statuses.forbidden_field("resourceVersionMatch", why)
            raise statuses.invalid_options("ListOptions", [problem])
        if match and "sendInitialEvents" not in query:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            problem = statuses.forbidden_field("resourceVersionMatch", why)
            raise statuses.invalid_options("ListOptions", [problem])
        if version > store.version:
            raise statuses.too_new(version, store.version)
        if initial_wanted or (version == 0 and "sendInitialEvents" not in query):
            version = store.version
            cursor = store.position(resource.storage, version)
            return await select(self._api, resource, selection), cursor, version
        if version == 0:
            return [], store.position(resource.storage, store.version), store.version
        return [], store.position(resource.storage, version), version

    async def _follow(
        self,
        stream: _Stream,
        resource: Resource,
        selection: Selection,
        start: tuple[int, int],
        show: _Show,
        bookmarks: bool,
    ) -> None:
        """Sends the changes from a position in the history on."""
        store = self._api.store
        history = store.table(resource.storage).history
        cursor, version = start
        while True:
            batch = history.read(cursor)
            if batch is None:
                raise statuses.too_old(version, history.compacted)
            if not batch:
                try:
                    async with asyncio.timeout(self._bookmark_seconds):
                        await history.changed()
                except TimeoutError:
                    if bookmarks:
                        await store.durable()
                        await stream.send([_bookmark(resource, store.version)])
                continue
            cursor += len(batch)
            version = batch[-1].document.version
            await store.durable(version)
            await stream.send(_frames(batch, selection, show))

    def _formatter(self, resource: Resource, form: Form) -> _Show:
        """The format of objects in events: the object itself, a row of a table, or only its metadata."""
        if form.kind == "Table":
            first = True

            def table(change: Change, document: Document) -> _Frame:
                nonlocal first
                row = self._printer.table(resource, [document], "Metadata", first)
                first = False
                return _frame(change, _encode(row))

            return table
        if form.kind.startswith("PartialObjectMetadata"):
            return lambda change, document: _frame(change, _encode(metadata_only(document.parse())))
        return lambda change, document: _frame(change, body_of(resource, document))


_Frame = tuple[bytes, bytes, bytes]
_Show = Callable[[Change, Document], _Frame]


def _frames(batch: Any, selection: Selection, show: _Show) -> Iterator[_Frame]:
    everything = selection.is_everything
    entry: Entry
    for entry in batch:
        seen = (entry.change, entry.document) if everything else selection.seen(entry)
        if seen is not None:
            yield show(*seen)


def _frame(change: str, body: bytes) -> _Frame:
    """An event in parts, so that a large object is not copied for every watcher."""
    return b'{"type":"%b","object":' % change.encode(), body, b"}\n"


def _bookmark(resource: Resource, version: int, annotations: dict[str, str] | None = None) -> _Frame:
    meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    item = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return _frame(Change.BOOKMARK, _encode(item))


class _SlowClientError(Exception):
    """The client does not read."""


class _Stream:
    """A streamed response."""

    def __init__(self, request: web.BaseRequest, stall_seconds: float) -> None:
        self.response = web.StreamResponse()
        self.response.content_type = JSON
        self._request = request
        self._patience_seconds = stall_seconds

    async def open(self) -> None:
        await self.response.prepare(self._request)

    async def send(self, frames: Iterable[_Frame]) -> None:
        async for piece in paced(pieces(chain.from_iterable(frames))):
            try:
                async with asyncio.timeout(self._patience_seconds):
                    await self.response.write(piece)
            except TimeoutError as error:
                raise _SlowClientError from error

    async def close(self) -> None:
        await self.response.write_eof()

    def cut(self) -> None:
        """Closes the connection immediately, because the client does not read."""
        if self._request.transport is not None:
            self._request.transport.abort()
