"""ReplicaSets and ReplicationControllers, as their users see them."""

from __future__ import annotations

import pytest

from bayplan.embedded.server.kinds import (
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    Resource,
)
from tests.embedded.controllers.world import World, in_world, template, workload


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        pytest.param(REPLICA_SETS, workload(replicas=3), id="a ReplicaSet"),
        pytest.param(
            REPLICATION_CONTROLLERS,
            {"selector": {"app": "web"}, "template": template(), "replicas": 3},
            id="a ReplicationController",
        ),
    ],
)
def test_as_many_pods_run_as_requested(resource: Resource, spec: dict[str, object]) -> None:
    async def test(world: World) -> None:
        world.create(resource, "web", spec)
        await world.run_until_idle()
        pods = world.pods(app="web")
        assert len(pods) == 3
        for pod in pods:
            meta = pod["metadata"]
            assert meta["name"].startswith("web-")
            assert meta["generateName"] == "web-"
            (owner,) = meta["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["controller"]) == (resource.kind, "web", True)
        assert world.get(resource, "web")["status"] == {
            "replicas": 3,
            "fullyLabeledReplicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "observedGeneration": 1,
        }
        created = sorted(world.events("web", "SuccessfulCreate"))
        assert created == [f"Created pod: {pod['metadata']['name']}" for pod in pods]

    in_world(test)


@pytest.mark.parametrize("replicas", [0, 1, 5, 1200])
def test_scaling(replicas: int) -> None:
    async def test(world: World) -> None:
        world.create(REPLICA_SETS, "web", workload(replicas=3))
        await world.run_until_idle()
        world.change(REPLICA_SETS, "web", spec={"replicas": replicas})
        await world.run_until_idle()
        assert len(world.pods(app="web")) == replicas

    in_world(test, nodes=0)


def test_a_pod_that_is_deleted_or_fails_is_replaced() -> None:
    async def test(world: World) -> None:
        world.create(REPLICA_SETS, "web", workload(replicas=2))
        await world.run_until_idle()
        first, second = (pod["metadata"]["name"] for pod in world.pods())
        world.api.delete(PODS, first, "default")
        world.api.patch(PODS, second, "default", {"status": {"phase": "Failed"}}, subresource="status")
        await world.run_until_idle()
        running = [pod for pod in world.pods() if pod["status"]["phase"] == "Running"]
        assert len(running) == 2
        assert not {first, second} & {pod["metadata"]["name"] for pod in running}

    in_world(test)


def test_the_least_useful_pods_are_deleted_first() -> None:
    """A pod without a node is deleted before one that runs, and of those that run the one that costs less."""

    async def test(world: World) -> None:
        world.create(REPLICA_SETS, "web", workload(replicas=2))
        await world.run_until_idle()
        old, dear = (pod["metadata"]["name"] for pod in world.pods())
        note = {"controller.kubernetes.io/pod-deletion-cost": "10"}
        world.change(PODS, dear, metadata={"annotations": note})
        await world.after(5)
        gated = template(schedulingGates=[{"name": "wait"}])
        world.change(REPLICA_SETS, "web", spec={"replicas": 3, "template": gated})
        await world.run_until_idle()
        (waiting,) = {pod["metadata"]["name"] for pod in world.pods()} - {old, dear}
        gone: list[str] = []
        for replicas in (2, 1, 0):
            before = {pod["metadata"]["name"] for pod in world.pods()}
            world.change(REPLICA_SETS, "web", spec={"replicas": replicas})
            await world.run_until_idle()
            gone += before - {pod["metadata"]["name"] for pod in world.pods()}
        assert gone == [waiting, old, dear]

    in_world(test)


def test_a_pod_is_adopted_whose_labels_match_and_released_when_they_do_not() -> None:
    async def test(world: World) -> None:
        spec = template()["spec"]
        world.create(PODS, "stray", spec, labels={"app": "web"})
        world.create(REPLICA_SETS, "web", workload(replicas=2))
        await world.run_until_idle()
        assert len(world.pods(app="web")) == 2
        assert world.get(PODS, "stray")["metadata"]["ownerReferences"][0]["name"] == "web"
        world.change(PODS, "stray", metadata={"labels": {"app": "debug"}})
        await world.run_until_idle()
        assert not world.get(PODS, "stray")["metadata"].get("ownerReferences")
        assert len(world.pods(app="web")) == 2

    in_world(test)


def test_a_pod_that_may_not_be_created_is_reported_and_tried_again() -> None:
    async def test(world: World) -> None:
        spec = workload(replicas=1)
        spec["template"]["spec"]["priorityClassName"] = "important"
        world.create(REPLICA_SETS, "web", spec)
        await world.run_until_idle()
        (condition,) = world.get(REPLICA_SETS, "web")["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert "no PriorityClass with name important was found" in condition["message"]
        assert "no PriorityClass" in world.events("web", "FailedCreate")[0]
        world.api.create(PRIORITY_CLASSES, {"metadata": {"name": "important"}, "value": 10})
        await world.after(60)
        assert len(world.pods()) == 1
        assert "conditions" not in world.get(REPLICA_SETS, "web")["status"]

    in_world(test)


def test_a_pod_counts_as_available_only_after_min_ready_seconds() -> None:
    async def test(world: World) -> None:
        world.create(REPLICA_SETS, "web", workload(replicas=2, minReadySeconds=10))
        await world.run_until_idle()
        status = world.get(REPLICA_SETS, "web")["status"]
        assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (2, 0)
        await world.after(11)
        assert world.get(REPLICA_SETS, "web")["status"]["availableReplicas"] == 2

    in_world(test)
