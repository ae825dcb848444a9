"""Claims of pods: devices are reserved, written at PreBind, and freed where they prevent scheduling."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.devices import CLAIM_FINALIZER, ResourceClaim, ResourceClaimStatus
from bayplan.api.meta import NodeSelector, OwnerReference
from bayplan.api.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from bayplan.errors import ConflictError
from bayplan.scheduler.handlers import ClaimHandler
from bayplan.testing.builders import make_allocated_device, make_node, make_pod, make_resource_claim

from .devices import CLASS, REQUEST, Devices, claim, claiming, devices_of, gpus, held, in_flight, reserved_for
from .running import running, virtual


@virtual
async def test_a_claim_is_allocated_reserved_and_then_the_pod_bound() -> None:
    """The requests are upstream's: nominatedNodeName, the finalizer, allocation with reservation, binding."""
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        assert world.node_of("p") == "n"
        assert world.cluster.writes == [
            ("patch", "p"),
            ("update", "c"),
            ("update status", "c"),
            ("bind", "p"),
        ]
        assert (held(world, "c"), reserved_for(world, "c")) == (["n/gpu-0"], ["p"])
        stored = claim(world, "c")
        assert stored.metadata.finalizers == (CLAIM_FINALIZER,)
        assert stored.status.allocation is not None
        assert stored.status.allocation.allocation_timestamp is not None
        assert in_flight(world) == 0


@virtual
async def test_pods_that_come_together_get_different_devices() -> None:
    async with running(make_node("n"), CLASS, gpus("n", 3), kind_of_cluster=Devices) as world:
        claims = [make_resource_claim(f"c{i}", REQUEST) for i in range(4)]
        await world.create(*claims, *(claiming(f"p{i}", f"c{i}") for i in range(4)))
        assert sorted(held(world, f"c{i}")[0] for i in range(3)) == ["n/gpu-0", "n/gpu-1", "n/gpu-2"]
        assert not world.node_of("p3")
        assert world.message("p3").startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        world.store.delete(Pod, "p0", "default")
        world.store.update_claim_status(replace(claim(world, "c0"), status=ResourceClaimStatus()))
        await world.after(30)
        assert (world.node_of("p3"), held(world, "c3")) == ("n", ["n/gpu-0"])


@virtual
async def test_pods_that_share_a_claim_are_bound_side_by_side() -> None:
    """The second waits until the first has allocated the claim, and is scheduled on the same node."""
    nodes = [make_node("a"), make_node("b")]
    async with running(*nodes, CLASS, gpus("a"), gpus("b"), kind_of_cluster=Devices) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"), claiming("q", "c"))
        await world.after(30)
        assert world.node_of("p") == world.node_of("q") != ""
        assert sorted(reserved_for(world, "c")) == ["p", "q"]


@virtual
async def test_a_claim_from_a_template_is_waited_for() -> None:
    """Without it the pod is not tried: no condition, no event."""
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="t")
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(make_pod("p", resource_claims=(entry,)))
        assert (world.decisions, world.message("p")) == ([], "")
        owner = OwnerReference(kind="Pod", name="p", uid=world.pod("p").uid, controller=True)
        await world.create(make_resource_claim("p-gpu", REQUEST, owner=owner))
        assert world.decisions == []
        status = PodResourceClaimStatus(name="gpu", resource_claim_name="p-gpu")
        await world.update(
            "p", lambda p: replace(p, status=replace(p.status, resource_claim_statuses=(status,)))
        )
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_the_later_of_versions_without_an_order_counts() -> None:
    """As for other kinds (`client/informer.py`)."""
    async with running(make_node("n")) as world:
        handler = ClaimHandler(world.context, "", lambda: None)
        known = world.context.cluster.objects.of(ResourceClaim)
        versions = []
        for version in ("10", "9", "b", "a", "a", "8"):
            item = make_resource_claim("c", REQUEST)
            handler.added(replace(item, metadata=replace(item.metadata, resource_version=version)))
            (stored,) = known
            versions.append(stored.metadata.resource_version)
        assert versions == ["10", "10", "b", "a", "a", "8"]


