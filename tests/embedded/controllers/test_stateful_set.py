"""StatefulSets: names, order and volumes."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from bayplan.embedded.server.statuses import StatusError
from tests.embedded.controllers.world import World, in_world, template, workload

IMAGE_2 = {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}


def status(world: World) -> Content:
    found: Content = world.get(STATEFUL_SETS, "web")["status"]
    return found


def create(world: World, **spec: Any) -> None:
    world.create(STATEFUL_SETS, "web", {**workload(), "serviceName": "web", **spec})


def mounting(volume: str) -> Content:
    container = {"name": "main", "image": "db", "volumeMounts": [{"name": volume, "mountPath": "/data"}]}
    return template(containers=[container])


def images(world: World) -> list[str]:
    return [pod["spec"]["containers"][0]["image"].partition(":")[2] for pod in world.pods()]


def order_of(world: World, what: str) -> list[str]:
    """In which order pods were created or deleted."""
    messages = world.events("web", f"Successful{what}")
    return [message.split()[2] for message in messages if message.split()[1] == "Pod"]


def test_pods_have_numbers_names_and_labels_of_their_own() -> None:
    async def test(world: World) -> None:
        create(world, replicas=2)
        await world.run_until_idle()
        assert world.names(PODS) == ["web-0", "web-1"]
        pod = world.get(PODS, "web-1")
        assert pod["spec"]["hostname"] == "web-1"
        assert pod["spec"]["subdomain"] == "web"
        labels = pod["metadata"]["labels"]
        assert labels["statefulset.kubernetes.io/pod-name"] == "web-1"
        assert labels["apps.kubernetes.io/pod-index"] == "1"
        found = status(world)
        fields = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
        assert [found[field] for field in fields] == [2] * 5
        assert found["currentRevision"] == found["updateRevision"]
        assert found["currentRevision"] == labels["controller-revision-hash"]

    in_world(test)


def test_in_order_each_waits_for_the_one_before() -> None:
    async def test(world: World) -> None:
        create(world, replicas=3)
        while len(world.names(PODS)) < 3:
            pods = world.api.list(PODS)
            assert sum(pod["status"]["phase"] != "Running" for pod in pods) <= 1
            await world.after(1)
        world.change(STATEFUL_SETS, "web", spec={"replicas": 1})
        await world.after(31)
        assert world.names(PODS) == ["web-0", "web-1"]  # the second is being deleted
        await world.after(60)
        assert world.names(PODS) == ["web-0"]
        assert order_of(world, "Create") == ["web-0", "web-1", "web-2"]
        assert order_of(world, "Delete") == ["web-2", "web-1"]

    in_world(test, stop_seconds=30)


@pytest.mark.parametrize(("policy", "pods"), [("OrderedReady", 1), ("Parallel", 3)])
def test_a_pod_that_never_gets_ready_delays_the_others_only_in_order(policy: str, pods: int) -> None:
    async def test(world: World) -> None:
        create(world, replicas=3, podManagementPolicy=policy)
        await world.after(60)
        assert len(world.names(PODS)) == pods

    in_world(test, nodes=0)


def test_claims_are_made_once_and_stay_when_pods_are_deleted() -> None:
    async def test(world: World) -> None:
        size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
        claim = {"metadata": {"name": "data"}, "spec": size}
        create(world, replicas=2, volumeClaimTemplates=[claim], template=mounting("data"))
        await world.run_until_idle()
        assert world.names(PERSISTENT_VOLUME_CLAIMS) == ["data-web-0", "data-web-1"]
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}
        assert world.get(PODS, "web-1")["spec"]["volumes"] == [volume]
        before = world.get(PERSISTENT_VOLUME_CLAIMS, "data-web-1")["metadata"]["uid"]
        for replicas in (0, 2):
            world.change(STATEFUL_SETS, "web", spec={"replicas": replicas})
            await world.after(100)
        assert world.get(PERSISTENT_VOLUME_CLAIMS, "data-web-1")["metadata"]["uid"] == before
        assert world.names(PODS) == ["web-0", "web-1"]

    in_world(test)


def test_a_mount_names_a_volume_or_a_claim_template() -> None:
    async def test(world: World) -> None:
        with pytest.raises(StatusError, match=r'volumeMounts\[0\].name: Not found: "data"'):
            create(world, template=mounting("data"))

    in_world(test)


def test_an_update_replaces_from_the_last_to_the_first_one_at_a_time() -> None:
    async def test(world: World) -> None:
        create(world, replicas=3)
        await world.run_until_idle()
        first = status(world)["currentRevision"]
        world.change(STATEFUL_SETS, "web", spec=IMAGE_2)
        await world.after(35)
        assert images(world) == ["1", "2"] or images(world) == ["1", "1", "2"]
        assert (status(world)["currentRevision"], status(world)["updatedReplicas"]) == (first, 1)
        await world.after(100)
        assert images(world) == ["2", "2", "2"]
        assert order_of(world, "Delete") == ["web-2", "web-1", "web-0"]
        assert status(world)["currentRevision"] == status(world)["updateRevision"] != first

    in_world(test, stop_seconds=30)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param(
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, ["1", "1", "2"], id="partition"
        ),
        pytest.param({"type": "OnDelete"}, ["1", "1", "1"], id="only when they are deleted"),
    ],
)
def test_an_update_stops_at_the_partition_of_the_strategy(strategy: Content, expected: list[str]) -> None:
    async def test(world: World) -> None:
        create(world, replicas=3, updateStrategy=strategy)
        await world.run_until_idle()
        world.change(STATEFUL_SETS, "web", spec=IMAGE_2)
        await world.after(200)
        assert images(world) == expected

    in_world(test)


def test_a_pod_below_the_partition_comes_back_as_it_was() -> None:
    async def test(world: World) -> None:
        create(world, replicas=2, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})
        await world.run_until_idle()
        world.change(STATEFUL_SETS, "web", spec=IMAGE_2)
        await world.after(100)
        world.api.delete(PODS, "web-0", "default")
        await world.after(100)
        assert images(world) == ["1", "2"]

    in_world(test)
