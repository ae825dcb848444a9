"""Services have EndpointSlices with the addresses of their pods."""

from __future__ import annotations

from typing import Any

from bayplan.api.meta import Content
from bayplan.embedded.server.kinds import DEPLOYMENTS, ENDPOINT_SLICES, PODS, SERVICES
from tests.embedded.controllers.world import World, in_world, workload


def slices(world: World) -> list[Content]:
    found = world.api.list(ENDPOINT_SLICES, "default")
    return [each for each in found if each["metadata"]["labels"]["kubernetes.io/service-name"] == "web"]


def service(world: World, **port: Any) -> None:
    spec = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, **port}]}
    world.create(SERVICES, "web", spec)


def test_a_slice_follows_the_pods() -> None:
    async def test(world: World) -> None:
        service(world, targetPort=8080)
        await world.after(2)
        (empty,) = slices(world)
        assert not empty.get("endpoints")
        world.create(DEPLOYMENTS, "web", {**workload(), "replicas": 2})
        await world.after(2)
        found = [each for one in slices(world) for each in one.get("endpoints") or ()]
        pods = {pod["metadata"]["name"]: pod for pod in world.api.list(PODS)}
        assert {each["targetRef"]["name"] for each in found} == set(pods)
        for each in found:
            pod = pods[each["targetRef"]["name"]]
            assert each["addresses"] == [pod["status"]["podIP"]]
            assert each["nodeName"] == pod["spec"]["nodeName"]
            assert each["conditions"] == {"ready": True, "serving": True, "terminating": False}
            assert each["zone"].startswith("sim-")
        (one,) = slices(world)
        assert one["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        world.change(DEPLOYMENTS, "web", spec={"replicas": 0})
        await world.after(10)
        assert not any(one.get("endpoints") for one in slices(world))
        world.api.delete(SERVICES, "web", "default")
        await world.after(2)
        assert slices(world) == []

    in_world(test)


def test_a_named_port_is_that_of_each_pod() -> None:
    async def test(world: World) -> None:
        service(world, targetPort="http")
        for name, port in (("a", 1000), ("b", 2000)):
            container = {"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": port}]}
            world.create(PODS, name, {"containers": [container]}, labels={"app": "web"})
        await world.after(2)
        found = {one["ports"][0]["port"]: one["endpoints"][0]["targetRef"]["name"] for one in slices(world)}
        assert found == {1000: "a", 2000: "b"}

    in_world(test)


def test_a_slice_that_was_deleted_comes_back() -> None:
    async def test(world: World) -> None:
        service(world)
        await world.after(2)
        (before,) = slices(world)
        world.api.delete(ENDPOINT_SLICES, before["metadata"]["name"], "default")
        await world.after(2)
        (after,) = slices(world)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]

    in_world(test)