@virtual
async def test_events_of_replaced_versions_do_not_free_devices() -> None:
    """Without an order the versions themselves show that the event of the finalizer is a late one."""
    async with running(make_node("n")) as world:
        handler = ClaimHandler(world.context, "", lambda: None)
        known = world.context.cluster.objects.of(ResourceClaim)

        def version(text: str, *devices: Any) -> ResourceClaim:
            made = make_resource_claim("c", REQUEST, allocated=devices)
            return replace(made, metadata=replace(made.metadata, resource_version=text))

        read, finalizer, later = map(version, ("read", "finalizer", "later"))
        written = version("written", make_allocated_device("gpu-0", "n"))
        handler.added(read)
        assert handler.assume(written, ["read", "finalizer"])
        for event in (finalizer, written):
            handler.updated(read, event)
            assert list(known) == [written]
        handler.updated(written, later)
        assert list(known) == [later]


@virtual
async def test_the_binder_names_the_versions_that_it_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assumed: list[tuple[str, ...]] = []

    def assume(self: ClaimHandler, claim: ResourceClaim, replaced: Collection[str] = ()) -> bool:
        assumed.append((*replaced, claim.metadata.resource_version))
        return True

    monkeypatch.setattr(ClaimHandler, "assume", assume)
    async with running(make_node("n"), CLASS, gpus("n"), make_resource_claim("c", REQUEST)) as world:
        version = int(claim(world, "c").metadata.resource_version)
        world.store.create(claiming("p", "c"))
        await world.after(5)
        ((read, finalizer, written),) = assumed
        assert int(read) == version < int(finalizer) < int(written)
        assert written == claim(world, "c").metadata.resource_version


@virtual
async def test_a_claim_that_is_named_twice_is_bound_once() -> None:
    """Upstream never binds such a pod."""
    async with running(make_node("n"), CLASS, gpus("n", 2), kind_of_cluster=Devices) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c", "c"))
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])


@virtual
async def test_a_claim_without_a_timestamp_can_be_reserved() -> None:
    """Allocated by hand; upstream would try to add the time, which the API server rejects each time."""
    allocated = make_resource_claim("c", REQUEST, allocated=[make_allocated_device("gpu-0", "n")])
    async with running(make_node("n"), CLASS, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(allocated, claiming("p", "c"))
        assert (world.node_of("p"), reserved_for(world, "c")) == ("n", ["p"])
        assert devices_of(world).requests() == ["patch", "update status", "bind"]


@virtual
async def test_a_claim_that_prevents_scheduling_is_deallocated() -> None:
    """It has a device on a node where the pod cannot run; no other pod uses it."""
    selector = NodeSelector()
    allocated = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=selector
    )
    async with running(make_node("b"), CLASS, gpus("a"), gpus("b"), kind_of_cluster=Devices) as world:
        await world.create(allocated, claiming("p", "c"))
        await world.after(30)
        assert world.decisions[0].message == (
            "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of "
            "ResourceClaim completed, preemption: 0/1 nodes are available: 1 Preemption is not helpful for "
            "scheduling."
        )
        assert (world.node_of("p"), held(world, "c")) == ("b", ["b/gpu-0"])


@virtual
async def test_a_deallocation_that_fails_is_tried_again() -> None:
    allocated = make_resource_claim(
        "c", REQUEST, allocated=[make_allocated_device("gpu-0", "a")], node_selector=NodeSelector()
    )
    async with running(make_node("b"), CLASS, gpus("b"), kind_of_cluster=Devices) as world:
        devices_of(world).answers["update status"] = [(ConflictError("changed"), False)]
        await world.create(allocated, claiming("p", "c"))
        assert held(world, "c") == ["a/gpu-0"]
        await world.after(60)
        assert (world.node_of("p"), held(world, "c")) == ("b", ["b/gpu-0"])
