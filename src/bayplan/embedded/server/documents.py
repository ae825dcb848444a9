"""The objects of the embedded server as JSON, their versions and their history.

A document is stored as the bytes that are sent: lists and watch events only join them, fields that bayplan's
records do not have are preserved, and an object takes a tenth of the memory of dictionaries. Callers that
need fields parse it; the scheduler's typed record is decoded once and cached.

This module handles keys, versions and order; `objects.py` knows what objects mean. A `Journal` (`sqlite.py`)
writes to disk; it is optional.

Field selectors compare the text of fields (`field_texts`). A real server compares with typed objects, in
which a field that the JSON leaves out has the zero of its type: `spec.unschedulable=false` finds nodes that
do not mention it. So does this, from the types in `schema/fields.txt`. The fields of custom resources have no
such zero: where one is absent, its text is empty.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from bayplan.api.cluster_api import Change
from bayplan.api.meta import Content, Object
from bayplan.api.reading import Unreadable, read_object, readable
from bayplan.embedded.server import statuses
from bayplan.embedded.server.kinds import EVENTS, JOBS, PODS, Resource
from bayplan.embedded.server.schema.types import Type, type_of
from bayplan.simulate.memory.history import History

_ZEROS: Final = {"boolean": "false", "int32": "0", "int64": "0"}
_ELSEWHERE: Final = {
    (EVENTS, "source"): ("source.component", "reportingComponent"),
    (JOBS, "status.successful"): ("status.succeeded",),
    (PODS, "status.podIPs"): (),
}
"""Selectors whose name is not the path of the field: the first of these fields that exists counts."""


def field_texts(resource: Resource, content: dict[str, Any]) -> dict[str, str]:
    """The text of each selectable field. The object is in its stored form."""
    texts = {}
    for name in resource.stored_fields:
        paths = _ELSEWHERE.get((resource.storage, name), (name,))
        found = (_text_at(content, path) for path in paths)
        texts[name] = next((text for text in found if text), "")
        if not texts[name] and resource.schema is None:
            texts[name] = _zero(resource.storage, paths)
    return texts


def _text_at(content: dict[str, Any], path: str) -> str:
    found: Any = content
    for step in path.split("."):
        if not isinstance(found, dict):
            return ""
        found = found.get(step)
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found)


@cache
def _zero(stored: Resource, paths: tuple[str, ...]) -> str:
    """The value of an absent field."""
    found: Type | None = type_of(stored)
    for step in paths[0].split(".") if paths else [""]:
        field = ((found and found.fields) or {}).get(step)
        found = field.type if field is not None else None
    return _ZEROS.get(found.name, "") if found is not None else ""


HISTORY: Final = 10_000
"""Minimum number of changes in the history of each resource; a watcher further behind has to list again."""

MAX_HISTORY_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of the history of a resource; with large objects it has fewer changes."""
MAX_HISTORIES_BYTES: Final = 128 * 1024 * 1024
"""Maximum size of all histories together: a definition may add any number of resources."""
RECENT: Final = 1000
"""Number of latest changes whose records and facts stay cached: watchers are seldom further behind."""
MAX_OBJECT_BYTES: Final = 4 * 1024 * 1024
"""Of an object's JSON: more than the body of a request, so that patches make nothing grow without end. etcd's
limit is 1.5 MiB of protobuf."""
MAX_STORE_BYTES: Final = 2 << 30
"""Of the JSON of all objects, as in etcd by default. See `DocumentStore.require_room`."""

ObjectT = TypeVar("ObjectT", bound=Object)

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Content).decode
_AFTER_SLASH: Final = "0"
"""The character that follows "/", so that `ns/` to `ns0` are the keys of a namespace."""


