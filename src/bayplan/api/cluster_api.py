"""The cluster as the scheduler accesses it: a few verbs on API objects.

It is implemented over HTTP, on the in-memory API, on the embedded API server, and by a wrapper that injects
faults. Events and leases are the objects that only it writes and reads. The layers above use this protocol
and handle only the errors of `bayplan.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import (
    Condition,
    Int32,
    Object,
    ObjectMeta,
    ObjectReference,
    Record,
    Time,
)
from bayplan.api.pod import Pod, PodExtendedResourceClaimStatus


class EventSeries(Record, frozen=True):
    """How often an event has been repeated, and when last."""

    count: Int32 = 0
    last_observed_time: Time | None = None


class Event(Object, frozen=True):
    event_time: Time | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""


class LeaseMeta(ObjectMeta, frozen=True):
    """Leases are written whole, so the changes of others have to be kept."""

    finalizers: tuple[str, ...] = ()


class LeaseSpec(Record, frozen=True):
    """None is absent. An empty holder and zero transitions are written explicitly, as upstream does."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: Int32 | None = None


class Lease(Object, frozen=True):
    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()


ObjectT = TypeVar("ObjectT", bound=Object)


class Change(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """No change, but everything up to this resourceVersion has been delivered."""


class WatchEvent(msgspec.Struct, Generic[ObjectT], frozen=True, gc=False):
    """One change of one object. A deleted object is given in its last known version."""

    change: Change
    object: ObjectT | None
    resource_version: str


@dataclass(frozen=True, slots=True)
class PodStatusPatch:
    """The changes of a pod's status; None leaves a part unchanged.

    An empty nominated node name clears the nomination.
    """

    condition: Condition | None = None
    nominated_node_name: str | None = None
    extended_resource_claim: PodExtendedResourceClaimStatus | None = None


class EventSink(Protocol):
    """Where events are written; raises the `APIError`s of `bayplan.errors`."""

    async def create_event(self, event: Event) -> None: ...

    async def patch_event(self, event: Event) -> None:
        """Writes only the event's series. Nothing is read: schedulers are not permitted to."""


class ClusterAPI(Protocol):
    """Reading and writing a cluster.

    Finished pods (phase Succeeded or Failed) are not listed; a pod that finishes is reported as deleted.
    Every method may raise an `APIError`: NotFoundError, ConflictError, GoneError (the resourceVersion is too
    old: list again), ServerError, or UnknownOutcomeError (it is unknown whether a write took effect).
    """

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        """All objects of a kind, in all namespaces, and the resourceVersion from which to watch."""

    def watch(
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        """Changes after a resourceVersion, in batches as they arrive. Ends when the connection does."""

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT: ...

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Binds the pod; the annotations are added to the pod in the same write.

        ConflictError if it is bound already, terminating, gated or another pod.
        """

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        """Patches the pod's status. APIError (422) if another pod has its name now."""

    async def delete_pod(self, pod: Pod) -> None:
        """Starts the pod's graceful deletion."""

    async def create(self, item: Object) -> Object: ...

    async def update(self, item: Object) -> Object:
        """Replaces an object; ConflictError if it has changed since it was read."""

    async def update_status(self, item: Object) -> Object:
        """Replaces an object's status, and nothing else of it; ConflictError as for `update`."""

    async def delete(self, item: Object) -> None:
        """Deletes an object other than a pod. One with finalizers is only marked."""

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        """Removes the consumer with this uid from the claim's reservedFor, whatever else changed there.

        Returns the claim as it is stored afterwards.
        """

    def events(self) -> EventSink:
        """Where events about this cluster's objects are written. Writing them must not delay other
        requests."""
