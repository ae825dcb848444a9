"""The objects of the embedded server as JSON, their versions, and what happened to them.

A document is kept as the bytes that go over the wire: a list or a watch event is then a matter of joining
them, fields that bayplan's records do not know survive, and an object takes a tenth of the memory that it
takes as dictionaries. Who needs the fields parses it; the scheduler's typed record is made once and kept.

This knows keys, versions and order, and nothing of what an object means: `objects.py` does. What is written
here reaches the disk through a `Journal` (`sqlite.py`), which may be absent.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from bayplan.api.meta import Object
from bayplan.api.reading import Unreadable, read_object, readable
from bayplan.cluster_api import Change
from bayplan.embedded.server import statuses
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.selectable_fields import field_texts
from bayplan.memory_api.history import History

Content = dict[str, Any]
"""An object as plain values: what its JSON says."""

HISTORY: Final = 10_000
"""Changes that are remembered for each resource, at least; a watcher further behind has to list again."""

MAX_HISTORY_BYTES: Final = 32 * 1024 * 1024
"""Of the changes of a resource that are remembered; many changes of large objects are forgotten earlier."""
RECENT: Final = 1000
"""The latest changes of a resource, of which records and facts are kept, too; followers are seldom behind."""
MAX_OBJECT_BYTES: Final = 4 * 1024 * 1024
"""Of an object's JSON: more than the body of a request, so that patches make nothing grow without end. etcd's
limit is 1.5 MiB of protobuf."""
MAX_STORE_BYTES: Final = 1 << 30
"""Of the JSON of all objects; etcd's default is 2 GiB. See `DocumentStore.require_room`."""

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
        """The object's fields, for the caller to change as it likes."""
        return decode(self.body)

    def facts(self, resource: Resource) -> Facts:
        """What selectors ask about: labels, and the fields that may be selected. Looked up once."""
        if self._facts is None:
            content = self.parse()
            labels = content["metadata"].get("labels") or {}
            self._facts = Facts(labels, field_texts(resource, content))
        return self._facts

    def record(self, kind: type[ObjectT]) -> ObjectT:
        """The object as a typed record; always the same one. What cannot be read of it is left out."""
        return readable(self.reading(kind))

    def reading(self, kind: type[ObjectT]) -> ObjectT | Unreadable:
        """The same, but as `Unreadable` where it cannot be read as a whole."""
        if self._record is None:
            self._record = read_object(kind, self.body)
        return cast(ObjectT, self._record)

    def at_version(self, version: int) -> Document:
        """The same object with another version."""
        content = self.parse()
        content["metadata"]["resourceVersion"] = str(version)
        return Document(self.key, version, encode(content))

    def forget_derived(self) -> None:
        """Keeps the body only. What was made of it takes several times its memory, and is created again for
        one who asks."""
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


class Entry(NamedTuple):
    """One change of one object. A deleted one is given as it was last, with the version of its deletion."""

    change: Change
    document: Document
    previous: Document | None
    resource_version: str


def _forget_derived(table: Table) -> None:
    """Called after each change: of versions that were replaced before the latest changes, only bodies stay.

    The history is bounded by the bytes of its bodies; records of all its versions would be most of the
    memory that a busy cluster takes.
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
    """Where writes are made durable."""

    def record(self, resource: Resource, document: Document, *, removed: bool) -> None:
        """Takes a write; it will be on the disk soon."""

    @property
    def committed(self) -> int:
        """All writes up to this version are on the disk."""

    @property
    def failure(self) -> Exception | None:
        """Why nothing more can be written; None while it can."""

    async def wait(self, version: int) -> None:
        """Waits until everything up to a version is on the disk."""


class Table:
    """The objects of one resource by key, in the order of their keys, and what happened to them."""

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
        """The objects of a namespace; of all namespaces where it is empty."""
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
        self._max_bytes = max_bytes
        self._journal = journal
        self._history = history
        self._compacted = 0
        self._tables: dict[Resource, Table] = {}
        self._listeners: list[Callable[[Resource], None]] = []

    def subscribe(self, listener: Callable[[Resource], None]) -> Callable[[], None]:
        """Tells `listener` after every write what resource it was, until the returned function is called."""
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
        """Where in its history a watcher starts who knows everything up to a version.

        Raises:
            GoneError: what followed has been forgotten.
        """
        if version > self.version:
            raise statuses.too_new(version, self.version)
        return self.table(resource).history.position_after(version)

    # Writing

    def require_room(self, *, is_owned: bool) -> None:
        """Refuses a new object if the store is nearly full.

        Objects that belong to another, and events, are refused first, at three quarters: a ReplicaSet with
        two billion replicas leaves room for other objects. At seven eighths all new objects are
        refused: those that are there can still be changed and deleted.
        """
        eighths = 6 if is_owned else 7
        if self._bytes > self._max_bytes // 8 * eighths:
            raise statuses.store_full(self._max_bytes)

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
        self._tell(table, Entry(change, document, previous, str(document.version)))
        return document

    def remove(self, resource: Resource, key: str, content: Content) -> Document:
        """Removes an object; `content` is its last version."""
        table = self.table(resource)
        body = self._encoded(content)
        previous = table.documents.pop(key)
        del table.keys[bisect_left(table.keys, key)]
        self._bytes -= len(previous.body)
        document = self._next(key, body)
        self._tell(table, Entry(Change.DELETED, document, previous, str(document.version)))
        return document

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

    @property
    def is_durable(self) -> bool:
        """Whether everything written so far would survive a crash."""
        return self._journal is None or self._journal.committed >= self.version

    async def durable(self, version: int | None = None) -> None:
        """Waits until everything up to a version (by default: up to now) would survive a crash."""
        if self._journal is not None:
            version = self.version if version is None else version
            if self._journal.committed < version:
                await self._journal.wait(version)

    def _encoded(self, content: Content) -> bytes:
        """An object as JSON, with the next version, which is not taken yet."""
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

    def _tell(self, table: Table, entry: Entry) -> None:
        if self._journal is not None:
            removed = entry.change is Change.DELETED
            self._journal.record(table.resource, entry.document, removed=removed)
        table.history.append(entry)
        _forget_derived(table)
        for listener in self._listeners:
            listener(table.resource)


def copied(content: Any) -> Any:
    """A copy that shares nothing with the original; quicker than `copy.deepcopy`."""
    return msgspec.json.decode(encode(content))