class Document:
    """One version of one object. It never changes."""

    __slots__ = ("_facts", "_record", "_views", "body", "key", "version")

    def __init__(self, key: str, version: int, body: bytes) -> None:
        self.key = key
        self.version = version
        self.body = body
        self._facts: Facts | None = None
        self._record: Object | None = None
        self._views: dict[str, bytes] | None = None

    def parse(self) -> Content:
        """The object's fields; the caller may modify them."""
        return decode(self.body)

    def facts(self, resource: Resource) -> Facts:
        """Labels and selectable fields, for selectors. Computed once."""
        if self._facts is None or self._facts.names != resource.stored_fields:
            # Versions of a custom resource may have different selectable fields.
            content = self.parse()
            labels = content["metadata"].get("labels") or {}
            self._facts = Facts(labels, field_texts(resource, content), resource.stored_fields)
        return self._facts

    def record(self, kind: type[ObjectT]) -> ObjectT:
        """The object as a typed record, decoded once. Fields that cannot be decoded are omitted."""
        return readable(self.reading(kind))

    def reading(self, kind: type[ObjectT]) -> ObjectT | Unreadable:
        """The same, but an `Unreadable` if not all of it can be decoded."""
        if self._record is None:
            self._record = read_object(kind, self.body)
        return cast(ObjectT, self._record)

    def at_version(self, version: int) -> Document:
        """The same object with another version."""
        content = self.parse()
        content["metadata"]["resourceVersion"] = str(version)
        return Document(self.key, version, encode(content))

    def forget_derived(self) -> None:
        """Drops cached values, which take several times the memory of the body. They are computed again on
        demand."""
        self._facts = self._record = self._views = None

    def view(self, name: str, convert: Any) -> bytes:
        """The body in another form (another API group's), converted once."""
        if self._views is None:
            self._views = {}
        body = self._views.get(name)
        if body is None:
            body = self._views[name] = encode(convert(self.parse()))
        return body


class Facts(NamedTuple):
    labels: dict[str, str]
    fields: dict[str, str]
    names: tuple[str, ...]
    """Of the fields."""


class Entry(NamedTuple):
    """One change of one object. A deletion has the last state of the object and a version of its own."""

    change: Change
    document: Document
    previous: Document | None
    resource_version: str


def _forget_derived(table: Table) -> None:
    """Called after each change: drops the cached values of versions older than the latest changes.

    The history is bounded by the size of its bodies; the records of all its versions would take most of the
    memory of a busy cluster.
    """
    entry = table.history.before_last(RECENT)
    if entry is None:
        return
    if entry.previous is not None:
        entry.previous.forget_derived()
    if entry.change is Change.DELETED:
        entry.document.forget_derived()


def _size_of(entry: Entry) -> int:
    return len(entry.document.body)


class Journal(Protocol):
    """Makes writes durable."""

    def record(self, resource: Resource, document: Document, *, removed: bool) -> None:
        """Accepts a write, which is committed soon."""

    def advance(self, version: int) -> None:
        """Accepts a version without a write."""

    @property
    def committed(self) -> int:
        """All writes up to this version are on the disk."""

    @property
    def failure(self) -> Exception | None:
        """Why nothing more can be written; None while it can."""

    async def wait(self, version: int) -> None:
        """Waits until everything up to a version is on the disk."""


class Table:
    """The objects of one resource by key, in the order of their keys, and their history."""

    __slots__ = ("documents", "history", "keys", "resource")

    def __init__(self, resource: Resource, history: History[Entry]) -> None:
        self.resource = resource
        self.documents: dict[str, Document] = {}
        self.keys: list[str] = []
        self.history = history

    def __iter__(self) -> Iterator[Document]:
        documents = self.documents
        return (documents[key] for key in self.keys)

    def of_namespace(self, namespace: str) -> Iterator[Document]:
        """The objects of a namespace; of all namespaces if it is empty."""
        if not namespace:
            return iter(self)
        keys, documents = self.keys, self.documents
        first, last = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}{_AFTER_SLASH}")
        return (documents[key] for key in keys[first:last])


