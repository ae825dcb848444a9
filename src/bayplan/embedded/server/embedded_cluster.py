"""The embedded server for the scheduler in the same process: no HTTP, and objects are decoded once.

All callers share the record of each version of an object. A write returns before it is on the disk: if the
process ends, the scheduler ends, too, and no other client has seen it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from bayplan.api.cluster_api import Change, ClusterAPI, Event, EventSink, ObjectT, PodStatusPatch, WatchEvent
from bayplan.api.devices import ResourceClaim
from bayplan.api.documents import difference
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content, Object
from bayplan.api.pod import Pod
from bayplan.api.reading import Unreadable, read_object, readable
from bayplan.embedded.server import statuses, subresources
from bayplan.embedded.server.documents import Document, Entry
from bayplan.embedded.server.kinds import NEW_EVENTS, PODS, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.patching.patches import strategic_merge_patch
from bayplan.embedded.server.schema.types import type_of
from bayplan.embedded.server.views import from_storage
from bayplan.errors import APIError
from bayplan.simulate.memory.store import is_hidden

_SERVERS_OWN = ("creationTimestamp", "deletionTimestamp", "generation")


class EmbeddedCluster(ClusterAPI):
    """An `ObjectAPI` as the scheduler sees it. Awaiting a request never gives way to another task."""

    def __init__(self, api: ObjectAPI) -> None:
        self.api = api
        self._resources: dict[type[Object], Resource] = {}

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        resource = self._resource(kind)
        items = (_read(kind, resource, document) for document in self.api.documents(resource))
        return [item for item in items if not is_hidden(readable(item))], str(self.api.store.version)

    async def watch(
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        resource = self._resource(kind)
        version = statuses.version_number(resource_version)
        cursor = self.api.store.position(resource.storage, version)
        history = self.api.store.table(resource.storage).history
        while True:
            batch = history.read(cursor)
            if batch is None:
                raise statuses.too_old(resource_version, history.compacted)
            if not batch:
                await history.changed()
                continue
            cursor += len(batch)
            seen = [event for entry in batch if (event := _event(kind, resource, entry)) is not None]
            if seen:
                yield seen

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        resource = self._resource(kind)
        return _record(kind, resource, self.api.document(resource, name, namespace))

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        meta = pod.metadata
        added = dict(annotations) if annotations else None
        subresources.bind(self.api, meta.name, meta.namespace, node_name, uid=meta.uid, annotations=added)

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        condition = None if patch.condition is None else msgspec.to_builtins(patch.condition)
        claim = patch.extended_resource_claim
        subresources.set_scheduling(
            self.api,
            pod.name,
            pod.namespace,
            condition,
            patch.nominated_node_name,
            extended_claim=None if claim is None else msgspec.to_builtins(claim),
            uid=pod.uid,
        )

    async def delete_pod(self, pod: Pod) -> None:
        self.api.delete(PODS, pod.name, pod.namespace)

    async def create(self, item: Object) -> Object:
        kind = type(item)
        resource = self._resource(kind)
        return _converted(kind, self.api.create(resource, msgspec.to_builtins(item), item.namespace))

    async def update(self, item: Object) -> Object:
        """Writes what differs from the stored object in fields that the record has; the others stay."""
        kind = type(item)
        resource = self._resource(kind)
        known = _record(kind, resource, self.api.document(resource, item.name, item.namespace))
        patch = difference(_ours(known), _ours(item))
        meta = patch.setdefault("metadata", {})
        for field, text in (("resourceVersion", item.metadata.resource_version), ("uid", item.uid)):
            if text:
                meta[field] = text
            else:
                meta.pop(field, None)
        return _converted(kind, self.api.patch(resource, item.name, item.namespace, patch))

    async def update_status(self, item: Object) -> Object:
        kind = type(item)
        resource = self._resource(kind)
        content = cast(Content, msgspec.to_builtins(item))
        return _converted(kind, self.api.update(resource, content, item.namespace, subresource="status"))

    async def delete(self, item: Object) -> None:
        self.api.delete(self._resource(type(item)), item.name, item.namespace)

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        resource = self._resource(ResourceClaim)
        released = {"reservedFor": [{"$patch": "delete", "uid": uid}]}
        patch = {"metadata": {"uid": claim.uid}, "status": released}
        change = strategic_merge_patch(patch, type_of(resource))
        stored = self.api.patch(resource, claim.name, claim.namespace, change, subresource="status")
        return _converted(ResourceClaim, stored)

    def events(self) -> EventSink:
        return EmbeddedEvents(self.api)

    def _resource(self, kind: type[Object]) -> Resource:
        """The resource of a record's kind."""
        resource = self._resources.get(kind)
        if resource is not None and self.api.catalog.find(resource.group, resource.version, resource.plural):
            return resource
        known = KINDS.find(kind)
        if known is not None:
            found = self.api.catalog.find(known.group, known.version, known.plural)
        else:
            found = next((each for each in self.api.catalog if each.kind == kind.__name__), None)
        if found is None:
            raise statuses.no_such_path()
        self._resources[kind] = found
        return found


class EmbeddedEvents(EventSink):
    """Events among the other objects."""

    def __init__(self, api: ObjectAPI) -> None:
        self._api = api

    async def create_event(self, event: Event) -> None:
        self._api.create(NEW_EVENTS, msgspec.to_builtins(event), event.namespace)

    async def patch_event(self, event: Event) -> None:
        series = {"series": msgspec.to_builtins(event.series)}
        self._api.patch(NEW_EVENTS, event.name, event.namespace, series)


def _read(kind: type[ObjectT], resource: Resource, document: Document) -> ObjectT:
    """The object, or an `Unreadable` in its place."""
    if resource.stored_as is None:
        return cast(ObjectT, document.reading(kind))
    convert = partial(from_storage, resource)
    return cast(ObjectT, read_object(kind, document.view(resource.api_version, convert)))


def _record(kind: type[ObjectT], resource: Resource, document: Document) -> ObjectT:
    return _whole(_read(kind, resource, document))


def _whole(item: ObjectT) -> ObjectT:
    if isinstance(item, Unreadable):
        raise APIError(f"{item.kind} {item.key} cannot be read: {item.fields[0]}: {item.problem}")
    return item


def _event(kind: type[ObjectT], resource: Resource, entry: Entry) -> WatchEvent[ObjectT] | None:
    """A change as the scheduler sees it: a pod that finishes is deleted."""
    item = _read(kind, resource, entry.document)
    change = entry.change
    if resource == PODS and change is not Change.ADDED:
        assert entry.previous is not None
        was_hidden = is_hidden(readable(_read(kind, resource, entry.previous)))
        if change is Change.DELETED or is_hidden(readable(item)):
            if was_hidden:
                return None
            if change is not Change.DELETED:
                seen = entry.previous.at_version(entry.document.version)
                item, change = _read(kind, resource, seen), Change.DELETED
        elif was_hidden:
            change = Change.ADDED
    elif resource == PODS and is_hidden(readable(item)):
        return None
    return WatchEvent(change, item, entry.resource_version)


def _converted(kind: type[ObjectT], content: Content) -> ObjectT:
    return _whole(cast(ObjectT, read_object(kind, msgspec.json.encode(content))))


def _ours(item: Object) -> dict[str, Any]:
    raw = cast(dict[str, Any], msgspec.to_builtins(item))
    raw.pop("status", None)
    meta = raw.get("metadata", {})
    raw["metadata"] = {name: part for name, part in meta.items() if name not in _SERVERS_OWN}
    return raw
