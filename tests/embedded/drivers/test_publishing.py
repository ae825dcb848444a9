"""Simulated drivers: slices for the devices of a file, and binding conditions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.drivers import DeviceDrivers
from bayplan.embedded.drivers.device_file import DeviceFile, parse_devices
from bayplan.embedded.server.kinds import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from bayplan.embedded.up.watched_files import WatchedDevices
from bayplan.simulate.virtual_time import run_virtual
from tests.embedded.controllers.world import NAMESPACE, World, running_world

GPUS = "drivers: [{driver: a.com, devices: [{name: 'gpu-{i}', count: 2}]}]"
MANY = "drivers: [{driver: a.com, devices: [{name: 'gpu-{i}', count: 200}]}]"


def parse(text: str) -> DeviceFile:
    return parse_devices(text.encode(), "file")


def with_drivers(text: str, test: Callable[[World, DeviceDrivers], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_world(2, binds=False) as world:
            drivers = DeviceDrivers(world.api, parse(text))
            task = asyncio.create_task(drivers.run())
            await world.run_until_idle()
            await test(world, drivers)
            task.cancel()

    run_virtual(main())


def slices(world: World, pool: str = "n01") -> list[Content]:
    return [each for each in world.api.list(RESOURCE_SLICES) if each["spec"]["pool"]["name"] == pool]


def device_names(content: Content) -> list[str]:
    return [device["name"] for device in content["spec"]["devices"]]


def test_each_node_has_a_pool() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        (first,), (second,) = slices(world, "n01"), slices(world, "n02")
        assert first["metadata"]["name"].startswith("00000-a.com-n01-")
        (owner,) = first["metadata"]["ownerReferences"]
        uid = world.get(NODES, "n01")["metadata"]["uid"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", uid, True)
        assert first["spec"] == {
            "driver": "a.com",
            "nodeName": "n01",
            "pool": {"name": "n01", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        }
        assert second["spec"]["nodeName"] == "n02"

    with_drivers(GPUS, test)


def test_pools_are_added_and_removed_with_nodes() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        world.create(NODES, "n09")
        world.api.delete(NODES, "n01")
        await world.run_until_idle()
        assert len(slices(world, "n09")) == 1
        assert slices(world, "n01") == []

    with_drivers(GPUS, test)


def test_labels_decide_which_nodes_have_devices() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        assert slices(world) == []
        world.change(NODES, "n01", metadata={"labels": {"gpu": "yes"}})
        await world.run_until_idle()
        assert len(slices(world)) == 1
        world.change(NODES, "n01", metadata={"labels": {"gpu": None}})
        await world.run_until_idle()
        assert slices(world) == []

    with_drivers("drivers: [{driver: a, nodeSelector: {gpu: 'yes'}, devices: [{name: g}]}]", test)


def test_many_devices_take_several_slices() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        found = slices(world)
        assert [len(each["spec"]["devices"]) for each in found] == [128, 72]
        assert [each["metadata"]["name"][:5] for each in found] == ["00000", "00001"]
        assert {each["spec"]["pool"]["resourceSliceCount"] for each in found} == {2}

    with_drivers(MANY, test)


def test_counters_have_a_slice_of_their_own() -> None:
    text = """
drivers:
- driver: a
  sharedCounters: [{name: set, counters: {memory: {value: 40Gi}}}]
  devices:
  - {name: d, consumesCounters: [{counterSet: set, counters: {memory: {value: 10Gi}}}]}