class DocumentStore:
    """All documents. Every write gets the next version; versions never go back, not even after a crash."""

    def __init__(
        self,
        *,
        journal: Journal | None = None,
        history: int = HISTORY,
        max_bytes: int = MAX_STORE_BYTES,
    ) -> None:
        self.version = 0
        self._bytes = 0
        self._history_bytes = 0
        self._max_bytes = max_bytes
        self._journal = journal
        self._history = history
        self._compacted = 0
        self._tables: dict[Resource, Table] = {}
        self._listeners: list[Callable[[Resource], None]] = []

    def subscribe(self, listener: Callable[[Resource], None]) -> Callable[[], None]:
        """Calls `listener` with the resource after every write, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def restore(self, documents: Iterable[tuple[Resource, Document]], version: int) -> None:
        """Takes over what a journal has kept. What happened before is forgotten: who watched lists again."""
        self.version = self._compacted = version
        for resource, document in documents:
            self.table(resource).documents[document.key] = document
            self._bytes += len(document.body)
        for table in self._tables.values():
            table.keys = sorted(table.documents)
            table.history.compacted = version

    def table(self, resource: Resource) -> Table:
        table = self._tables.get(resource)
        if table is None:
            history: History[Entry] = History(
                self._history, self._compacted, size_of=_size_of, max_bytes=MAX_HISTORY_BYTES
            )
            table = Table(resource, history)
            self._tables[resource] = table
        return table

    def drop(self, resource: Resource) -> None:
        """Forgets a resource whose definition is gone; its objects have been removed before."""
        self._tables.pop(resource, None)

    # Reading

    def find(self, resource: Resource, key: str) -> Document | None:
        return self.table(resource).documents.get(key)

    def position(self, resource: Resource, version: int) -> int:
        """The position in the history from which a watcher continues that has everything up to a version.

        Raises:
            GoneError: the history no longer contains the changes after it.
        """
        if version > self.version:
            raise statuses.too_new(version, self.version)
        return self.table(resource).history.position_after(version)

    # Writing

    def require_room(self, *, is_owned: bool) -> None:
        """Rejects a new object if the store is full.

        Objects with an owner, and events, are rejected from 3/8 on: a ReplicaSet with two billion replicas
        leaves room for other objects. All new objects are rejected from 1/2 on. The rest is for changes of
        existing objects: a small pod is almost twice as large when it runs as when it is created.
        """
        limit = self._max_bytes // 8 * (3 if is_owned else 4)
        if self._bytes > limit:
            raise statuses.store_full(limit)

    def put(self, resource: Resource, key: str, content: Content) -> Document:
        """Creates or replaces an object. Its resourceVersion is written into `content`."""
        table = self.table(resource)
        previous = table.documents.get(key)
        body = self._encoded(content)
        growth = len(body) - (0 if previous is None else len(previous.body))
        if growth > 0 and self._bytes + growth > self._max_bytes:
            raise statuses.store_full(self._max_bytes)
        self._bytes += growth
        document = self._next(key, body)
        table.documents[key] = document
        if previous is None:
            insort(table.keys, key)
        change = Change.ADDED if previous is None else Change.MODIFIED
        self._append(table, Entry(change, document, previous, str(document.version)))
        return document

    def remove(self, resource: Resource, key: str, content: Content) -> Document:
        """Removes an object; `content` is its last version."""
        table = self.table(resource)
        body = self._encoded(content)
        previous = table.documents.pop(key)
        del table.keys[bisect_left(table.keys, key)]
        self._bytes -= len(previous.body)
        document = self._next(key, body)
        self._append(table, Entry(Change.DELETED, document, previous, str(document.version)))
        return document

    def advance(self) -> None:
        """The next version, without a change."""
        self.version += 1
        if self._journal is not None:
            self._journal.advance(self.version)

    def compact(self) -> None:
        """Drops all history: watchers that are up to date continue, everyone else must list."""
        self._compacted = self.version
        for table in self._tables.values():
            table.history.compact(self.version)

    # Durability

    @property
    def failure(self) -> Exception | None:
        """Why nothing more can be written; None while it can."""
        return None if self._journal is None else self._journal.failure

    async def durable(self, version: int | None = None) -> None:
        """Waits until everything up to a version (by default: up to now) would survive a crash."""
        if self._journal is not None:
            version = self.version if version is None else version
            if self._journal.committed < version:
                await self._journal.wait(version)

    def _encoded(self, content: Content) -> bytes:
        """An object as JSON, with the next version, which is not assigned yet."""
        content["metadata"]["resourceVersion"] = str(self.version + 1)
        body = encode(content)
        if len(body) > MAX_OBJECT_BYTES:
            raise statuses.too_large("etcdserver: request is too large")
        return body

    def _next(self, key: str, body: bytes) -> Document:
        self.version += 1
        # A copy takes what its bytes take. The encoder returns its buffer as it is, which has grown in
        # steps and is up to half as large again.
        return Document(key, self.version, bytes(memoryview(body)))

    def _shrink_histories(self) -> None:
        """Halves the largest histories until all together are within the limit."""
        histories = [table.history for table in self._tables.values()]
        self._history_bytes = sum(history.bytes for history in histories)  # without those of dropped tables
        while self._history_bytes > MAX_HISTORIES_BYTES:
            largest = max(histories, key=lambda history: history.bytes)
            before = largest.bytes
            largest.shrink()
            self._history_bytes += largest.bytes - before
            if largest.bytes == before:
                return  # one change is larger than the limit

    def _append(self, table: Table, entry: Entry) -> None:
        if self._journal is not None:
            removed = entry.change is Change.DELETED
            self._journal.record(table.resource, entry.document, removed=removed)
        before = table.history.bytes
        table.history.append(entry)
        self._history_bytes += table.history.bytes - before
        if self._history_bytes > MAX_HISTORIES_BYTES:
            self._shrink_histories()
        _forget_derived(table)
        for listener in self._listeners:
            listener(table.resource)


def copied(content: Any) -> Any:
    """A copy that shares nothing with the original; quicker than `copy.deepcopy`."""
    return msgspec.json.decode(encode(content))
