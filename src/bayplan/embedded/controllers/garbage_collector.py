"""Garbage collection: deletes objects whose owners are all gone, and old events.

The deletion of the owner says how. In the background (the default) the owner is deleted first. In the
foreground it waits, marked and with a finalizer, until the dependents that block it are gone. Orphaned
dependents only lose the reference. The API server records it as a finalizer (`server/deletion.py`).

Events are deleted an hour after they were last seen. In kube-apiserver etcd does this; here a controller
checks every few minutes, which is enough.

https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from bayplan.api.meta import Content, OwnerReference
from bayplan.embedded.controllers.cluster import (
    Cluster,
    Identity,
    ObjectChange,
    names_of,
    owner_references,
    uid_of,
)
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.server.catalog import UnknownKindError
from bayplan.embedded.server.deletion import FOREGROUND, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, DeleteOptions
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import EVENTS, NAMESPACES, Resource
from bayplan.errors import NotFoundError

_PER_CALL: Final = 100
"""Dependents that are written per call; the rest follow in the next one, so that other tasks run."""
_DELETED_JSON: Final = b'"deletionTimestamp"'
_FINALIZERS_JSON = (f'"{FOREGROUND_FINALIZER}"'.encode(), f'"{ORPHAN_FINALIZER}"'.encode())


class _Owner(Enum):
    """The state of one of an object's owners."""

    THERE = "there"
    GONE = "gone"
    WAITING = "waiting for its dependents to go"


class GarbageCollector(Controller):
    """Reconciles dependents, of any kind."""

    name: ClassVar = "garbage-collector-controller"

    def watches(self) -> dict[Resource, KeyMapper]:
        return {}

    def watches_all(self) -> KeyMapper:
        return self._any

    def _any(self, change: ObjectChange) -> Iterable[str]:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            found = [self._key(identity) for identity in self.cluster.dependents(uid_of(before))]
            return [*found, *self._waiting_owners(before, change.key)]
        has_finalizer = any(marker in after.body for marker in _FINALIZERS_JSON)
        if has_finalizer or change.has_new_owners:
            return (self._key(Identity(change.resource, change.key)),)
        return ()

    def _waiting_owners(self, dependent: Document, key: str) -> Iterable[str]:
        """The owners that may have waited for the deletion of this object."""
        for owner in owner_references(dependent):
            identity = self._identity(owner, key)
            if identity is not None:
                document = self.api.store.find(*identity)
                if document is not None and _FINALIZERS_JSON[0] in document.body:
                    yield self._key(identity)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        path, _, object_key = key.partition(" ")
        group, version, plural = path.split("/")
        resource = self.api.catalog.find(group, version, plural)
        document = None if resource is None else self.api.store.find(resource, object_key)
        if resource is None or document is None:
            return None
        content = document.parse()
        meta = content["metadata"]
        finalizers = meta.get("finalizers") or ()
        if "deletionTimestamp" in meta:
            if ORPHAN_FINALIZER in finalizers:
                return self._orphan(resource, content)
            if FOREGROUND_FINALIZER in finalizers:
                return self._delete_after_dependents(resource, content)
            return None
        self._check_owners(Identity(resource, object_key), content)
        return None

    def _orphan(self, resource: Resource, content: Content) -> float | None:
        """Removes the owner from its dependents, some per call. Returns when to continue."""
        uid = content["metadata"]["uid"]
        some = list(islice(self.cluster.dependents(uid), _PER_CALL))
        for identity in some:
            self._drop_references(identity, {uid})
        if len(some) == _PER_CALL:
            return 0.0
        self._drop_finalizer(resource, content, ORPHAN_FINALIZER)
        return None

    def _delete_after_dependents(self, resource: Resource, content: Content) -> float | None:
        """Deletes dependents, some per call, then the owner they block. Returns when to continue."""
        uid = content["metadata"]["uid"]
        is_blocked, left = False, _PER_CALL
        for identity in self.cluster.dependents(uid):
            document = self.api.store.find(*identity)
            if document is None:
                continue
            if not left:
                return 0.0
            if _DELETED_JSON not in document.body:
                left -= 1
                self._check_owners(identity, document.parse())
            # One that blocks is enough; parsing all of them would take long.
            if not is_blocked:
                still = self.cluster.find(*identity)
                is_blocked = still is not None and _blocks(still, uid)
        if not is_blocked:
            self._drop_finalizer(resource, content, FOREGROUND_FINALIZER)
        return None

    def _check_owners(self, identity: Identity, content: Content) -> None:
        """Deletes an object without existing owners; otherwise removes references to missing ones."""
        document = self.api.store.find(*identity)
        references = owner_references(document)
        if not references:
            return
        states = {owner.uid: self._state(owner, identity) for owner in references}
        over = {uid for uid, state in states.items() if state is not _Owner.THERE}
        if not over:
            return
        if len(over) < len(states):
            self._drop_references(identity, over)
            return
        meta = content["metadata"]
        has_dependents = any(True for _ in self.cluster.dependents(meta["uid"]))
        waits = _Owner.WAITING in states.values() and has_dependents
        if waits and self._is_in_circle(meta["uid"]):
            self._unblock(identity)
        options = DeleteOptions(uid=meta["uid"], propagation=FOREGROUND if waits else None)
        with suppress(NotFoundError):
            self.api.delete(identity.resource, *names_of(identity.key), options)

    def _is_in_circle(self, uid: str) -> bool:
        """Whether a dependent of an object whose owner waits is itself waiting.

        As upstream, this may find more than circles (garbagecollector.go: attemptToDeleteItem).
        """
        documents = (self.api.store.find(*identity) for identity in self.cluster.dependents(uid))
        return any(document is not None and _is_waiting(document) for document in documents)

    def _unblock(self, identity: Identity) -> None:
        """Lets the owners of an object go before it, because each would wait for the other."""
        content = self.cluster.find(*identity)
        if content is not None:
            owners = content["metadata"].get("ownerReferences") or ()
            content["metadata"]["ownerReferences"] = [
                {**each, "blockOwnerDeletion": False} for each in owners
            ]
            self.api.update(identity.resource, content)

    def _state(self, owner: OwnerReference, dependent: Identity) -> _Owner:
        identity = self._identity(owner, dependent.key)
        if identity is None:
            return _Owner.THERE  # of a kind that is not served: it is unknown whether it is gone
        document = self.api.store.find(*identity)
        if document is None or uid_of(document) != owner.uid:
            return _Owner.GONE
        return _Owner.WAITING if _is_waiting(document) else _Owner.THERE

    def _identity(self, owner: OwnerReference, dependent_key: str) -> Identity | None:
        """Resource and key of an owner. A namespaced owner is in the namespace of its dependent."""
        try:
            resource = self.api.catalog.of_kind(owner.api_version, owner.kind).storage
        except UnknownKindError:
            return None
        _, namespace = names_of(dependent_key)
        return Identity(resource, resource.key(owner.name, namespace))

    def _drop_references(self, identity: Identity, uids: set[str]) -> None:
        content = self.cluster.find(*identity)
        if content is not None:
            owners = content["metadata"].get("ownerReferences") or ()
            content["metadata"]["ownerReferences"] = [each for each in owners if each["uid"] not in uids]
            self.api.update(identity.resource, content)

    def _drop_finalizer(self, resource: Resource, content: Content, finalizer: str) -> None:
        left = [each for each in content["metadata"].get("finalizers") or () if each != finalizer]
        content["metadata"]["finalizers"] = left
        self.api.update(resource, content)

    def _key(self, identity: Identity) -> str:
        resource = identity.resource
        return f"{resource.group}/{resource.version}/{resource.plural} {identity.key}"


