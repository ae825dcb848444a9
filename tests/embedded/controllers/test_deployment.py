"""Deployments, as `kubectl rollout` shows them."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from tests.embedded.controllers.world import World, in_world, workload

REVISION = "deployment.kubernetes.io/revision"


def image(text: str, **template: Any) -> Content:
    return {"template": {"spec": {"containers": [{"name": "main", "image": text}]}, **template}}


def rolling(surge: int | str, unavailable: int | str) -> Content:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def sizes(world: World) -> dict[str, int]:
    """Requested replicas, by image."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
        for each in world.api.list(REPLICA_SETS)
    }


def condition(world: World, kind: str, name: str = "web") -> Content:
    conditions = world.get(DEPLOYMENTS, name)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == kind)


def is_rolled_out(deployment: Content) -> bool:
    """What `kubectl rollout status` waits for."""
    status, replicas = deployment["status"], deployment["spec"]["replicas"]
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    is_seen = status["observedGeneration"] >= deployment["metadata"]["generation"]
    return bool(is_seen) and all(status.get(field, 0) == replicas for field in fields)


def test_a_new_deployment_gets_a_replica_set_and_pods() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=3))
        await world.run_until_idle()
        (replica_set,) = world.api.list(REPLICA_SETS)
        meta = replica_set["metadata"]
        digest = meta["labels"]["pod-template-hash"]
        assert meta["name"] == f"web-{digest}"
        assert {pod["metadata"]["labels"]["pod-template-hash"] for pod in world.pods()} == {digest}
        assert replica_set["spec"]["selector"]["matchLabels"]["pod-template-hash"] == digest
        deployment = world.get(DEPLOYMENTS, "web")
        assert is_rolled_out(deployment)
        assert deployment["metadata"]["annotations"][REVISION] == meta["annotations"][REVISION] == "1"
        assert condition(world, "Available")["reason"] == "MinimumReplicasAvailable"
        assert condition(world, "Progressing")["reason"] == "NewReplicaSetAvailable"
        assert world.events("web") == [f"Scaled up replica set web-{digest} from 0 to 3"]

    in_world(test)


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "fewest"),
    [
        pytest.param(1, 0, 5, 4, id="one more, none fewer"),
        pytest.param(0, 1, 4, 3, id="none more, one fewer"),
        pytest.param("25%", "25%", 5, 3, id="a quarter either way, rounded up and down"),
        pytest.param("100%", 0, 8, 4, id="all at once beside the old ones"),
        pytest.param(0, "100%", 4, 0, id="all at once instead of the old ones"),
    ],
)
def test_a_rolling_update_keeps_its_bounds_at_every_moment(
    surge: int | str, unavailable: int | str, most: int, fewest: int
) -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=4, strategy=rolling(surge, unavailable)))
        await world.run_until_idle()
        seen: list[tuple[int, int]] = []
        world.api.store.subscribe(lambda _: seen.append(counted(world)))
        world.change(DEPLOYMENTS, "web", spec=image("app:2"))
        await world.after(60)
        assert is_rolled_out(world.get(DEPLOYMENTS, "web"))
        assert sizes(world) == {"registry.example/app:1": 0, "app:2": 4}
        assert max(total for total, _ in seen) <= most
        assert min(ready for _, ready in seen) >= fewest

    in_world(test)


def counted(world: World) -> tuple[int, int]:
    """Pods that the ReplicaSets should have together, and pods that are ready."""
    pods = world.pods()
    ready = [
        pod
        for pod in pods
        if any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in pod["status"].get("conditions") or ()
        )
    ]
    return sum(sizes(world).values()), len(ready)


def test_recreate_starts_the_new_pods_when_the_last_old_one_is_gone() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=3, strategy={"type": "Recreate"}))
        await world.run_until_idle()
        world.change(DEPLOYMENTS, "web", spec=image("app:2"))
        await world.after(29)
        assert world.pods() == []
        assert len(world.names(PODS)) == 3  # they have 30 s to end
        await world.after(2)
        images = {pod["spec"]["containers"][0]["image"] for pod in world.pods()}
        assert images == {"app:2"}
        assert is_rolled_out(world.get(DEPLOYMENTS, "web"))

    in_world(test, stop_seconds=30)


