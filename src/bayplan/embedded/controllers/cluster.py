"""The controllers' view of the store: every change once, the owners of objects, and an index of pods.

A controller in a real cluster uses a cache that lags behind, and guards itself against that. Here the store
is in the process: `sync` reads what happened since the last time, and runs before every reconcile, so a
controller sees all writes, its own included.

Objects stay the bytes of the store (`server/documents.py`). Pods, of which there are many, are decoded into
the typed records that the scheduler uses, too; other objects are parsed where their fields are needed. The
index has pods by controller and by node, with counts: a ReplicaSet of 20,000 pods changes 20,000 times while
it starts, and counting all its pods after each change would take minutes.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from bayplan.api.cluster_api import Change
from bayplan.api.meta import Content, OwnerReference
from bayplan.api.pod import Pod
from bayplan.controllers.pods import is_active, is_ready
from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import Document, Table
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.objects import ObjectAPI

_log = logging.getLogger(__name__)

_NOT_WATCHED: Final = (kinds.EVENTS,)
"""No controller reacts to events, and there are more of them than of anything else."""


class ObjectChange(NamedTuple):
    """A change of one object: `before` is None if it was created, `after` if it was deleted."""

    resource: Resource
    key: str
    before: Document | None
    after: Document | None
    has_new_owners: bool = False
    """Whether its ownerReferences changed, and are not empty."""


class Identity(NamedTuple):
    """The resource and key of an object."""

    resource: Resource
    key: str


ChangeHandler = Callable[[ObjectChange], None]


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class _Owned(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_owned = msgspec.json.Decoder(_Owned).decode


class _WatchedResource:
    """The objects of one resource, and how far its history has been read."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.cursor = 0
        self.documents: dict[str, Document] = {}
        self.owners: dict[str, tuple[str, ...]] = {}


