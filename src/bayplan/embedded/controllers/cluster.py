"""The controllers' view of the store: every change once, and the owners of objects.

A controller in a real cluster uses a cache that lags behind, and guards itself against that. Here the store
is in the process: `sync` reads what happened since the last time, and runs before every reconcile, so a
controller sees all writes, its own included.

Objects stay the bytes of the store (`server/documents.py`). Pods, of which there are many, are decoded into
the typed records that the scheduler uses, too; other objects are parsed where their fields are needed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from bayplan.api.meta import OwnerReference
from bayplan.api.pod import Pod
from bayplan.cluster_api import Change
from bayplan.embedded.controllers.pod_index import PodIndex
from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import Content, Document, Table
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI

_log = logging.getLogger(__name__)

_NOT_FOLLOWED: Final = (kinds.EVENTS,)
"""No controller reacts to events, and there are more of them than of anything else."""


class Seen(NamedTuple):
    """A change of one object: `before` is absent where it is new, `after` where it is gone."""

    resource: Resource
    key: str
    before: Document | None
    after: Document | None
    has_new_owners: bool = False
    """Whether its ownerReferences are others than before, and there are some."""


class Identity(NamedTuple):
    """Where an object is found."""

    resource: Resource
    key: str


Notice = Callable[[Seen], None]


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class _Owned(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_owned = msgspec.json.Decoder(_Owned).decode


class _Followed:
    """How far the history of a resource has been read, and what is known of it."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.cursor = 0
        self.documents: dict[str, Document] = {}
        self.owners: dict[str, tuple[str, ...]] = {}


class Cluster:
    """The objects of a store, and word of what changes."""

    def __init__(self, api: ObjectAPI) -> None:
        self.api = api
        self.pods = PodIndex()
        self._changed: dict[Resource, None] = dict.fromkeys(api.catalog)
        self._followed: dict[Resource, _Followed] = {}
        self._notices: defaultdict[Resource, list[Notice]] = defaultdict(list)
        self._notices_of_all: list[Notice] = []
        self._dependents: dict[str, set[Identity]] = {}

    def tell(self, resource: Resource, notice: Notice) -> None:
        """Calls `notice` for each change of a resource, from the first `sync` on."""
        self._notices[resource].append(notice)

    def notify_all(self, notice: Notice) -> None:
        """Calls `notice` for each change of every resource but events."""
        self._notices_of_all.append(notice)

    def follow(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Takes note of writes, and calls `wake` at each, until the returned function is called."""

        def written(resource: Resource) -> None:
            self._changed[resource] = None
            wake()

        return self.api.store.subscribe(written)

    def sync(self) -> None:
        """Brings all this up to date."""
        while self._changed:
            resource = next(iter(self._changed))
            del self._changed[resource]
            if resource.stored_as is None and resource not in _NOT_FOLLOWED:
                self._read(resource)

    # Reading

    def find(self, resource: Resource, key: str) -> Content | None:
        """The fields of an object, for the caller to change as it likes."""
        document = self.api.store.find(resource, key)
        return None if document is None else document.parse()

    def dependents(self, uid: str) -> Iterator[Identity]:
        """The objects that name an owner, in no order that matters but always the same."""
        return iter(
            sorted(self._dependents.get(uid, ()), key=lambda found: (found.resource.plural, found.key))
        )

    def owned(self, resource: Resource, uid: str) -> list[Content]:
        """The objects of a resource that name an owner, by key."""
        found = (self.find(*identity) for identity in self.dependents(uid) if identity.resource == resource)
        return [content for content in found if content is not None]

    # Following

    def _read(self, resource: Resource) -> None:
        table = self.api.store.table(resource)
        followed = self._followed.get(resource)
        if followed is None:
            followed = self._followed[resource] = _Followed(table)
            self._compare(resource, followed)
        elif followed.table is not table:
            # A custom resource whose definition was replaced by another.
            self._catch_up(resource, followed)
            followed.table = table
            self._compare(resource, followed)
        else:
            self._catch_up(resource, followed)

    def _catch_up(self, resource: Resource, followed: _Followed) -> None:
        entries = followed.table.history.read(followed.cursor)
        if entries is None:
            self._compare(resource, followed)
            return
        followed.cursor += len(entries)
        for entry in entries:
            is_gone = entry.change is Change.DELETED
            self._see(resource, followed, entry.document.key, None if is_gone else entry.document)

    def _compare(self, resource: Resource, followed: _Followed) -> None:
        """What happened is not known, or not any more: what is different now?"""
        followed.cursor = followed.table.history.position_after(self.api.store.version)
        current = followed.table.documents
        for key, known in list(followed.documents.items()):
            # Another object may have the name by now: then this one is gone, too.
            if key not in current or (
                known.version != current[key].version and uid_of(known) != uid_of(current[key])
            ):
                self._see(resource, followed, key, None)
        for key in list(followed.table.keys):
            seen = followed.documents.get(key)
            if seen is None or seen.version != current[key].version:
                self._see(resource, followed, key, current[key])

    def _see(self, resource: Resource, followed: _Followed, key: str, after: Document | None) -> None:
        before = followed.documents.pop(key, None)
        if after is not None:
            followed.documents[key] = after
        try:
            if resource == kinds.PODS:
                self.pods.see(key, after)
            owners = self._keep_owners(resource, followed, key, after)
        except (msgspec.ValidationError, ValueError):
            # Not even what is common to all can be read; who needs no more than the key still hears of it.
            _log.exception("%s %s cannot be read", resource.kind, key)
            owners = False
        seen = Seen(resource, key, before, after, owners)
        for notice in (*self._notices[resource], *self._notices_of_all):
            try:
                notice(seen)
            except Exception:
                # An object that one controller cannot read does not affect the others.
                _log.exception("%s %s could not be looked at", resource.kind, key)

    def _keep_owners(self, resource: Resource, followed: _Followed, key: str, after: Document | None) -> bool:
        """Notes who owns an object now. Returns whether that are others than before, and there are some."""
        owners = owner_uids(after, resource)
        known = followed.owners.get(key, ())
        if owners == known:
            return False
        identity = Identity(resource, key)
        for uid in known:
            self._dependents[uid].discard(identity)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in owners:
            self._dependents.setdefault(uid, set()).add(identity)
        if owners:
            followed.owners[key] = owners
        else:
            del followed.owners[key]
        return bool(owners)


def owner_references(document: Document | None) -> tuple[OwnerReference, ...]:
    if document is None or b'"ownerReferences"' not in document.body:
        return ()
    return _decode_owned(document.body).metadata.owner_references


def owner_uids(document: Document | None, resource: Resource) -> tuple[str, ...]:
    if document is not None and resource == kinds.PODS:
        # Pods have been read already.
        return tuple(owner.uid for owner in document.record(Pod).metadata.owner_references)
    return tuple(owner.uid for owner in owner_references(document))


def uid_of(document: Document) -> str:
    return _decode_owned(document.body).metadata.uid


def names_of(key: str) -> tuple[str, str]:
    """Name and namespace of a key, as the verbs of the API take them."""
    namespace, _, name = key.rpartition("/")
    return name, namespace