def test_undo_returns_to_the_old_replica_set_under_a_new_revision() -> None:
    """`kubectl rollout undo` writes the old template; `history` lists revisions 2 and 3."""

    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=2))
        await world.run_until_idle()
        (first,) = world.names(REPLICA_SETS)
        world.change(DEPLOYMENTS, "web", spec=image("app:2"))
        await world.after(60)
        old = world.get(REPLICA_SETS, first)["spec"]["template"]
        del old["metadata"]["labels"]["pod-template-hash"]
        deployment = world.get(DEPLOYMENTS, "web")
        deployment["spec"]["template"] = old
        world.api.update(DEPLOYMENTS, deployment)
        await world.after(60)
        notes = {
            each["metadata"]["name"]: each["metadata"]["annotations"] for each in world.api.list(REPLICA_SETS)
        }
        assert len(notes) == 2
        assert notes[first][REVISION] == "3"
        assert notes[first]["deployment.kubernetes.io/revision-history"] == "1"
        assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "3"
        assert world.get(REPLICA_SETS, first)["spec"]["replicas"] == 2

    in_world(test)


def test_an_update_whose_pods_never_get_ready_stops_and_reports_it_after_its_deadline() -> None:
    async def test(world: World) -> None:
        spec = workload(replicas=4, progressDeadlineSeconds=60, strategy=rolling(1, 0))
        world.create(DEPLOYMENTS, "web", spec)
        await world.run_until_idle()
        gates = {"schedulingGates": [{"name": "never"}], "containers": [{"name": "main", "image": "app:2"}]}
        world.change(DEPLOYMENTS, "web", spec={"template": {"spec": gates}})
        await world.after(59)
        assert condition(world, "Progressing")["reason"] == "ReplicaSetUpdated"
        await world.after(5)
        progressing = condition(world, "Progressing")
        assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")
        assert sizes(world) == {"registry.example/app:1": 4, "app:2": 1}
        assert condition(world, "Available")["status"] == "True"

    in_world(test)


def test_scaling_in_the_middle_of_an_update_grows_both_sets_by_their_share() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=10, strategy=rolling(3, 2)))
        await world.run_until_idle()
        gates = {"schedulingGates": [{"name": "never"}], "containers": [{"name": "main", "image": "app:2"}]}
        world.change(DEPLOYMENTS, "web", spec={"template": {"spec": gates}})
        await world.after(60)
        assert sizes(world) == {"registry.example/app:1": 8, "app:2": 5}
        world.change(DEPLOYMENTS, "web", spec={"replicas": 15})
        await world.after(60)
        assert sizes(world) == {"registry.example/app:1": 11, "app:2": 7}

    in_world(test)


@pytest.mark.parametrize("text", ["soon", "9" * 5000, "-1"])
def test_invalid_annotations_do_not_stop_it(text: str) -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=10, strategy=rolling(3, 2)))
        await world.run_until_idle()
        gates = {"schedulingGates": [{"name": "never"}], "containers": [{"name": "main", "image": "app:2"}]}
        world.change(DEPLOYMENTS, "web", spec={"template": {"spec": gates}})
        await world.after(60)
        for name in world.names(REPLICA_SETS):
            notes = {
                "deployment.kubernetes.io/max-replicas": text,
                "deployment.kubernetes.io/revision": text,
                "deployment.kubernetes.io/desired-replicas": text,
            }
            world.change(REPLICA_SETS, name, metadata={"annotations": notes})
        world.change(DEPLOYMENTS, "web", spec={"replicas": 15})
        await world.after(60)
        assert sum(sizes(world).values()) == 18

    in_world(test)


def test_a_paused_deployment_is_scaled_but_not_updated() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=2))
        await world.run_until_idle()
        world.change(DEPLOYMENTS, "web", spec={"paused": True, **image("app:2")})
        await world.run_until_idle()
        world.change(DEPLOYMENTS, "web", spec={"replicas": 5})
        await world.run_until_idle()
        assert sizes(world) == {"registry.example/app:1": 5}
        assert condition(world, "Progressing")["reason"] == "DeploymentPaused"
        world.change(DEPLOYMENTS, "web", spec={"paused": False})
        await world.after(60)
        assert sizes(world) == {"registry.example/app:1": 0, "app:2": 5}

    in_world(test)


def test_old_replica_sets_beyond_the_history_are_deleted() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=1, revisionHistoryLimit=1))
        for number in range(2, 6):
            await world.after(60)
            world.change(DEPLOYMENTS, "web", spec=image(f"app:{number}"))
        await world.after(60)
        assert sizes(world) == {"app:4": 0, "app:5": 1}

    in_world(test)


def test_a_name_that_is_taken_is_gone_around() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=1))
        await world.run_until_idle()
        (name,) = world.names(REPLICA_SETS)
        world.api.delete(DEPLOYMENTS, "web", "default")
        await world.after(60)
        world.create(REPLICA_SETS, name, workload("other", replicas=0))
        world.create(DEPLOYMENTS, "web", workload(replicas=1))
        await world.after(5)
        assert is_rolled_out(world.get(DEPLOYMENTS, "web"))
        assert world.get(DEPLOYMENTS, "web")["status"]["collisionCount"] == 1
        assert len(world.names(REPLICA_SETS)) == 2

    in_world(test)
