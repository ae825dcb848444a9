"""Preemption for pods with claims: room is made for them, devices are not taken from others."""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.api.devices import ResourceClaim, ResourceClaimStatus
from bayplan.api.pod import Pod
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.testing.builders import (
    make_allocated_device,
    make_node,
    make_pod,
    make_resource_claim,
)

from .devices import CLASS, REQUEST, claiming, gpus
from .running import World, running, virtual

NODE = make_node("n", cpu="4")
VICTIM = make_pod("victim", cpu="3", node="n")


def holder(world: World, device: str) -> list[str]:
    """The claims that have a device."""
    return [
        claim.name
        for claim in world.store.list(ResourceClaim)
        if claim.status.allocation is not None
        and any(one.device == device for one in claim.status.allocation.devices.results)
    ]


@virtual
async def test_a_pod_with_a_claim_preempts_for_room_and_then_gets_its_device() -> None:
    async with running(NODE, VICTIM, CLASS, gpus("n"), kubelet=end_after_grace_period) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", cpu="3", priority=9))
        assert (world.nominated("p"), world.pod("victim").is_terminating) == ("n", True)
        assert holder(world, "gpu-0") == [], "a nomination reserves no devices"
        await world.after(60)
        assert (world.node_of("p"), holder(world, "gpu-0")) == ("n", ["c"])


@virtual
async def test_no_pod_is_evicted_where_the_devices_are_taken() -> None:
    """Evicting the pod that uses a device does not free its claim at once."""
    taken = make_resource_claim("taken", REQUEST, allocated=[make_allocated_device("gpu-0", "n")])
    user = claiming("user", "taken", cpu="3", node="n")
    async with running(NODE, taken, user, CLASS, gpus("n")) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", cpu="3", priority=9))
        await world.after(60)
        assert (world.names(), world.node_of("p"), world.nominated("p")) == (["p", "user"], "", "")
        assert world.message("p").endswith(
            "preemption: 0/1 nodes are available: 1 cannot allocate all claims."
        )


@virtual
async def test_a_device_that_is_taken_meanwhile_leaves_the_preemptor_waiting_until_it_is_free() -> None:
    async with running(NODE, VICTIM, CLASS, gpus("n"), kubelet=end_after_grace_period) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", cpu="3", priority=9))
        assert world.nominated("p") == "n"
        await world.create(make_resource_claim("other", REQUEST), claiming("small", "other"))
        assert (world.node_of("small"), holder(world, "gpu-0")) == ("n", ["other"])
        await world.after(60)
        assert world.node_of("p") == ""
        world.store.delete(Pod, "small", "default")
        freed = replace(world.store.get(ResourceClaim, "other", "default"), status=ResourceClaimStatus())
        world.store.update_claim_status(freed)
        await world.after(30)
        assert (world.node_of("p"), holder(world, "gpu-0")) == ("n", ["c"])
