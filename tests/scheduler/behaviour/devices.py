"""A cluster with devices, and pods with claims on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Object
from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.state.devices import ClaimInFlight
from bayplan.testing.builders import (
    make_device,
    make_device_class,
    make_device_request,
    make_pod,
    make_resource_slice,
)

from .running import Cluster, World

CLASS = make_device_class("gpu", 'device.driver == "gpu.example.com"')
REQUEST = make_device_request("gpu", "gpu")
FAILED = 'running PreBind plugin "DynamicResources": '


class Devices(Cluster):
    """A cluster that records writes of claims, and gives the responses of a test."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.answers: dict[str, list[tuple[Exception, bool]]] = {}
        """For each verb the errors of the next writes, each with whether it takes effect nevertheless."""

    def requests(self) -> list[str]:
        return [verb for verb, _ in self.writes]

    async def _claim(self, verb: str, item: Object, act: Callable[[], Awaitable[Any]]) -> Any:
        self.writes.append((verb, item.name))
        waiting = self.answers.get(verb)
        if not waiting:
            return await act()
        error, takes_effect = waiting.pop(0)
        if takes_effect:
            await act()
        raise error

    async def create(self, item: Object) -> Any:
        return await self._claim("create", item, lambda: super(Devices, self).create(item))

    async def update(self, item: Object) -> Any:
        return await self._claim("update", item, lambda: super(Devices, self).update(item))

    async def update_status(self, item: Object) -> Any:
        return await self._claim("update status", item, lambda: super(Devices, self).update_status(item))

    async def release_claim(self, claim: ResourceClaim, uid: str) -> Any:
        return await self._claim("release", claim, lambda: super(Devices, self).release_claim(claim, uid))

    async def delete(self, item: Object) -> None:
        await self._claim("delete", item, lambda: super(Devices, self).delete(item))


def devices_of(world: World) -> Devices:
    assert isinstance(world.cluster, Devices)
    return world.cluster


def gpus(node: str, count: int = 1, conditions: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())) -> Object:
    ready, failed = conditions
    devices = (
        make_device(f"gpu-{number}", binding_conditions=ready, binding_failure_conditions=failed)
        for number in range(count)
    )
    return make_resource_slice(f"slice-{node}", *devices, node=node)


def claiming(name: str, *claims: str, **fields: Any) -> Pod:
    entries = tuple(PodResourceClaim(name=f"r{i}", resource_claim_name=c) for i, c in enumerate(claims))
    return make_pod(name, resource_claims=entries, **fields)


def claim(world: World, name: str) -> ResourceClaim:
    return world.store.get(ResourceClaim, name, "default")


def held(world: World, name: str) -> list[str]:
    """The devices that a claim has, as pool/device."""
    allocation = claim(world, name).status.allocation
    return [] if allocation is None else [f"{one.pool}/{one.device}" for one in allocation.devices.results]


def reserved_for(world: World, name: str) -> list[str]:
    return [consumer.name for consumer in claim(world, name).status.reserved_for]


def in_flight(world: World) -> int:
    return len(world.context.cluster.objects.of(ClaimInFlight))
