"""A small API server over HTTP: a `MemoryStore` behind the paths, bodies and answers of the real one.

Responses and effects are the store's, so that conflicts, versions and histories are real. On top it can
misbehave on request: `interfere` gets each request first and may answer it, delay it or break its connection;
watches can be cut anywhere, even in the middle of a frame.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from bayplan.api.cluster_api import Change, WatchEvent
from bayplan.api.devices import ResourceClaim
from bayplan.api.kinds import KINDS, UNFINISHED_PODS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod, PodStatus
from bayplan.client.access import Access
from bayplan.errors import APIError, ConflictError, GoneError, NotFoundError, ServerError
from bayplan.simulate.memory.store import MemoryStore, is_hidden
from bayplan.simulate.memory.writes import patched_uid

BREAK: Final = "break"
"""What `interfere` returns to have the connection closed without a response."""

Interference = Callable[["ReceivedRequest"], Awaitable[web.StreamResponse | str | None]]

_REASONS: Final = {404: "NotFound", 409: "Conflict", 410: "Expired", 500: "InternalError", 504: "Timeout"}


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    user: str = ""
    """The common name in the client certificate."""

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ApiServer:
    """Serves a store.

    A list from the cache (version 0) comes whole, as from the real one, unless `paging`.
    """

    store: MemoryStore
    streaming: bool = True
    """Whether lists can be had as a stream."""
    paging: bool = False
    minor: str = "36"
    """Of its version."""
    served: frozenset[str] = KINDS.names
    """Names of the kinds that there are."""
    interfere: Interference | None = None
    unknown: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields that the records do not have, by the key of the object."""
    received: list[ReceivedRequest] = field(default_factory=list)
    """All requests so far."""
    access: Access = field(default_factory=lambda: Access(""))
    watches: int = 0
    """Watches that are open."""
    cut_after: Callable[[], int | None] = lambda: None
    """How many bytes the next watch may send before its connection is cut."""
    before_bookmark: list[dict[str, Any]] = field(default_factory=list)
    after_bookmark: list[dict[str, Any]] = field(default_factory=list)
    """Frames that a stream has before and after the bookmark that ends its list."""
    errors_after: int | None = None
    """How many batches a watch has before it becomes too old."""
    watch_seconds: float | None = None
    """When watches end, if earlier than requested."""

    def of(self, method: str, ending: str = "") -> list[ReceivedRequest]:
        """The requests so far with this method whose path ends so."""
        return [
            received
            for received in self.received
            if received.method == method and received.path.endswith(ending)
        ]

    def lists(self) -> list[ReceivedRequest]:
        return [
            received for received in self.received if received.method == "GET" and "limit" in received.query
        ]

    # Requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        certificate = request.get_extra_info("peercert") or {}
        names = dict(pair for part in certificate.get("subject", ()) for pair in part)
        received = ReceivedRequest(
            request.method,
            request.path,
            dict(parse_qsl(request.query_string)),
            dict(request.headers),
            await request.read(),
            names.get("commonName", ""),
        )
        self.received.append(received)
        answer: web.StreamResponse | str | None
        if self.interfere is not None:
            answer = await self.interfere(received)
            if isinstance(answer, str):
                cut(request)
                return web.Response()
            if answer is not None:
                return answer
        try:
            return await self._answer(received, request)
        except APIError as error:
            return error_response(error)

    async def _answer(self, received: ReceivedRequest, request: web.Request) -> web.StreamResponse:
        if received.path == "/version":
            return json_response({"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"})
        place = self._place(received.path)
        if received.method == "GET" and not place.name:
            if place.resource == "":
                return json_response({"kind": "APIResourceList", "resources": []})
            if received.is_watch:
                return await self._watch(place, received, request)
            return json_response(self._list(place, received))
        if received.method == "GET":
            return json_response(self.raw(self.store.get(place.kind, place.name, place.namespace)))
        return self._write(place, received)

    def _place(self, path: str) -> Place:
        parts = path.strip("/").split("/")
        group = "" if parts[0] == "api" else parts[1]
        version = parts[1] if parts[0] == "api" else parts[2]
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if not rest:
            if any(kind.group == group and kind.name in self.served for kind in KINDS):
                return Place(Object, "", "")
            raise not_there()
        for resource in KINDS:
            found = (resource.group, resource.version, resource.plural) == (group, version, rest[0])
            if found and resource.name in self.served:
                name = rest[1] if len(rest) > 1 else ""
                return Place(resource.record, rest[0], namespace, name, "/".join(rest[2:]))
        raise not_there()

    # Reading

    def raw(self, item: Object) -> dict[str, Any]:
        kind = KINDS.of(type(item))
        raw: dict[str, Any] = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            **msgspec.to_builtins(item),
        }
        whole: dict[str, Any] = merged(raw, self.unknown.get(item.key, {}))
        return whole

    def _seen(self, place: Place, received: ReceivedRequest) -> list[Object]:
        assert place.kind is not Pod or received.query.get("fieldSelector") == UNFINISHED_PODS
        return [item for item in self.store.list(place.kind) if not is_hidden(item)]

    def _list(self, place: Place, received: ReceivedRequest) -> dict[str, Any]:
        items = [self.raw(item) for item in self._seen(place, received)]
        version, start = self.store.resource_version, 0
        if int(received.query.get("resourceVersion") or 0) > int(version):
            raise too_large(received.query["resourceVersion"], version)
        limit = int(received.query.get("limit") or 0)
        if token := received.query.get("continue"):
            version, _, text = token.partition(":")
            start = int(text)
        elif received.query.get("resourceVersion") == "0" and not self.paging:
            limit = 0
        end = start + limit if limit else len(items)
        meta: dict[str, Any] = {"resourceVersion": version}
        if end < len(items):
            meta["continue"] = f"{version}:{end}"
        kind = f"{place.kind.__name__}List"
        return {"kind": kind, "metadata": meta, "items": items[start:end] or None}

    async def _watch(
        self, place: Place, received: ReceivedRequest, request: web.Request
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        sender = Sender(request, response, self.cut_after())
        version = received.query.get("resourceVersion", "")
        streamed = received.query.get("sendInitialEvents") == "true"
        if streamed and not self.streaming:
            raise APIError("sendInitialEvents is forbidden for watch unless WatchList is enabled", code=422)
        if streamed and int(version or 0) > int(self.store.resource_version):
            raise too_large(version, self.store.resource_version)
        first: list[dict[str, Any]] = []
        if streamed:
            first = [{"type": "ADDED", "object": self.raw(item)} for item in self._seen(place, received)]
            version = self.store.resource_version
            first += [*self.before_bookmark, bookmark(place.kind, version, end=True), *self.after_bookmark]
        watch = self.store.watch(place.kind, version)
        await response.prepare(request)
        self.watches += 1
        try:
            await sender.send(first)
            async with asyncio.timeout(self.watch_seconds or int(received.query["timeoutSeconds"])):
                await self._send(place, watch, sender)
        except GoneError as error:
            await sender.send([{"type": "ERROR", "object": status(error)}])
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self.watches -= 1
        return response

    async def _send(self, place: Place, watch: AsyncIterator[Any], sender: Sender) -> None:
        batches = 0
        async for batch in watch:
            await sender.send(self._frames(place, batch))
            batches += 1
            if batches == self.errors_after:
                raise GoneError("too old resource version")

    def _frames(self, place: Place, batch: Sequence[WatchEvent[Object]]) -> Iterator[dict[str, Any]]:
        for event in batch:
            if event.change is Change.BOOKMARK:
                yield bookmark(place.kind, event.resource_version)
            elif event.object is not None:
                yield {"type": event.change.value, "object": self.raw(event.object)}

    # Writing

    def _write(self, place: Place, received: ReceivedRequest) -> web.StreamResponse:
        store, kind, name, namespace = self.store, place.kind, place.name, place.namespace
        match received.method, place.part:
            case "POST", "binding":
                body = received.json
                store.bind(name, namespace, body["target"]["name"], uid=body["metadata"].get("uid", ""))
                return json_response({"kind": "Status", "status": "Success", "code": 201}, status=201)
            case "POST", "":
                created = store.create(msgspec.convert(received.json, kind))
                return json_response(self.raw(created), status=201)
            case "PUT", "":
                return json_response(self.raw(store.update(msgspec.convert(received.json, kind))))
            case "PUT", "status":
                changed = store.update_claim_status(msgspec.convert(received.json, ResourceClaim))
                return json_response(self.raw(changed))
            case "PATCH", "status" if kind is ResourceClaim:
                [gone] = received.json["status"]["reservedFor"]
                uid, claim_uid = gone["uid"], received.json["metadata"]["uid"]
                return json_response(self.raw(store.release_claim(name, namespace, uid, claim_uid=claim_uid)))
            case "DELETE", "":
                store.delete(kind, name, namespace)
                return json_response({"kind": "Status", "status": "Success"})
            case "PATCH", part:
                return json_response(self.raw(self._patched(place, received, part)))
        raise not_there()

    def _patched(self, place: Place, received: ReceivedRequest, part: str) -> Object:
        old: Any = self.store.get(place.kind, place.name, place.namespace)
        patch = received.json
        meta = patch.get("metadata", {})
        if meta.get("resourceVersion") not in (None, old.metadata.resource_version):
            raise ConflictError(f'Operation cannot be fulfilled on {place.resource} "{place.name}": changed')
        if part == "status" and meta.get("uid") not in (None, old.metadata.uid):
            raise patched_uid(old, meta["uid"])
        raw = msgspec.to_builtins(old)
        if "strategic" in received.headers["Content-Type"]:
            conditions = patch.get("status", {}).pop("conditions", None)
            order = patch.get("status", {}).pop("$setElementOrder/conditions", None)
            if conditions is not None:
                known = raw.get("status", {}).get("conditions", [])
                assert (order is not None) == bool(known)
                patch["status"]["conditions"] = by_type(known, conditions)
        new = msgspec.convert(_without_nulls(merged(raw, patch)), place.kind)
        if part == "status":
            assert isinstance(old, Pod)
            assert isinstance(new, Pod)
            assert isinstance(new.status, PodStatus)
            return self.store.update(msgspec.structs.replace(old, status=new.status))
        return self.store.update(new)


@dataclass(frozen=True)
class Place:
    """The resource that a path names."""

    kind: type[Object]
    resource: str
    namespace: str
    name: str = ""
    part: str = ""


class Sender:
    """Writes frames, and cuts the connection after so many bytes."""

    def __init__(self, request: web.Request, response: web.StreamResponse, limit: int | None) -> None:
        self._request = request
        self._response = response
        self._left = limit

    async def send(self, frames: Any) -> None:
        data = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
        if self._left is None or len(data) < self._left:
            if self._left is not None:
                self._left -= len(data)
            if data:
                await self._response.write(data)
            return
        await self._response.write(data[: self._left])
        await asyncio.sleep(0.01)  # for what was written to arrive before the end does
        cut(self._request)
        raise ConnectionResetError


def cut(request: web.Request) -> None:
    """Closes a connection without a response."""
    if request.transport is not None:
        request.transport.abort()


def bookmark(kind: type[Object], version: str, *, end: bool = False) -> dict[str, Any]:
    """As Go writes one: an empty object, with nulls for lists that are never left out."""
    meta: dict[str, Any] = {"resourceVersion": version, "creationTimestamp": None}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    raw: dict[str, Any] = {"kind": kind.__name__, "metadata": meta}
    if kind is Pod:
        raw |= {"spec": {"containers": None}, "status": {}}
    return {"type": "BOOKMARK", "object": raw}


def json_response(content: Any, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(content).encode(), status=status, content_type="application/json")


def status(error: APIError) -> dict[str, Any]:
    code = error.code or 500
    reason = "AlreadyExists" if "already exists" in str(error) else _REASONS.get(code, "")
    raw = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": str(error)}
    if "Too large" in str(error):
        raw["details"] = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
    return raw


def error_response(error: APIError, headers: dict[str, str] | None = None) -> web.Response:
    """The response for an error."""
    response = json_response(status(error), error.code or 500)
    response.headers.update(headers or {})
    return response


def not_there() -> NotFoundError:
    return NotFoundError("the server could not find the requested resource")


def too_large(requested: str, current: str) -> ServerError:
    return ServerError(f"Too large resource version: {requested}, current: {current}", code=504)


def merged(old: Any, new: Any) -> Any:
    """A JSON merge, with nulls left in."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def by_type(known: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Conditions as a strategic merge leaves them."""
    result = {condition["type"]: condition for condition in known}
    for change in changes:
        result[change["type"]] = merged(result.get(change["type"], {}), change)
    return list(result.values())


def _without_nulls(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {key: _without_nulls(value) for key, value in raw.items() if value is not None}
    return [_without_nulls(item) for item in raw] if isinstance(raw, list) else raw


@asynccontextmanager
async def serving(
    server: ApiServer, tls: ssl.SSLContext | None = None, access: Access | None = None, port: int = 0
) -> AsyncIterator[ApiServer]:
    """Serves on this machine, on a free port if none is given. Then `server.access` has the address."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    host, port = runner.addresses[0][:2]
    scheme = "http" if tls is None else "https"
    server.access = replace(access or Access(""), server=f"{scheme}://{host}:{port}")
    try:
        yield server
    finally:
        await runner.cleanup()
