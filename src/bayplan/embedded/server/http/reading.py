"""GET of one object, of lists (pages, selectors, tables), and watches.

A watch sends changes as they happen, one JSON object per line. A watcher is a cursor into the history of its
resource, so a slow one costs no memory and delays nothing. It gets chunks as fast as it reads them; one that
does not read for a while is disconnected, and one that falls behind the history gets a 410 and has to list
again.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import secrets
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from bayplan.api.cluster_api import Change
from bayplan.embedded.server import statuses
from bayplan.embedded.server.documents import Document, Entry
from bayplan.embedded.server.http.answers import answer, answer_as, answer_list, pieces
from bayplan.embedded.server.http.requests import JSON, Form, Target, flag, integer, not_acceptable
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.selecting import Selection, parse_selection
from bayplan.embedded.server.statuses import bad_request
from bayplan.embedded.server.steps import in_steps, paced
from bayplan.embedded.server.tables.printer import Printer
from bayplan.embedded.server.views import from_storage, lacks_defaults
from bayplan.errors import GoneError

MAX_OPEN_LISTS: Final = 1000
"""Maximum number of paged lists in progress; then the oldest token expires."""
MAX_LIST_SECONDS: Final = 300.0
"""Lifetime of a token from the first page on: etcd keeps old versions as long by default."""
_ROWS: Final = 10
"""Rows of a table that are rendered at once, before other tasks run."""
_TOKEN_NAME: Final = "bayplan"
_NOW: Final = "now"
"""The lifetime in tokens that continue an expired list with the objects of now."""

_encode = msgspec.json.Encoder().encode


class _OpenList(NamedTuple):
    """The rest of a paged list: all pages are of the same version."""

    documents: Sequence[Document]
    start: int
    """How many of them have been read."""
    version: int
    since: float
    question: tuple[Hashable, ...]
    """The request; a token is valid for no other one."""


class Reader:
    """Handles GET requests for objects."""

    def __init__(self, api: ObjectAPI, printer: Printer) -> None:
        self._api = api
        self._printer = printer
        self._open: OrderedDict[str, _OpenList] = OrderedDict()
        self._lifetime = secrets.token_hex(8)
        """Distinguishes tokens of an earlier process, which are expired."""
        self._tokens = itertools.count()

    async def get(self, request: web.BaseRequest, target: Target, form: Form) -> web.StreamResponse:
        resource = target.resource
        document = self._api.document(resource, target.name, target.namespace)
        if form.kind == "Table":
            table = self._printer.table(resource, [document], request.query.get("includeObject", "Metadata"))
            return answer(request, table)
        if form.kind == "PartialObjectMetadata":
            return answer(request, metadata_only(document.parse()))
        return await answer_as(request, form, body_of(resource, document))

    async def list(self, request: web.BaseRequest, target: Target, form: Form) -> web.StreamResponse:
        resource = target.resource
        self._check(request)
        documents, version, continue_, remaining = await self._page(request, target)
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if continue_:
            meta["continue"] = continue_
            if remaining is not None:
                meta["remainingItemCount"] = remaining
        durable = self._api.store.durable
        if form.kind == "Table":
            include = request.query.get("includeObject", "Metadata")
            head = {**self._printer.table(resource, documents[:1], include), "metadata": meta}
            del head["rows"]
            rows = await self._rows(resource, documents, include)
            return await answer_list(request, Form(), head, rows, durable, field="rows")
        if form.kind == "PartialObjectMetadataList":
            items = await in_steps(lambda document: _encode(metadata_only(document.parse())), documents)
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
            return await answer_list(request, Form(), head, items, durable)
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
        bodies = await in_steps(lambda document: body_of(resource, document), documents)
        return await answer_list(request, form, head, bodies, durable)

    async def _rows(self, resource: Resource, documents: Sequence[Document], include: str) -> Sequence[bytes]:
        """The rows of a table, a few at a time."""
        rows = await in_steps(
            lambda start: self._printer.table(resource, documents[start : start + _ROWS], include)["rows"],
            range(0, len(documents), _ROWS),
        )
        return await in_steps(_encode, chain.from_iterable(rows))

    def _check(self, request: web.BaseRequest) -> None:
        query = request.query
        if "sendInitialEvents" in query:
            problem = statuses.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")
            raise statuses.invalid_options("ListOptions", [problem])
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        if match and not version:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            problem = statuses.forbidden_field("resourceVersionMatch", why)
            raise statuses.invalid_options("ListOptions", [problem])
        if match not in ("", "Exact", "NotOlderThan"):
            problem = statuses.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
            raise statuses.invalid_options("ListOptions", [problem])
        current = self._api.store.version
        if version and statuses.version_number(version) > current:
            raise statuses.too_new(int(version), current)
        if match == "Exact" and version and int(version) != current:
            raise statuses.too_old(version, current)

    async def _page(
        self, request: web.BaseRequest, target: Target
    ) -> tuple[Sequence[Document], int, str, int | None]:
        """The objects of this page, their version, the token of the next page, and how many objects
        remain."""
        limit = max(integer(request, "limit") or 0, 0)
        token = request.query.get("continue", "")
        query = request.query
        self._forget_lists()
        question = (
            target.resource,
            target.namespace,
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
        )
        lifetime, key, last = _read_token(token) if token else (_NOW, "", "")
        if lifetime == _NOW:
            version = self._api.store.version
            documents: Sequence[Document] = await select(
                self._api, target.resource, selection_of(request, target)
            )
            read = bisect_right(documents, last, key=attrgetter("key"))
            found = _OpenList(documents, read, version, time.monotonic(), question)
        else:
            still_open = self._open.get(key) if lifetime == self._lifetime else None
            if still_open is None:
                # So that the rest differs in its version, as it does upstream: compaction is a write to etcd.
                self._api.store.advance()
                raise statuses.expired_continue(_make_token(_NOW, "", last))
            if still_open.question != question:
                raise bad_request("continue key is not valid: it is for another list")
            found = still_open
        documents, end = found.documents, found.start + limit
        if not limit or len(documents) <= end:
            return documents[found.start :] if found.start else documents, found.version, "", None
        next_key = str(next(self._tokens))
        self._open[next_key] = found._replace(start=end)
        next_token = _make_token(self._lifetime, next_key, documents[end - 1].key)
        return documents[found.start : end], found.version, next_token, len(documents) - end

    def _forget_lists(self) -> None:
        oldest = time.monotonic() - MAX_LIST_SECONDS
        while self._open and (
            len(self._open) > MAX_OPEN_LISTS or next(iter(self._open.values())).since < oldest
        ):
            self._open.popitem(last=False)


def selection_of(request: web.BaseRequest, target: Target) -> Selection:
    query = request.query
    return parse_selection(
        target.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""), target.namespace
    )


async def select(api: ObjectAPI, resource: Resource, selection: Selection) -> list[Document]:
    """The objects that currently match a selection."""
    documents = list(api.documents(resource, selection.namespace))
    if selection.is_everything:
        return documents
    return list(compress(documents, await in_steps(selection.matches, documents)))


def body_of(resource: Resource, document: Document) -> bytes:
    """An object's JSON in the version of the requested resource."""
    is_old = lacks_defaults(resource, document.version)
    if resource.stored_as is None and not is_old:
        return document.body
    name = f"{resource.api_version} {resource.defaults_since}" if is_old else resource.api_version
    return document.view(name, partial(from_storage, resource))


def metadata_only(content: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": content["metadata"],
    }


def _make_token(lifetime: str, key: str, last: str) -> str:
    """Opaque to clients. `last` is the key of the last object of the page."""
    return base64.urlsafe_b64encode(f"{_TOKEN_NAME}:{lifetime}:{key}:{last}".encode()).decode()


def _read_token(token: str) -> tuple[str, str, str]:
    """The server's lifetime, the key of the open list and the key of the last object in a token."""
    try:
        name, lifetime, key, last = base64.urlsafe_b64decode(token.encode()).decode().split(":", 3)
    except ValueError as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if name != _TOKEN_NAME:
        raise bad_request("continue key is not valid: it is not one of ours")
    return lifetime, key, last


BOOKMARK_SECONDS: Final = 30.0
"""Interval of bookmarks for a watcher without events."""
STALL_SECONDS: Final = 30.0
"""A watcher that reads nothing for this time is disconnected."""
_MAX_SECONDS: Final = 1800
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


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
        if form.protobuf and not form.or_json:
            raise not_acceptable()
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
