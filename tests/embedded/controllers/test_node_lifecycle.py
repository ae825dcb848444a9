"""Nodes that are not ready, unreachable, cordoned or deleted, and what becomes of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded import kubelets
from bayplan.embedded.server.kinds import NODES, PODS, REPLICA_SETS
from tests.embedded.controllers.world import World, in_world, template, workload


def taints(world: World, name: str = "n01") -> set[tuple[str, str]]:
    found = world.get(NODES, name)["spec"].get("taints") or ()
    return {(each["key"].removeprefix("node.kubernetes.io/"), each["effect"]) for each in found}


def set_condition(world: World, kind: str, status: str) -> None:
    node = world.get(NODES, "n01")
    others = [each for each in node["status"]["conditions"] if each["type"] != kind]
    node["status"]["conditions"] = [*others, {"type": kind, "status": status}]
    world.api.update(NODES, node, subresource="status")


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        pytest.param(
            "Ready", "False", {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}, id="not ready"
        ),
        pytest.param("MemoryPressure", "True", {("memory-pressure", "NoSchedule")}, id="short of memory"),
        pytest.param("DiskPressure", "True", {("disk-pressure", "NoSchedule")}, id="short of disk"),
        pytest.param("PIDPressure", "True", {("pid-pressure", "NoSchedule")}, id="short of processes"),
        pytest.param("NetworkUnavailable", "True", {("network-unavailable", "NoSchedule")}, id="no network"),
        pytest.param("MemoryPressure", "False", set(), id="nothing is wrong"),
    ],
)
def test_conditions_become_taints_which_are_removed_with_them(
    kind: str, status: str, expected: set[tuple[str, str]]
) -> None:
    async def test(world: World) -> None:
        own = {"key": "team", "value": "a", "effect": "NoSchedule"}
        world.change(NODES, "n01", spec={"taints": [own]})
        set_condition(world, kind, status)
        await world.run_until_idle()
        assert taints(world) == {("team", "NoSchedule"), *expected}
        set_condition(world, kind, "True" if kind == "Ready" else "False")
        await world.run_until_idle()
        assert taints(world) == {("team", "NoSchedule")}

    in_world(test, nodes=1)


def test_a_cordoned_node_is_tainted_until_it_is_uncordoned() -> None:
    async def test(world: World) -> None:
        world.change(NODES, "n01", spec={"unschedulable": True})
        await world.run_until_idle()
        assert taints(world) == {("unschedulable", "NoSchedule")}
        world.change(NODES, "n01", spec={"unschedulable": None})
        await world.run_until_idle()
        assert taints(world) == set()

    in_world(test, nodes=1)


def ready(content: Content) -> str:
    return str(next(each["status"] for each in content["status"]["conditions"] if each["type"] == "Ready"))


def test_a_node_without_heartbeats_is_unreachable_after_fifty_seconds_and_ready_when_it_is_back() -> None:
    async def test(world: World) -> None:
        world.create(PODS, "p", template()["spec"])
        await world.run_until_idle()
        kubelets.down(world.api, "n01")
        await world.after(49)
        assert (ready(world.get(NODES, "n01")), taints(world)) == ("True", set())
        await world.after(2)
        assert ready(world.get(NODES, "n01")) == "Unknown"
        assert taints(world) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        assert ready(world.get(PODS, "p")) == "False"
        assert world.events("n01", "NodeNotReady") == ["Node n01 status is now: NodeNotReady"]
        kubelets.up(world.api, "n01")
        await world.run_until_idle()
        assert (ready(world.get(NODES, "n01")), taints(world)) == ("True", set())
        assert ready(world.get(PODS, "p")) == "True"

    in_world(test, nodes=1)


def test_pods_of_an_unreachable_node_are_replaced_elsewhere_after_their_toleration() -> None:
    """50 s until it is unreachable, 300 s that pods tolerate it by default; then they wait for their node."""

    async def test(world: World) -> None:
        world.create(REPLICA_SETS, "web", workload(replicas=4))
        await world.run_until_idle()
        lost = {pod["metadata"]["name"] for pod in world.pods() if pod["spec"]["nodeName"] == "n01"}
        assert len(lost) == 2
        kubelets.down(world.api, "n01")
        await world.after(345)
        assert lost < {pod["metadata"]["name"] for pod in world.pods()}
        await world.after(15)
        running = world.pods()
        assert {pod["spec"]["nodeName"] for pod in running} == {"n02"}
        assert len(running) == 4
        assert lost < set(world.names(PODS))  # marked, but no kubelet has stopped them
        condition = world.get(PODS, min(lost))["status"]["conditions"][-1]
        assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "DeletionByTaintManager")
        kubelets.up(world.api, "n01")
        await world.after(31)
        assert not lost & set(world.names(PODS))

    in_world(test, nodes=2)


@pytest.mark.parametrize(
    ("tolerations", "gone_after"),
    [
        pytest.param([], 0, id="not tolerated: at once"),
        pytest.param(
            [{"key": "fire", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            60,
            id="for a minute",
        ),
        pytest.param([{"key": "fire", "operator": "Exists"}], None, id="forever"),
        pytest.param([{"key": "flood", "operator": "Exists"}], 0, id="another taint is tolerated"),
        pytest.param(
            [
                {"key": "fire", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20},
            ],
            20,
            id="the shorter of two counts",
        ),
    ],
)
def test_a_taint_that_another_client_sets_evicts_pods(tolerations: list[Any], gone_after: int | None) -> None:
    async def test(world: World) -> None:
        world.create(PODS, "p", template(tolerations=tolerations, terminationGracePeriodSeconds=1)["spec"])
        await world.run_until_idle()
        world.change(NODES, "n01", spec={"taints": [{"key": "fire", "effect": "NoExecute"}]})
        await world.run_until_idle()
        if gone_after:
            await world.after(gone_after - 2)
            assert world.names(PODS) == ["p"]
        await world.after(5 if gone_after is not None else 3600)
        assert world.names(PODS) == ([] if gone_after is not None else ["p"])

    in_world(test, nodes=1)


def test_an_eviction_is_cancelled_when_the_taint_is_removed_in_time() -> None:
    async def test(world: World) -> None:
        tolerations = [{"key": "fire", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
        world.create(PODS, "p", template(tolerations=tolerations)["spec"])
        await world.run_until_idle()
        world.change(NODES, "n01", spec={"taints": [{"key": "fire", "effect": "NoExecute"}]})
        await world.after(30)
        world.change(NODES, "n01", spec={"taints": []})
        await world.after(100)
        assert len(world.pods()) == 1
        assert world.events("p", "TaintManagerEviction") == ["Cancelling deletion of Pod default/p"]

    in_world(test, nodes=1)


def test_pods_of_a_deleted_node_are_deleted_after_a_while_and_replaced() -> None:
    async def test(world: World) -> None:
        world.create(REPLICA_SETS, "web", workload(replicas=4))
        await world.run_until_idle()
        world.api.delete(NODES, "n01")
        await world.after(38)
        assert sum(pod["spec"]["nodeName"] == "n01" for pod in world.pods()) == 2
        await world.after(5)
        assert [pod["spec"]["nodeName"] for pod in world.api.list(PODS)] == ["n02"] * 4

    in_world(test, nodes=2)


def test_pods_stay_if_the_node_is_there_again_in_time() -> None:
    async def test(world: World) -> None:
        world.create(PODS, "p", template()["spec"])
        await world.run_until_idle()
        world.api.delete(NODES, "n01")
        await world.after(20)
        world.create(NODES, "n01")
        await world.after(100)
        assert [pod["metadata"]["name"] for pod in world.pods()] == ["p"]

    in_world(test, nodes=1)
