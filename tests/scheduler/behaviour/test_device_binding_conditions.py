"""Binding conditions: a pod waits at PreBind until its devices are ready."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.devices import AllocatedDeviceStatus
from bayplan.api.meta import Condition
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.families import BINDING_CONDITIONS
from bayplan.testing.builders import make_node, make_resource_claim

from .devices import CLASS, FAILED, REQUEST, Devices, claim, claiming, gpus, held, in_flight
from .running import World, running, virtual

CONDITIONS = (("Ready",), ("Broken",))


def set_condition(world: World, name: str, condition: str) -> None:
    """The condition that a driver sets for the device of a claim."""
    stored = claim(world, name)
    device = AllocatedDeviceStatus(
        driver="gpu.example.com",
        pool="n",
        device="gpu-0",
        conditions=(Condition(type=condition, status="True", reason="Fault", message='it "failed"'),),
    )
    world.store.update_claim_status(replace(stored, status=replace(stored.status, devices=(device,))))


@pytest.mark.parametrize(("release", "expected"), [(V1_36, 0), (V1_37, 1)], ids=["1.36", "1.37"])
def test_how_long_an_allocation_is_in_flight(release: Release, expected: int) -> None:
    """Until it is written, in v1.37 until PreBind has succeeded."""

    @virtual
    async def scenario() -> None:
        async with running(
            make_node("n"), CLASS, gpus("n", conditions=CONDITIONS), kind_of_cluster=Devices, release=release
        ) as world:
            await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
            await world.after(1)
            assert held(world, "c") == ["n/gpu-0"]
            assert in_flight(world) == expected
            set_condition(world, "c", "Ready")
            await world.after(10)
            assert world.node_of("p") == "n"
            assert in_flight(world) == 0

    scenario()


@virtual
async def test_the_pod_is_bound_when_its_device_is_ready() -> None:
    metrics = SchedulerMetrics()
    async with running(
        make_node("n"), CLASS, gpus("n", conditions=CONDITIONS), kind_of_cluster=Devices, metrics=metrics
    ) as world:
        await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
        await world.after(11)
        assert not world.node_of("p")
        assert "waiting for binding conditions for device on node n" in str(world.events("p"))
        set_condition(world, "c", "Ready")
        await world.after(5)
        assert world.node_of("p") == "n"
        counter = metrics.families[BINDING_CONDITIONS]["default-scheduler", "gpu.example.com", "success"]
        assert counter.value == 1


@pytest.mark.parametrize(
    ("condition", "seconds", "message"),
    [
        pytest.param(
            "Broken",
            6,
            'device binding failed: claim=c, reason=Fault, message="it \\"failed\\""',
            id="failed",
        ),
        pytest.param("", 601, "device binding timeout: ", id="too late"),
    ],
)
def test_a_device_that_does_not_become_ready(condition: str, seconds: float, message: str) -> None:
    """The pod fails, the claim is deallocated by the next attempt, and a third one allocates it again."""

    @virtual
    async def scenario() -> None:
        async with running(
            make_node("n"), CLASS, gpus("n", conditions=CONDITIONS), kind_of_cluster=Devices
        ) as world:
            await world.create(make_resource_claim("c", REQUEST), claiming("p", "c"))
            await world.after(1)
            if condition:
                set_condition(world, "c", condition)
            await world.after(seconds)
            assert any((FAILED + message) in note for _, note in world.events("p"))
            await world.after(30)
            assert "deallocation of ResourceClaim completed" in str(world.events("p"))
            await world.after(30)
            set_condition(world, "c", "Ready")
            await world.after(30)
            assert world.node_of("p") == "n"

    scenario()
