"""DaemonSets: a pod on each node that they are for."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded import kubelets
from bayplan.embedded.server.kinds import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from tests.embedded.controllers.world import World, in_world, template, workload


def nodes_with_pods(world: World) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in world.pods(app="web"))


def status(world: World) -> Content:
    found: Content = world.get(DAEMON_SETS, "web")["status"]
    return found


def test_each_node_gets_a_pod_that_names_it_and_tolerates_its_troubles() -> None:
    async def test(world: World) -> None:
        world.create(DAEMON_SETS, "web", workload())
        await world.after(2)
        assert nodes_with_pods(world) == ["n01", "n02", "n03"]
        for pod in world.pods():
            spec = pod["spec"]
            required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (term,) = required["nodeSelectorTerms"]
            field = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
            assert term == {"matchFields": [field]}
            tolerated = {each["key"].rpartition("/")[2]: each["effect"] for each in spec["tolerations"]}
            assert tolerated == {
                "not-ready": "NoExecute",
                "unreachable": "NoExecute",
                "disk-pressure": "NoSchedule",
                "memory-pressure": "NoSchedule",
                "pid-pressure": "NoSchedule",
                "unschedulable": "NoSchedule",
            }
        assert status(world) == {
            "currentNumberScheduled": 3,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 3,
            "numberReady": 3,
            "observedGeneration": 1,
            "updatedNumberScheduled": 3,
            "numberAvailable": 3,
        }

    in_world(test)


SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [SSD]}]}
    }
}


@pytest.mark.parametrize(
    ("spec", "change", "expected"),
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {}, ["n01"], id="a node selector"),
        pytest.param({"affinity": AFFINITY}, {}, ["n01"], id="node affinity"),
        pytest.param(
            {},
            {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
            ["n01", "n03"],
            id="not where a taint keeps it off",
        ),
        pytest.param(
            {}, {"spec": {"unschedulable": True}}, ["n01", "n02", "n03"], id="also where it is cordoned"
        ),
        pytest.param(
            {"tolerations": [{"key": "x", "operator": "Exists"}]},
            {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
            ["n01", "n02", "n03"],
            id="where it tolerates the taint",
        ),
    ],
)
def test_which_nodes_it_is_for(spec: Content, change: dict[str, Any], expected: list[str]) -> None:
    async def test(world: World) -> None:
        world.change(NODES, "n01", metadata={"labels": {"disk": "ssd"}})
        if change:
            world.change(NODES, "n02", **change)
        world.create(DAEMON_SETS, "web", {**workload(), "template": template(**spec)})
        await world.after(1)
        assert nodes_with_pods(world) == expected

    in_world(test)


def test_it_adapts_to_nodes_that_are_added_deleted_and_updated() -> None:
    async def test(world: World) -> None:
        world.create(DAEMON_SETS, "web", {**workload(), "template": template(nodeSelector={"disk": "ssd"})})
        for name in ("n01", "n02"):
            world.change(NODES, name, metadata={"labels": {"disk": "ssd"}})
        await world.after(1)
        assert nodes_with_pods(world) == ["n01", "n02"]
        world.change(NODES, "n01", metadata={"labels": {"disk": None}})
        world.create(NODES, "n09", labels={"disk": "ssd"})
        await world.after(1)
        assert nodes_with_pods(world) == ["n02", "n09"]

    in_world(test)


def test_its_pods_stay_on_a_node_that_is_down_though_a_new_pod_would_not_be_created_there() -> None:
    async def test(world: World) -> None:
        world.create(DAEMON_SETS, "web", workload())
        await world.after(1)
        kubelets.down(world.api, "n01")
        await world.after(1000)
        assert nodes_with_pods(world) == ["n01", "n02", "n03"]
        assert (status(world)["desiredNumberScheduled"], status(world)["numberMisscheduled"]) == (2, 1)

    in_world(test)


def test_a_pod_that_fails_is_replaced() -> None:
    async def test(world: World) -> None:
        world.create(DAEMON_SETS, "web", workload())
        await world.after(1)
        name = world.pods()[0]["metadata"]["name"]
        world.api.patch(PODS, name, "default", {"status": {"phase": "Failed"}}, subresource="status")
        await world.after(1)
        assert nodes_with_pods(world) == ["n01", "n02", "n03"]
        assert name not in world.names(PODS)

    in_world(test)


@pytest.mark.parametrize("unavailable", [1, 2])
def test_an_update_replaces_a_few_at_a_time_and_history_is_kept(unavailable: int) -> None:
    async def test(world: World) -> None:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable}}
        world.create(DAEMON_SETS, "web", workload(updateStrategy=rolling))
        await world.after(1)
        image = {"containers": [{"name": "main", "image": "app:2"}]}
        world.change(DAEMON_SETS, "web", spec={"template": {"spec": image}})
        fewest = 3
        for _ in range(200):
            await world.after(1)
            fewest = min(fewest, len(world.pods()))
        assert fewest == 3 - unavailable
        assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"app:2"}
        assert status(world)["updatedNumberScheduled"] == 3
        assert sorted(each["revision"] for each in world.api.list(CONTROLLER_REVISIONS)) == [1, 2]

    in_world(test)


def test_with_on_delete_pods_are_updated_when_a_user_deletes_them() -> None:
    async def test(world: World) -> None:
        world.create(DAEMON_SETS, "web", workload(updateStrategy={"type": "OnDelete"}))
        await world.after(1)
        image = {"containers": [{"name": "main", "image": "app:2"}]}
        world.change(DAEMON_SETS, "web", spec={"template": {"spec": image}})
        await world.after(100)
        assert "updatedNumberScheduled" not in status(world)
        world.api.delete(PODS, world.names(PODS)[0], "default")
        await world.after(40)
        assert status(world)["updatedNumberScheduled"] == 1

    in_world(test)


def test_more_nodes_than_get_a_pod_at_once_all_get_one() -> None:
    async def test(world: World) -> None:
        world.create(DAEMON_SETS, "web", workload())
        await world.after(3)
        assert len(set(nodes_with_pods(world))) == 250

    in_world(test, nodes=250)
