"""Simulated nodes: as many as requested, or applied ones; Ready, with what tools expect of a node."""

from __future__ import annotations

from datetime import datetime

import pytest

from bayplan.api.meta import Content
from bayplan.embedded import kubelets
from bayplan.embedded.server.kinds import LEASES, NODES
from tests.embedded.controllers.world import World, in_world


def test_generated_nodes_are_distributed_over_the_zones() -> None:
    nodes = kubelets.make_nodes(4, zones=["a", "b"])
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    zones = {name: own["topology.kubernetes.io/zone"] for name, own in labels.items()}
    assert zones == {"n01": "a", "n02": "b", "n03": "a", "n04": "b"}
    for name, own in labels.items():
        assert own["kubernetes.io/hostname"] == name
        assert {"kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type"} <= set(own)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(kubelets.make_nodes(1)[0], id="one that was made"),
        pytest.param({"metadata": {"name": "n01"}}, id="one of which nothing but the name is known"),
    ],
)
def test_a_node_becomes_ready_with_capacity_addresses_and_a_network(node: Content) -> None:
    async def test(world: World) -> None:
        found = world.get(NODES, "n01")
        status = found["status"]
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        assert conditions == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        assert status["allocatable"] == status["capacity"]
        assert status["capacity"]["pods"] == "110"
        assert {each["type"] for each in status["addresses"]} == {"InternalIP", "Hostname"}
        assert found["spec"]["podCIDR"].endswith("/24")
        assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "n01"

    in_world(test, nodes=[node])


def test_what_a_user_sets_on_a_node_stays() -> None:
    node = {
        "metadata": {"name": "small", "labels": {"kubernetes.io/arch": "arm64"}},
        "status": {
            "capacity": {"cpu": "1", "memory": "1Gi", "pods": "4"},
            "conditions": [{"type": "MemoryPressure", "status": "True"}],
        },
    }

    async def test(world: World) -> None:
        found = world.get(NODES, "small")
        assert found["status"]["allocatable"]["pods"] == "4"
        assert found["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
        conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        assert (conditions["MemoryPressure"], conditions["Ready"]) == ("True", "True")

    in_world(test, nodes=[node])


def test_devices_are_added_and_removed_with_the_capacity() -> None:
    """As with a real kubelet: to add a resource to a node, only its capacity is written."""
    gpu = "example.com/gpu"

    async def test(world: World) -> None:
        world.api.patch(NODES, "n01", "", {"status": {"capacity": {gpu: "4"}}}, subresource="status")
        await world.run_until_idle()
        assert world.get(NODES, "n01")["status"]["allocatable"][gpu] == "4"
        world.api.patch(NODES, "n01", "", {"status": {"allocatable": {gpu: "3"}}}, subresource="status")
        await world.run_until_idle()
        assert world.get(NODES, "n01")["status"]["allocatable"][gpu] == "3"
        world.api.patch(NODES, "n01", "", {"status": {"capacity": {gpu: None}}}, subresource="status")
        await world.run_until_idle()
        assert gpu not in world.get(NODES, "n01")["status"]["allocatable"]

    in_world(test)


def test_a_node_with_only_allocatable_has_at_least_that_capacity() -> None:
    async def test(world: World) -> None:
        status = {"allocatable": {"cpu": "2", "example.com/gpu": "1"}}
        world.api.create(NODES, {"metadata": {"name": "mine"}, "status": status})
        await world.run_until_idle()
        found = world.get(NODES, "mine")["status"]
        assert found["allocatable"] == status["allocatable"]
        assert found["capacity"]["example.com/gpu"] == "1"

    in_world(test)


def test_nodes_have_networks_of_their_own() -> None:
    async def test(world: World) -> None:
        nodes = world.api.list(NODES)
        assert len({node["spec"]["podCIDR"] for node in nodes}) == 300
        assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 300

    in_world(test, nodes=300)


def renewed(world: World, name: str) -> float:
    lease = world.get(LEASES, name, "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == name
    return world.api.time() - datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp()


def test_leases_are_fresh_whenever_they_are_read_and_never_written() -> None:
    async def test(world: World) -> None:
        version = world.api.store.version
        for _ in range(10):
            await world.after(37)
            assert renewed(world, "n01") < 10
        (listed,) = (each for each in world.api.list(LEASES) if each["metadata"]["name"] == "n02")
        assert listed["spec"]["renewTime"] == world.get(LEASES, "n02", "kube-node-lease")["spec"]["renewTime"]
        assert world.api.store.version == version

    in_world(test)


def test_a_node_that_is_down_renews_no_lease_until_it_is_back() -> None:
    async def test(world: World) -> None:
        kubelets.down(world.api, "n01")
        await world.after(35)
        assert 35 <= renewed(world, "n01") < 45
        assert renewed(world, "n02") < 10
        kubelets.up(world.api, "n01")
        await world.run_until_idle()
        assert renewed(world, "n01") < 10

    in_world(test)


def test_a_lease_that_is_not_a_nodes_stays_as_it_is_written() -> None:
    async def test(world: World) -> None:
        spec = {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.000000Z"}
        world.create(LEASES, "mine", spec)
        await world.after(100)
        assert world.get(LEASES, "mine")["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"

    in_world(test)
