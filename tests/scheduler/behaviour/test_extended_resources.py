"""Extended resources that devices serve: the scheduler creates the claim."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.devices import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.errors import APIError
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.families import CLAIM_CREATES, CLAIM_CREATES_BY_OWNER
from bayplan.testing.builders import make_device_class, make_node, make_pod, make_resource_claim

from .devices import REQUEST, Devices, claiming, devices_of, gpus, held, in_flight
from .running import World, running, virtual

SERVED = make_device_class("gpu", 'device.driver == "gpu.example.com"', extended_resource="example.com/gpu")


def own_claims(world: World) -> list[ResourceClaim]:
    return [
        one
        for one in world.store.list(ResourceClaim)
        if EXTENDED_RESOURCE_CLAIM_ANNOTATION in one.annotations
    ]


@pytest.mark.parametrize(
    ("release", "family", "labels"),
    [
        pytest.param(V1_36, CLAIM_CREATES, ("success",), id="1.36"),
        pytest.param(V1_37, CLAIM_CREATES_BY_OWNER, ("success", "false", "", "Pod"), id="1.37"),
    ],
)
def test_an_extended_resource_is_served_by_devices(
    release: Release, family: Any, labels: tuple[str, ...]
) -> None:
    """The scheduler creates the claim, and shows it in the pod's status."""

    @virtual
    async def scenario() -> None:
        metrics = SchedulerMetrics(release=release)
        async with running(
            make_node("n"), SERVED, gpus("n", 3), kind_of_cluster=Devices, metrics=metrics, release=release
        ) as world:
            await world.create(make_pod("p", requests={"example.com/gpu": 2}))
            await world.after(3)
            (made,) = own_claims(world)
            assert world.node_of("p") == "n"
            assert made.name.startswith("p-extended-resources-")
            assert held(world, made.name) == ["n/gpu-0", "n/gpu-1"]
            assert devices_of(world).requests() == [
                "patch",
                "create",
                "update",
                "update status",
                "patch",
                "bind",
            ]
            shown = world.pod("p").status.extended_resource_claim_status
            assert shown is not None
            assert shown.resource_claim_name == made.name
            (mapping,) = shown.request_mappings
            assert (mapping.resource_name, mapping.request_name) == (
                "example.com/gpu",
                "container-0-request-0",
            )
            assert metrics.families[family][labels].value == 1
            assert in_flight(world) == 0

    scenario()


@virtual
async def test_the_claim_of_a_pod_that_cannot_be_bound_is_deleted() -> None:
    async with running(make_node("n"), SERVED, gpus("n"), kind_of_cluster=Devices) as world:
        world.cluster.will_answer("bind", APIError("no", code=422))
        await world.create(make_pod("p", requests={"example.com/gpu": 1}))
        await world.after(60)
        assert world.node_of("p") == "n"
        assert len(own_claims(world)) == 1
        assert "delete" in devices_of(world).requests()


@virtual
async def test_a_node_whose_device_plugin_serves_the_resource_needs_no_claim() -> None:
    """Also for a pod that has a claim besides, which upstream never binds."""
    room: dict[str, Any] = {"example.com/gpu": 2}
    node = make_node("n", **room)
    async with running(node, SERVED, gpus("n"), kind_of_cluster=Devices) as world:
        await world.create(
            make_resource_claim("c", REQUEST), claiming("p", "c", requests={"example.com/gpu": 1})
        )
        await world.after(3)
        assert (world.node_of("p"), own_claims(world)) == ("n", [])
        assert held(world, "c") == ["n/gpu-0"]
