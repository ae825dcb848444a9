"""The outside world as the scheduler knows it: a few verbs on API objects.

It has a Kubernetes implementation over HTTP, one on the store in this process, and a wrapper that injects
faults. Everything above talks to this protocol and raises or handles only the errors of `bayplan.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from bayplan.api.event import Event
from bayplan.api.meta import Condition, Object
from bayplan.api.pod import Pod, PodExtendedResourceClaimStatus
from bayplan.api.resource_claims import ResourceClaim

ObjectT = TypeVar("ObjectT", bound=Object)


class Change(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing changed, but everything up to this resourceVersion has been seen."""


class WatchEvent(msgspec.Struct, Generic[ObjectT], frozen=True, gc=False):
    """One change of one object. A deleted object is given as it was last seen."""

    change: Change
    object: ObjectT | None
    resource_version: str


@dataclass(frozen=True, slots=True)
class PodStatusPatch:
    """What is to be changed in a pod's status; None leaves a part as it is.

    An empty nominated node name clears the nomination.
    """

    condition: Condition | None = None
    nominated_node_name: str | None = None
    extended_resource_claim: PodExtendedResourceClaimStatus | None = None


class EventSink(Protocol):
    """Where events are written; raises the `APIError`s of `bayplan.errors`."""

    async def create_event(self, event: Event) -> None: ...

    async def patch_event(self, event: Event) -> None:
        """Writes the event's series, and nothing else of it. Nothing is read: schedulers may not."""


class ClusterAPI(Protocol):
    """Reading and writing a cluster.

    Pods that have finished (phase Succeeded or Failed) are not listed; one that finishes is seen as deleted.
    Every method may raise an `APIError`: NotFoundError, ConflictError, GoneError (the resourceVersion is too
    old: list again), ServerError, or UnknownOutcomeError (a write of which nobody knows whether it took
    effect).
    """

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        """All objects of a kind, in all namespaces, and the resourceVersion from which to watch."""

    def watch(
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        """Changes after a resourceVersion, in batches as they arrive. Ends when the connection does."""

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT: ...

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Assigns the pod. ConflictError where it is assigned, being deleted, gated or another one."""

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        """Writes into the pod's status. APIError (422) where another pod has taken its name."""

    async def delete_pod(self, pod: Pod) -> None:
        """Starts the pod's graceful deletion."""

    async def create(self, item: Object) -> Object: ...

    async def update(self, item: Object) -> Object:
        """Replaces an object; ConflictError where it has changed since it was read."""

    async def update_status(self, item: Object) -> Object:
        """Replaces an object's status, and nothing else of it; ConflictError as for `update`."""

    async def delete(self, item: Object) -> None:
        """Deletes an object other than a pod. One with finalizers is only marked."""

    async def release_claim(self, claim: ResourceClaim, uid: str) -> None:
        """Removes the consumer with this uid from the claim's reservedFor, whatever else changed there."""

    def events(self) -> EventSink:
        """Where events about this cluster's objects go. Writing them must not hold up other requests."""