"""

    async def test(world: World, drivers: DeviceDrivers) -> None:
        counters, devices = slices(world)
        assert [each["name"] for each in counters["spec"]["sharedCounters"]] == ["set"]
        assert "devices" not in counters["spec"]
        assert device_names(devices) == ["d"]

    with_drivers(text, test)


def test_a_change_of_one_slice_is_made_in_place() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        (before,) = slices(world)
        drivers.replace(parse(GPUS.replace("count: 2", "count: 3")))
        await world.run_until_idle()
        (after,) = slices(world)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["pool"]["generation"] == 1
        assert device_names(after) == ["gpu-0", "gpu-1", "gpu-2"]

    with_drivers(GPUS, test)


def test_another_number_of_slices_is_a_new_generation() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        drivers.replace(parse(MANY))
        await world.run_until_idle()
        assert [each["spec"]["pool"]["generation"] for each in slices(world)] == [2, 2]
        drivers.replace(parse(GPUS))
        await world.run_until_idle()
        (left,) = slices(world)
        assert left["spec"]["pool"] == {"name": "n01", "generation": 3, "resourceSliceCount": 1}
        drivers.replace(parse(GPUS))
        await world.run_until_idle()
        assert slices(world) == [left], "nothing changed, so nothing is written"

    with_drivers(GPUS, test)


def test_a_driver_that_leaves_the_file_takes_its_slices_along() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        drivers.replace(parse("drivers: [{driver: b, allNodes: true, devices: [{name: d}]}]"))
        await world.run_until_idle()
        (left,) = world.api.list(RESOURCE_SLICES)
        assert left["spec"]["driver"] == "b"
        assert left["spec"]["allNodes"] is True
        assert left["spec"]["pool"]["name"] == "network"

    with_drivers(GPUS, test)


def test_a_slice_that_another_client_changed_or_deleted_is_restored() -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        (first,), (second,) = slices(world, "n01"), slices(world, "n02")
        world.api.delete(RESOURCE_SLICES, first["metadata"]["name"])
        world.change(RESOURCE_SLICES, second["metadata"]["name"], spec={"devices": [{"name": "x"}]})
        await world.run_until_idle()
        for pool in ("n01", "n02"):
            (restored,) = slices(world, pool)
            assert device_names(restored) == ["gpu-0", "gpu-1"]

    with_drivers(GPUS, test)


def test_taints_that_stay_keep_their_time() -> None:
    text = "drivers: [{driver: a, devices: [{name: d, taints: [{key: k, effect: NoSchedule}]}%s]}]"

    async def test(world: World, drivers: DeviceDrivers) -> None:
        (before,) = slices(world)
        added = before["spec"]["devices"][0]["taints"][0]["timeAdded"]
        await world.after(60)
        drivers.replace(parse(text % ", {name: e, taints: [{key: k, effect: NoSchedule}]}"))
        await world.run_until_idle()
        (after,) = slices(world)
        times = [device["taints"][0]["timeAdded"] for device in after["spec"]["devices"]]
        assert times[0] == added
        assert times[1] > added

    with_drivers(text % "", test)


# Binding conditions

BINDING = """
drivers:
- driver: a.com
  allNodes: true
  devices: [{name: d, bindingConditions: [ready], bindingFailureConditions: [failed]}]
  binding: {afterSeconds: 5, result: %s}
"""
RESULT: dict[str, Any] = {
    "request": "r",
    "driver": "a.com",
    "pool": "network",
    "device": "d",
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["failed"],
}


@pytest.mark.parametrize(("result", "expected"), [("Ready", "ready"), ("Failed", "failed")])
def test_binding_conditions_come_true_after_a_while(result: str, expected: str) -> None:
    async def test(world: World, drivers: DeviceDrivers) -> None:
        request = {"name": "r", "exactly": {"deviceClassName": "c"}}
        world.create(RESOURCE_CLAIMS, "c", {"devices": {"requests": [request]}})
        allocation = {"devices": {"results": [RESULT]}, "allocationTimestamp": world.api.now()}
        status = {"status": {"allocation": allocation}}
        world.api.patch(RESOURCE_CLAIMS, "c", NAMESPACE, status, subresource="status")
        await world.after(3)
        assert "devices" not in world.get(RESOURCE_CLAIMS, "c")["status"]
        await world.after(3)
        (device,) = world.get(RESOURCE_CLAIMS, "c")["status"]["devices"]
        assert (device["driver"], device["pool"], device["device"]) == ("a.com", "network", "d")
        (condition,) = device["conditions"]
        assert (condition["type"], condition["status"]) == (expected, "True")

    with_drivers(BINDING % result, test)


# The file


def test_the_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(GPUS)
    watched = WatchedDevices(path)

    async def test(world: World, drivers: DeviceDrivers) -> None:
        async def change(text: str) -> list[str]:
            path.write_text(text)
            os.utime(path, ns=(0, hash(text)))
            watched.check(drivers)
            await world.run_until_idle()
            (found,) = slices(world)
            return device_names(found)

        assert await change(GPUS.replace("count: 2", "count: 1")) == ["gpu-0"]
        assert await change("drivers: 5") == ["gpu-0"]
        assert "devices are kept as they were" in caplog.text
        assert "drivers: must be a list" in caplog.text
        path.unlink()
        watched.check(drivers)
        assert await change(GPUS) == ["gpu-0", "gpu-1"]

    with_drivers(GPUS, test)
