"""Writes of claims that conflict, fail, are not answered or are cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, UnknownOutcomeError
from bayplan.testing.builders import make_node, make_resource_claim

from .devices import CLASS, REQUEST, Devices, claiming, devices_of, gpus, held, in_flight, reserved_for
from .running import running, virtual


@virtual
async def test_a_conflict_is_tried_again_with_the_latest_claim() -> None:
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update status"] = [(ConflictError("changed"), False)] * 2
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(1)
        assert (world.node_of("p"), held(world, "c")) == ("n", ["n/gpu-0"])
        assert devices_of(world).requests() == ["patch", "update", *["update status"] * 3, "bind"]


@virtual
async def test_a_write_without_an_answer_that_took_effect_is_no_failure() -> None:
    async with running(make_node("n"), CLASS, gpus("n", 2), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update status"] = [(UnknownOutcomeError("lost"), True)]
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(5)
        assert (world.node_of("p"), held(world, "c"), reserved_for(world, "c")) == ("n", ["n/gpu-0"], ["p"])
        assert devices_of(world).requests().count("update status") == 1


@virtual
async def test_a_rejected_write_frees_the_devices_for_others() -> None:
    """Nothing in the API changes then, so nothing else would requeue the pod that waits for the device."""
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update"] = [(APIError("no", code=422), False)]
        await world.create(
            make_resource_claim("c", REQUEST), make_resource_claim("d", REQUEST), claiming("p", "c")
        )
        await world.create(claiming("q", "d"))
        assert in_flight(world) <= 1
        await world.after(60)
        assert in_flight(world) == 0
        assert sorted(held(world, "c") + held(world, "d")) == ["n/gpu-0"]
        assert "add finalizer to claim default/c: no" in str(world.events("p"))


@virtual
async def test_a_claim_that_is_deleted_before_it_is_written() -> None:
    """A clear status, and the device is free again."""

    class Deleting(Devices):
        async def patch_pod_status(self, pod: Pod, patch: Any) -> None:
            await super().patch_pod_status(pod, patch)
            if pod.name == "p" and patch.nominated_node_name:
                self.store.delete(ResourceClaim, "c", "default")

    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Deleting) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(5)
        assert not world.node_of("p")
        assert "add finalizer to claim default/c: " in str(world.events("p"))
        await world.create(make_resource_claim("d", REQUEST), claiming("q", "d"))
        assert (world.node_of("q"), held(world, "d")) == ("n", ["n/gpu-0"])


@virtual
async def test_a_pod_that_cannot_be_bound_gives_its_reservation_back() -> None:
    """The allocation stays, and the next attempt uses it."""
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        assert world.cluster.written("release") == ["c"]
        assert (held(world, "c"), reserved_for(world, "c")) == (["n/gpu-0"], [])
        await world.after(30)
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])


@virtual
async def test_the_next_attempt_waits_until_the_reservation_has_been_given_back() -> None:
    """Otherwise it would find the claim reserved, and the pod would lose the reservation once it is bound."""

    class Slow(Devices):
        async def release_claim(self, claim: ResourceClaim, uid: str) -> Any:
            await asyncio.sleep(10)
            return await super().release_claim(claim, uid)

    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Slow) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(5)
        assert (world.attempts("p"), world.node_of("p"), reserved_for(world, "c")) == (2, "", ["p"])
        await world.after(30)
        assert (world.node_of("p"), held(world, "c"), reserved_for(world, "c")) == ("n", ["n/gpu-0"], ["p"])


@virtual
async def test_a_reservation_that_is_not_known_to_be_given_back_is_read() -> None:
    """The watch may deliver only later that it is gone."""
    reads = []

    class Reading(Devices):
        async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
            reads.append(name)
            return await super().get(kind, name, namespace)

    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Reading) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        devices_of(world).answers["release"] = [(UnknownOutcomeError("lost"), True)]
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        assert reads == ["c"]
        await world.after(30)
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])


@virtual
async def test_the_next_attempt_waits_until_its_claim_has_been_deallocated() -> None:
    """The claim is still reserved for the pod, because giving the reservation back failed."""

    class Slow(Devices):
        async def update_status(self, item: Object) -> Any:
            if isinstance(item, ResourceClaim) and item.status.allocation is None:
                await asyncio.sleep(10)
            return await super().update_status(item)

    nodes = make_node("a"), make_node("b")
    async with running(*nodes, CLASS, gpus("a"), gpus("b"), kind_of_cluster=Slow) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        devices_of(world).answers["release"] = [(ConflictError("changed"), False)]
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        assert reserved_for(world, "c") == ["p"]
        [chosen] = [node for node in nodes if held(world, "c") == [f"{node.name}/gpu-0"]]
        await world.update_node(make_node(chosen.name, unschedulable=True))
        await world.after(3)
        assert held(world, "c"), "it is being deallocated"
        await world.update_node(make_node(chosen.name))
        await world.after(3)
        assert not world.node_of("p")
        await world.after(60)
        assert world.node_of("p")
        assert (held(world, "c"), reserved_for(world, "c")) == ([f"{world.node_of('p')}/gpu-0"], ["p"])


@virtual
async def test_a_cancelled_write_is_resolved_before_its_devices_are_released() -> None:
    """The binding is cancelled in the middle of a write that takes effect."""

    class Slow(Devices):
        async def update_status(self, item: Object) -> Any:
            stored = await super().update_status(item)
            if item.name == "c":
                await asyncio.sleep(10)
            return stored

    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Slow) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", priority=0))
        assert in_flight(world) == 1
        world.context.pre_binding[world.pod("p").uid].cancel("preempted")
        await world.after(0.1)
        assert in_flight(world) == 1
        await world.after(5)
        assert in_flight(world) == 0
        assert held(world, "c") == ["n/gpu-0"]