def _is_waiting(document: Document) -> bool:
    """Whether an object is being deleted in the foreground."""
    if _FINALIZERS_JSON[0] not in document.body:
        return False
    meta = document.parse()["metadata"]
    return "deletionTimestamp" in meta and FOREGROUND_FINALIZER in (meta.get("finalizers") or ())


def _blocks(dependent: Content, uid: str) -> bool:
    owners = dependent["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)


KEPT_SECONDS: Final = 3600.0
_PERIOD_SECONDS: Final = 300.0
_MAX_CHECKED: Final = 200
"""Events checked per call; the rest follow in the next one, so that other tasks run."""


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    """When an event was seen: which of these says so depends on who wrote it."""

    metadata: _Metadata
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None


_decode = msgspec.json.Decoder(_Event).decode


class EventExpiry(Controller):
    """Deletes old events. It has one key, for all of them."""

    name: ClassVar = "event-expiry"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._unchecked: list[str] = []
        """Keys of the events that are left to check in this period."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NAMESPACES: self._start}

    def _start(self, change: ObjectChange) -> Iterable[str]:
        """The first namespace starts it; a reconcile for each further one does no harm."""
        return ("",) if change.before is None else ()

    def reconcile(self, key: str) -> float | None:
        oldest = self.api.time() - KEPT_SECONDS
        if not self._unchecked:
            self._unchecked = [document.key for document in self.api.documents(EVENTS)]
        some, self._unchecked = self._unchecked[:_MAX_CHECKED], self._unchecked[_MAX_CHECKED:]
        for event in some:
            document = self.api.store.find(EVENTS, event)
            if document is not None and last_seen(document) < oldest:
                self.api.delete(EVENTS, *names_of(event))
        return 0.0 if self._unchecked else _PERIOD_SECONDS


def last_seen(document: Document) -> float:
    event = _decode(document.body)
    series = event.series.last_observed_time if event.series is not None else None
    times = (series, event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(time.timestamp() for time in times if time is not None)
