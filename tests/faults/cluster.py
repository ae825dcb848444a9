"""The cluster of a fault run: a ledger of bindings, and requests that outlive the scheduler that sent them.

    scheduler ─► LastingClient ─► FaultyCluster ─► WatchedCluster ─► store

Each life of the scheduler has its own chain. They share a `Ledger`, which records every binding that took
effect, and whether it left room on its node. `Spoiled` has the objects that a scheduler cannot read
for a while, because they contain invalid values; `workload.py` chooses them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from bayplan.api.cluster_api import ClusterAPI, EventSink, ObjectT, PodStatusPatch, WatchEvent
from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import HostPort, Pod, PodSpec, PodStatus, conflicts, host_ports
from bayplan.api.quantity import milli_value
from bayplan.api.reading import Unreadable
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.errors import NotFoundError, ServerError
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from tests.faults.devices import devices_given_twice

T = TypeVar("T")

POD_COUNT = "pods"

SPOILED: Final = "cannot be read: "
"""In the log when a scheduler reads such an object: an error, but not one of the scheduler."""


class Spoiled:
    """The objects that are unreadable now, by uid."""

    def __init__(self) -> None:
        self.uids: set[str] = set()

    def seen(self, item: ObjectT) -> ObjectT:
        """The object as clients see it: an unreadable one lacks what matters most to a scheduler."""
        if item.uid not in self.uids:
            return item
        partial: Object
        if isinstance(item, Pod):
            spec = PodSpec(node_name=item.spec.node_name, scheduler_name=item.spec.scheduler_name)
            partial = Pod(metadata=item.metadata, spec=spec, status=PodStatus(phase=item.status.phase))
        else:
            partial = Node(metadata=item.metadata)
        unreadable = Unreadable(
            metadata=item.metadata,
            kind=type(item).__name__,
            fields=("spec.containers[0].resources" if isinstance(item, Pod) else "status.allocatable",),
            problem="spoiled",
            partial=partial,
        )
        return cast(ObjectT, unreadable)


class Ledger:
    """What the scheduler did to nodes.

    The scheduler is responsible for its own bindings only. It could not know what others put on a node, nor
    the effect of a request that was reported as failed, nor of one that an earlier scheduler sent before it
    died. Nor that a node has shrunk: the largest size that the node ever had counts. If others have used a
    port twice, it is free as soon as one of its users is gone: upstream keeps a set.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.bindings: Counter[str] = Counter()
        """How often each pod was bound, by uid."""
        self.problems: list[str] = []
        self.late_claims: set[str] = set()
        """Claims whose allocation a scheduler wrote that had died, by uid: its successor could not know."""
        self._store = store
        self.ours: set[str] = set()
        """Pods whose binding took effect while the scheduler waited for it, by uid."""
        self._largest: dict[str, dict[str, int]] = {}
        self._ports_of_others: set[tuple[str, HostPort]] = set()

    def check(self) -> None:
        """Checks and records the changes of others. Called whenever others have changed the cluster."""
        self.problems.extend(
            text for text in devices_given_twice(self._store, self.late_claims) if text not in self.problems
        )
        for node in self._store.list(Node):
            largest = self._largest.setdefault(node.name, {})
            for name, amount in room_of(node).items():
                largest[name] = max(amount, largest.get(name, 0))
        for pod in self._store.list(Pod):
            if pod.spec.node_name and pod.uid not in self.ours:
                self._ports_of_others.update((pod.spec.node_name, port) for port in host_ports(pod))

    def bound(self, pod: Pod, node_name: str, *, is_late: bool) -> None:
        """A binding of the scheduler has taken effect; late: the scheduler had stopped waiting for it."""
        self.bindings[pod.uid] += 1
        if self.bindings[pod.uid] > 1:
            self.problems.append(f"pod {pod.key} was bound {self.bindings[pod.uid]} times")
        if is_late:
            self.check()
            return
        self.ours.add(pod.uid)
        here = [
            other
            for other in self._store.list(Pod)
            if other.spec.node_name == node_name and other.uid in self.ours and not other.is_finished
        ]
        room = self._largest.get(node_name)
        if room is None:
            self.problems.append(f"pod {pod.key} was bound to {node_name}, which never was")
            return
        for name, amount in sum_of(here).items():
            if amount > room.get(name, 0):
                names = " ".join(other.name for other in here)
                self.problems.append(
                    f"binding pod {pod.key} overcommits {node_name}: {name} {amount} of {room.get(name, 0)} "
                    f"by {names}"
                )
        for other in here:
            ports = [port for port in host_ports(pod) if (node_name, port) not in self._ports_of_others]
            if other.uid != pod.uid and conflicts(ports, set(host_ports(other))):
                self.problems.append(f"pods {pod.key} and {other.key} have the same port on {node_name}")


def room_of(node: Node) -> dict[str, int]:
    return {name: milli_value(amount) for name, amount in node.status.allocatable.items()}