class Cluster:
    """The objects of a store, and handlers for their changes."""

    def __init__(self, api: ObjectAPI) -> None:
        self.api = api
        self.pods = PodIndex()
        self._changed: dict[Resource, None] = dict.fromkeys(api.catalog)
        self._watched: dict[Resource, _WatchedResource] = {}
        self._handlers: defaultdict[Resource, list[ChangeHandler]] = defaultdict(list)
        self._handlers_of_all: list[ChangeHandler] = []
        self._dependents: dict[str, set[Identity]] = {}

    def add_handler(self, resource: Resource, handler: ChangeHandler) -> None:
        """Calls `handler` for each change of a resource, from the first `sync` on."""
        self._handlers[resource].append(handler)

    def add_handler_for_all(self, handler: ChangeHandler) -> None:
        """Calls `handler` for each change of every resource but events."""
        self._handlers_of_all.append(handler)

    def watch_writes(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` after each write, until the returned function is called."""

        def written(resource: Resource) -> None:
            self._changed[resource] = None
            wake()

        return self.api.store.subscribe(written)

    def sync(self) -> None:
        """Reads all new changes and calls the handlers."""
        while self._changed:
            resource = next(iter(self._changed))
            del self._changed[resource]
            if resource.stored_as is None and resource not in _NOT_WATCHED:
                self._read(resource)

    # Reading

    def find(self, resource: Resource, key: str) -> Content | None:
        """The fields of an object; the caller may modify them."""
        document = self.api.store.find(resource, key)
        return None if document is None else document.parse()

    def dependents(self, uid: str) -> Iterator[Identity]:
        """The objects that name this owner, sorted."""
        return iter(
            sorted(self._dependents.get(uid, ()), key=lambda found: (found.resource.plural, found.key))
        )

    def owned(self, resource: Resource, uid: str) -> list[Content]:
        """The objects of a resource that name this owner, by key."""
        found = (self.find(*identity) for identity in self.dependents(uid) if identity.resource == resource)
        return [content for content in found if content is not None]

    # Syncing

    def _read(self, resource: Resource) -> None:
        table = self.api.store.table(resource)
        watched = self._watched.get(resource)
        if watched is None:
            watched = self._watched[resource] = _WatchedResource(table)
            self._compare(resource, watched)
        elif watched.table is not table:
            # A custom resource whose definition was replaced by another.
            self._read_history(resource, watched)
            watched.table = table
            self._compare(resource, watched)
        else:
            self._read_history(resource, watched)

    def _read_history(self, resource: Resource, watched: _WatchedResource) -> None:
        entries = watched.table.history.read(watched.cursor)
        if entries is None:
            self._compare(resource, watched)
            return
        watched.cursor += len(entries)
        for entry in entries:
            is_gone = entry.change is Change.DELETED
            self._handle(resource, watched, entry.document.key, None if is_gone else entry.document)

    def _compare(self, resource: Resource, watched: _WatchedResource) -> None:
        """Finds the differences if the history is not available, or no longer."""
        watched.cursor = watched.table.history.position_after(self.api.store.version)
        current = watched.table.documents
        for key, old in list(watched.documents.items()):
            # Another object may have the same name by now; the old one is gone then, too.
            if key not in current or (
                old.version != current[key].version and uid_of(old) != uid_of(current[key])
            ):
                self._handle(resource, watched, key, None)
        for key in list(watched.table.keys):
            known = watched.documents.get(key)
            if known is None or known.version != current[key].version:
                self._handle(resource, watched, key, current[key])

    def _handle(
        self, resource: Resource, watched: _WatchedResource, key: str, after: Document | None
    ) -> None:
        before = watched.documents.pop(key, None)
        if after is not None:
            watched.documents[key] = after
        try:
            if resource == kinds.PODS:
                self.pods.update(key, after)
            owners = self._update_owners(resource, watched, key, after)
        except (msgspec.ValidationError, ValueError):
            # Not even the metadata can be read. Handlers that need only the key are still called.
            _log.exception("%s %s cannot be read", resource.kind, key)
            owners = False
        change = ObjectChange(resource, key, before, after, owners)
        for handler in (*self._handlers[resource], *self._handlers_of_all):
            try:
                handler(change)
            except Exception:
                # An object that one controller cannot read does not affect the others.
                _log.exception("%s %s could not be handled", resource.kind, key)

    def _update_owners(
        self, resource: Resource, watched: _WatchedResource, key: str, after: Document | None
    ) -> bool:
        """Updates the index of owners. Returns whether they changed, and are not empty."""
        owners = owner_uids(after, resource)
        known = watched.owners.get(key, ())
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
            watched.owners[key] = owners
        else:
            del watched.owners[key]
        return bool(owners)


def owner_references(document: Document | None) -> tuple[OwnerReference, ...]:
    if document is None or b'"ownerReferences"' not in document.body:
        return ()
    return _decode_owned(document.body).metadata.owner_references


def owner_uids(document: Document | None, resource: Resource) -> tuple[str, ...]:
    if document is not None and resource == kinds.PODS:
        # Pods are decoded already.
        return tuple(owner.uid for owner in document.record(Pod).metadata.owner_references)
    return tuple(owner.uid for owner in owner_references(document))


def uid_of(document: Document) -> str:
    return _decode_owned(document.body).metadata.uid


def names_of(key: str) -> tuple[str, str]:
    """Name and namespace of a key, as the verbs of the API take them."""
    namespace, _, name = key.rpartition("/")
    return name, namespace


class OwnedPods:
    """The pods of one controller, by key."""

    __slots__ = ("active", "pods", "ready", "terminating")

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.active = 0
        """Neither finished nor being deleted."""
        self.ready = 0
        """Of these, those that are ready."""
        self.terminating = 0
        """Being deleted, and not finished."""

    def all_active(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if is_active(pod)]

    def count(self, pod: Pod, sign: int) -> None:
        if is_active(pod):
            self.active += sign
            if is_ready(pod):
                self.ready += sign
        elif not pod.is_finished:
            self.terminating += sign


NO_PODS = OwnedPods()


class PodIndex:
    """All pods that a `Cluster` has change."""

    def __init__(self) -> None:
        self._all: dict[str, Pod] = {}
        self._by_owner: dict[str, OwnedPods] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._bare: dict[str, dict[str, Pod]] = {}

    def get(self, key: str) -> Pod | None:
        return self._all.get(key)

    def owned_by(self, uid: str) -> OwnedPods:
        """The pods whose controller has this uid. Callers must not modify it."""
        return self._by_owner.get(uid, NO_PODS)

    def on_node(self, name: str) -> Iterable[Pod]:
        return list(self._by_node.get(name, {}).values())

    def bare(self, namespace: str) -> Iterable[Pod]:
        """The unmanaged pods of a namespace."""
        return list(self._bare.get(namespace, {}).values())

    def update(self, key: str, document: Document | None) -> None:
        """Updates the indexes for a pod that was changed or, with None, deleted."""
        self._remove(key)
        if document is not None:
            self._add(document.record(Pod))

    def _add(self, pod: Pod) -> None:
        key = pod.key
        self._all[key] = pod
        owner = pod.metadata.controller()
        if owner is None:
            self._bare.setdefault(pod.namespace, {})[key] = pod
        else:
            owned = self._by_owner.get(owner.uid)
            if owned is None:
                owned = self._by_owner[owner.uid] = OwnedPods()
            owned.pods[key] = pod
            owned.count(pod, 1)
        if pod.spec.node_name:
            self._by_node.setdefault(pod.spec.node_name, {})[key] = pod

    def _remove(self, key: str) -> None:
        pod = self._all.pop(key, None)
        if pod is None:
            return
        owner = pod.metadata.controller()
        if owner is None:
            _drop(self._bare, pod.namespace, key)
        else:
            owned = self._by_owner[owner.uid]
            del owned.pods[key]
            owned.count(pod, -1)
            if not owned.pods:
                del self._by_owner[owner.uid]
        if pod.spec.node_name:
            _drop(self._by_node, pod.spec.node_name, key)


def _drop(index: dict[str, dict[str, Pod]], name: str, key: str) -> None:
    pods = index[name]
    del pods[key]
    if not pods:
        del index[name]
