"""Candidates for leadership around a lease, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from bayplan.api.cluster_api import Lease, LeaseMeta, LeaseSpec, ObjectT
from bayplan.api.meta import Object
from bayplan.client.leader_election import ElectionSettings, LeaderElection, LeadershipLostError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.simulate.virtual_time import current_loop

T = TypeVar("T")

SETTINGS = ElectionSettings()

Interference = Callable[[str], Awaitable[None]]


@dataclass
class Leases:
    """The leases of a store as one candidate sees them. `interfere` comes before and after each request."""

    store: MemoryStore
    interfere: Interference | None = None
    requests: list[tuple[float, str]] = field(default_factory=list)
    """When, and what."""

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return await self._request("get", lambda: self.store.get(kind, name, namespace))

    async def create(self, item: Object) -> Object:
        return await self._request("create", lambda: self.store.create(item))

    async def update(self, item: Object) -> Object:
        return await self._request("update", lambda: self.store.update(item))

    async def _request(self, verb: str, act: Callable[[], T]) -> T:
        self.requests.append((asyncio.get_running_loop().time(), verb))
        if self.interfere is None:
            return act()
        await self.interfere(verb)
        answer = act()
        await self.interfere(f"{verb}, answered")
        return answer


class Candidate:
    """A candidate for leadership. It can be paused, which neither its clock nor anything else shows."""

    def __init__(self, store: MemoryStore, name: str, interfere: Interference | None = None) -> None:
        loop = current_loop()
        self.name = name
        self.leases = Leases(store, interfere)
        self.election = LeaderElection(
            self.leases,
            SETTINGS,
            name,
            now=loop.wall_time,
            clock=loop.time,
            rng=random.Random(name),
        )
        self.led: list[float] = []
        """When it became leader."""
        self.lost_at: float | None = None
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        await self.election.acquire()
        self.led.append(loop.time())
        try:
            await self.election.hold()
        except LeadershipLostError:
            self.lost_at = loop.time()

    async def stop(self) -> None:
        """As after a signal."""
        await self.kill()
        await self.election.release()

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def lease_of(store: MemoryStore) -> LeaseSpec:
    return store.get(Lease, SETTINGS.name, SETTINGS.namespace).spec


def put_lease(store: MemoryStore, spec: LeaseSpec) -> None:
    store.create(Lease(metadata=LeaseMeta(name=SETTINGS.name, namespace=SETTINGS.namespace), spec=spec))