def sum_of(pods: Iterable[Pod]) -> Counter[str]:
    """The usage of pods, in thousandths."""
    total: Counter[str] = Counter()
    for pod in pods:
        total[POD_COUNT] += 1000
        for name, amount in DEFAULT_RELEASE.accounting.assigned_requests(pod).items():
            total[name] += amount if name == "cpu" else 1000 * amount
    return total


class WatchedCluster(MemoryCluster):
    """The store, with a record of bindings."""

    def __init__(
        self, store: MemoryStore, ledger: Ledger, spoiled: Spoiled, trace: Callable[[str], None]
    ) -> None:
        super().__init__(store)
        self._spoiled = spoiled
        self.is_dead = False
        """Whether the scheduler that this belongs to has died."""
        self._ledger = ledger
        self._trace = trace
        self._bound: set[str] = set()
        self.on_bind: Callable[[Pod], None] | None = None
        """Called before a living scheduler binds a pod."""

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        items, version = await super().list(kind)
        return [self._spoiled.seen(item) for item in items], version

    async def watch(  # type: ignore[override]  # a generator instead of the store's own watch
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        async for batch in self.store.watch(kind, resource_version):
            yield [
                event if event.object is None else replace(event, object=self._spoiled.seen(event.object))
                for event in batch
            ]

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        if self.is_dead:
            await self.bind_late(pod, node_name, annotations)
            return
        if pod.uid in self._bound and any(other.uid == pod.uid for other in self.store.list(Pod)):
            self._ledger.problems.append(f"pod {pod.key} is bound, and was to be bound to {node_name} again")
        if self.on_bind is not None:
            self.on_bind(pod)
        await super().bind(pod, node_name, annotations)
        self._bound.add(pod.uid)
        self._trace(f"pod {pod.name} is bound to {node_name}")
        self._ledger.bound(pod, node_name, is_late=False)

    async def bind_late(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        """A binding that the scheduler no longer waits for."""
        await super().bind(pod, node_name, annotations)
        self._trace(f"pod {pod.name} is bound to {node_name} too late")
        self._ledger.bound(pod, node_name, is_late=True)

    async def update_status(self, item: Object) -> Object:
        if self.is_dead:
            self._ledger.late_claims.add(item.uid)
        written = await super().update_status(item)
        self._trace(f"{type(item).__name__} {item.name} has a new status{' too late' * self.is_dead}")
        self._ledger.check()
        return written

    async def delete_pod(self, pod: Pod) -> None:
        self._trace(f"pod {pod.name} is evicted")
        await super().delete_pod(pod)


class LastingClient(ClusterAPI):
    """A client whose writes, once sent, are executed, whether or not anything waits for the response."""

    def __init__(self, cluster: ClusterAPI, store: MemoryStore, rng: random.Random, rate: float) -> None:
        """`rate` is the share of writes that are sent before the first point at which the scheduler can
        die."""
        self._cluster = cluster
        self._store = store
        self._rng = rng
        self._rate = rate

    async def list(self, kind: type[ObjectT]) -> tuple[Any, str]:
        return await self._cluster.list(kind)

    def watch(self, kind: type[ObjectT], resource_version: str) -> Any:
        return self._cluster.watch(kind, resource_version)

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return await self._cluster.get(kind, name, namespace)

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        await self._send(self._cluster.bind(pod, node_name, annotations))

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        await self._send(self._honestly(pod, self._cluster.patch_pod_status(pod, patch)))

    async def delete_pod(self, pod: Pod) -> None:
        await self._send(self._honestly(pod, self._cluster.delete_pod(pod)))

    async def create(self, item: Object) -> Object:
        return await self._send(self._cluster.create(item))

    async def update(self, item: Object) -> Object:
        return await self._send(self._cluster.update(item))

    async def update_status(self, item: Object) -> Object:
        return await self._send(self._cluster.update_status(item))

    async def delete(self, item: Object) -> None:
        await self._send(self._cluster.delete(item))

    async def release_claim(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        return await self._send(self._cluster.release_claim(claim, uid))

    def events(self) -> EventSink:
        return self._cluster.events()

    async def _send(self, request: Coroutine[Any, Any, T]) -> T:
        if self._rng.random() >= self._rate:
            return await request
        sent = asyncio.ensure_future(request)
        sent.add_done_callback(_heed)
        return await asyncio.shield(sent)

    async def _honestly(self, pod: Pod, request: Awaitable[None]) -> None:
        """No API server responds 404 for a pod that exists: it responds 429 instead."""
        try:
            await request
        except NotFoundError as error:
            try:
                self._store.get(Pod, pod.name, pod.namespace)
            except NotFoundError:
                raise error from None
            raise ServerError(str(error)) from error


def _heed(sent: asyncio.Future[Any]) -> None:
    """Nothing may be left to handle an error."""
    if not sent.cancelled():
        sent.exception()
