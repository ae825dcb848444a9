"""GET of one object, and of lists: pages, selectors, tables."""

from __future__ import annotations

import base64
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from bayplan.embedded.server import statuses
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.http.answers import answer, answer_as, answer_list
from bayplan.embedded.server.http.requests import Form, Target, integer
from bayplan.embedded.server.http.turns import in_steps
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.selecting import Selection, parse_selection
from bayplan.embedded.server.statuses import bad_request
from bayplan.embedded.server.tables.printer import Printer
from bayplan.embedded.server.views import from_storage

MAX_OPEN_LISTS: Final = 1000
"""Maximum number of paged lists in progress; then the oldest token expires."""
MAX_LIST_SECONDS: Final = 300.0
"""Lifetime of a token from the first page on: etcd keeps old versions as long by default."""
_ROWS: Final = 10
"""Rows of a table that are rendered at once, before other tasks run."""
_TOKEN_NAME: Final = "bayplan"

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
        if token:
            lifetime, key = _read_token(token)
            found = self._open.get(key) if lifetime == self._lifetime else None
            if found is None:
                raise statuses.expired_continue()
            if found.question != question:
                raise bad_request("continue key is not valid: it is for another list")
        else:
            version = self._api.store.version
            documents: Sequence[Document] = await select(
                self._api, target.resource, selection_of(request, target)
            )
            found = _OpenList(documents, 0, version, time.monotonic(), question)
        documents, end = found.documents, found.start + limit
        if not limit or len(documents) <= end:
            return documents[found.start :] if found.start else documents, found.version, "", None
        next_key = str(next(self._tokens))
        self._open[next_key] = found._replace(start=end)
        next_token = _make_token(self._lifetime, next_key)
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
    if resource.stored_as is None:
        return document.body
    convert: Callable[[dict[str, Any]], dict[str, Any]] = lambda content: from_storage(resource, content)  # noqa: E731
    return document.view(resource.api_version, convert)


def metadata_only(content: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": content["metadata"],
    }


def _make_token(lifetime: str, key: str) -> str:
    """Opaque to clients."""
    return base64.urlsafe_b64encode(f"{_TOKEN_NAME}:{lifetime}:{key}".encode()).decode()


def _read_token(token: str) -> tuple[str, str]:
    """The server's lifetime and the key in a token."""
    try:
        name, lifetime, key = base64.urlsafe_b64decode(token.encode()).decode().split(":")
    except ValueError as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if name != _TOKEN_NAME:
        raise bad_request("continue key is not valid: it is not one of ours")
    return lifetime, key
