"""`ClusterAPI` on a store of API objects in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bayplan.api.cluster_api import ClusterAPI, EventSink, ObjectT, PodStatusPatch
from bayplan.api.event import Event
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.resource_claims import ResourceClaim
from bayplan.simulate.memory.history import Watch
from bayplan.simulate.memory.store import MemoryStore, is_hidden

__all__ = ["MemoryCluster", "MemoryStore"]


class MemoryCluster(ClusterAPI):
    """A store as `ClusterAPI`. No request waits: awaiting one never switches to another task."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        store = self.store
        return [item for item in store.list(kind) if not is_hidden(item)], store.resource_version

    def watch(self, kind: type[ObjectT], resource_version: str) -> Watch[ObjectT]:
        return self.store.watch(kind, resource_version)

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return self.store.get(kind, name, namespace)

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        meta = pod.metadata
        self.store.bind(meta.name, meta.namespace, node_name, uid=meta.uid, annotations=annotations)

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        self.store.patch_pod_status(pod.name, pod.namespace, patch, uid=pod.uid)

    async def delete_pod(self, pod: Pod) -> None:
        self.store.delete(Pod, pod.name, pod.namespace)

    async def create(self, item: Object) -> Object:
        return self.store.create(item)

    async def update(self, item: Object) -> Object:
        return self.store.update(item)

    async def update_status(self, item: Object) -> Object:
        if isinstance(item, ResourceClaim):
            return self.store.update_claim_status(item)
        return self.store.update(item)

    async def delete(self, item: Object) -> None:
        self.store.delete(type(item), item.name, item.namespace)

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        return self.store.release_claim(claim.name, claim.namespace, uid, claim_uid=claim.uid)

    def events(self) -> StoreEvents:
        return StoreEvents(self.store)


class StoreEvents(EventSink):
    """Events among the other objects of a store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def create_event(self, event: Event) -> None:
        self._store.create(event)

    async def patch_event(self, event: Event) -> None:
        known = self._store.get(Event, event.name, event.namespace)
        self._store.update(replace(known, series=event.series))
