"""Members of a group that share ResourceClaims, and claims that belong to the group itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.devices import CLAIM_FINALIZER, ResourceClaim
from bayplan.api.groups import PodGroup, PodGroupResourceClaim
from bayplan.api.meta import NodeSelector, NodeSelectorTerm, Object
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.errors import ServerError
from bayplan.testing import make_node
from bayplan.testing.builders import make_allocated_device, make_expression, make_resource_claim

from .devices import CLASS, REQUEST, Devices, claim, claiming, devices_of, gpus, held, in_flight, reserved_for
from .running import World, running, virtual
from .test_groups import GROUPS, bound, condition, make_group

OWN_CLAIMS = GROUPS.with_gates(GROUPS.gates | {"DRAWorkloadResourceClaims"})
NAMED = PodSchedulingGroup(pod_group_name="g")


@asynccontextmanager
async def with_devices(*objects: Object, **options: Any) -> AsyncIterator[World]:
    fields: dict[str, Any] = {"release": GROUPS, "kind_of_cluster": Devices} | options
    async with running(CLASS, *objects, **fields) as world:
        yield world


def sharing(count: int, *claims: str) -> list[Pod]:
    return [claiming(f"g-{number}", *claims, scheduling_group=NAMED) for number in range(count)]


def with_claims(group: PodGroup, *names: str) -> PodGroup:
    entries = tuple(PodGroupResourceClaim(f"r{i}", resource_claim_name=name) for i, name in enumerate(names))
    return replace(group, spec=replace(group.spec, resource_claims=entries))


def allocated(name: str, node: str, *uids: str) -> ResourceClaim:
    field = make_expression("metadata.name", "In", node)
    only = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))
    device = make_allocated_device("gpu-0", node)
    return make_resource_claim(name, REQUEST, allocated=[device], node_selector=only, reserved_for=uids)


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@virtual
async def test_members_share_a_claim_that_one_of_them_gets_in_the_same_cycle(cache: bool) -> None:
    """A single pod would wait until the allocation is written."""
    nodes = [make_node("a", cpu="9"), make_node("b", cpu="9")]
    async with with_devices(*nodes, gpus("a"), gpus("b"), cache=cache) as world:
        await world.create(make_resource_claim("c", REQUEST))
        await world.create(make_group(min_count=3), *sharing(3, "c"))
        await world.after(0.1)
        assert bound(world) == ["g-0", "g-1", "g-2"], world.message("g-1")
        assert len({world.node_of(f"g-{number}") for number in range(3)}) == 1
        assert condition(world) == ("True", "Scheduled", "")
        assert len(held(world, "c")) == 1
        assert sorted(reserved_for(world, "c")) == ["g-0", "g-1", "g-2"]
        assert (claim(world, "c").metadata.finalizers, in_flight(world)) == ((CLAIM_FINALIZER,), 0)


@virtual
async def test_the_node_of_a_shared_claim_counts_for_all_members() -> None:
    """Only two members fit beside the device, so the gang does not."""
    nodes = [make_node("a", cpu="2"), make_node("b", cpu="9")]
    async with with_devices(*nodes, gpus("a")) as world:
        await world.create(make_resource_claim("c", REQUEST))
        members = [claiming(f"g-{n}", "c", scheduling_group=NAMED, cpu="1") for n in range(3)]
        await world.create(make_group(min_count=3), *members)
        assert (bound(world), held(world, "c"), in_flight(world)) == ([], [], 0)
        assert "resourceclaim not available on the node" in world.message("g-2")


@virtual
async def test_a_member_whose_binding_fails_leaves_the_claim_to_the_others() -> None:
    async with with_devices(make_node("a", cpu="9"), gpus("a")) as world:
        await world.create(make_resource_claim("c", REQUEST))
        devices_of(world).answers["update status"] = [(ServerError("no"), False)]
        await world.create(make_group(min_count=1), *sharing(3, "c"))
        await world.after(60)
        assert bound(world) == ["g-0", "g-1", "g-2"]
        assert sorted(reserved_for(world, "c")) == ["g-0", "g-1", "g-2"]
        assert in_flight(world) == 0


@virtual
async def test_a_single_pod_does_not_share_what_a_group_is_about_to_get() -> None:
    """It finds the claim allocated in its own attempt, later."""
    async with with_devices(make_node("a", cpu="9"), gpus("a")) as world:
        await world.create(make_resource_claim("c", REQUEST))
        await world.create(make_group(min_count=2), *sharing(2, "c"), claiming("alone", "c"))
        await world.after(60)
        assert world.node_of("alone") == "a"
        assert sorted(reserved_for(world, "c")) == ["alone", "g-0", "g-1"]


@virtual
async def test_a_claim_of_the_group_is_reserved_for_the_group_once() -> None:
    async with with_devices(make_node("a", cpu="9"), gpus("a", 2), release=OWN_CLAIMS) as world:
        await world.create(make_resource_claim("c", REQUEST), make_resource_claim("d", REQUEST))
        await world.create(with_claims(make_group(min_count=2), "c"), *sharing(2, "c", "d"))
        await world.after(0.1)
        assert bound(world) == ["g-0", "g-1"]
        (consumer,) = claim(world, "c").status.reserved_for
        group = world.store.get(PodGroup, "g", "default")
        assert (consumer.api_group, consumer.resource) == ("scheduling.k8s.io", "podgroups")
        assert (consumer.name, consumer.uid) == ("g", group.uid)
        assert sorted(reserved_for(world, "d")) == ["g-0", "g-1"]
        await world.create(claiming("g-2", "c", scheduling_group=NAMED))
        assert world.node_of("g-2") == "a"
        assert reserved_for(world, "c") == ["g"]


@virtual
async def test_a_claim_that_is_in_the_way_is_freed_for_the_group() -> None:
    """Its devices are on a node that is full; nobody uses it."""
    busy = claiming("busy", cpu="2", node="a")
    nodes = [make_node("a", cpu="2"), make_node("b", cpu="2")]
    async with with_devices(*nodes, gpus("a"), gpus("b"), busy, allocated("c", "a")) as world:
        members = [claiming(f"g-{n}", "c", scheduling_group=NAMED, cpu="1") for n in range(2)]
        await world.create(make_group(min_count=2), *members)
        await world.after(30)
        assert bound(world) == ["busy", "g-0", "g-1"]
        assert held(world, "c") == ["b/gpu-0"]


@virtual
async def test_a_claim_that_is_reserved_for_the_group_alone_is_freed_for_it() -> None:
    busy = claiming("busy", cpu="2", node="a")
    nodes = [make_node("a", cpu="2"), make_node("b", cpu="2")]
    group = with_claims(make_group(min_count=2), "c")
    objects = (*nodes, gpus("a"), gpus("b"), busy, group)
    async with with_devices(*objects, release=OWN_CLAIMS) as world:
        uid = world.store.get(PodGroup, "g", "default").uid
        await world.create(allocated("c", "a", uid))
        members = [claiming(f"g-{n}", "c", scheduling_group=NAMED, cpu="1") for n in range(2)]
        await world.create(*members)
        await world.after(60)
        assert bound(world) == ["busy", "g-0", "g-1"]
        assert held(world, "c") == ["b/gpu-0"]
