"""Claims and volumes: which are bound, which are provisioned, and what is left when a claim is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.kinds import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from tests.embedded.controllers.world import World, in_world, template


def claim(world: World, storage_class: str | None = "", size: str = "5Gi", **more: Any) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **more}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    world.create(PERSISTENT_VOLUME_CLAIMS, "data", spec)


def volume(world: World, name: str, size: str = "10Gi", labels: Content | None = None, **more: Any) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "hostPath": {"path": f"/disks/{name}"},
        **more,
    }
    world.create(PERSISTENT_VOLUMES, name, spec, labels=labels or {})


def storage_class(world: World, mode: str = "Immediate", **more: Any) -> None:
    content = {
        "metadata": {"name": "fast"},
        "provisioner": "disks.example",
        "volumeBindingMode": mode,
        **more,
    }
    world.api.create(STORAGE_CLASSES, content)


def phase(world: World, name: str) -> str:
    return str(world.get(PERSISTENT_VOLUMES, name)["status"]["phase"])


def bound_to(world: World) -> str | None:
    found = world.get(PERSISTENT_VOLUME_CLAIMS, "data")
    if found["status"]["phase"] != "Bound":
        return None
    assert found["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    name = str(found["spec"]["volumeName"])
    reference = world.get(PERSISTENT_VOLUMES, name)["spec"]["claimRef"]
    assert (reference["name"], reference["uid"]) == ("data", found["metadata"]["uid"])
    assert phase(world, name) == "Bound"
    assert found["status"]["capacity"] == world.get(PERSISTENT_VOLUMES, name)["spec"]["capacity"]
    return name


@pytest.mark.parametrize(
    ("wanted", "volumes", "expected"),
    [
        pytest.param(
            {}, {"big": {"size": "50Gi"}, "right": {"size": "6Gi"}}, "right", id="the smallest that fits"
        ),
        pytest.param({}, {"small": {"size": "4Gi"}}, None, id="none that is too small"),
        pytest.param({}, {"v": {"storageClassName": "slow"}}, None, id="none of another class"),
        pytest.param({}, {"v": {"accessModes": ["ReadOnlyMany"]}}, None, id="none with other access modes"),
        pytest.param({}, {"v": {"volumeMode": "Block"}}, None, id="none of another mode"),
        pytest.param(
            {"selector": {"matchLabels": {"tier": "gold"}}},
            {"a": {}, "b": {"labels": {"tier": "gold"}}},
            "b",
            id="one that the selector matches",
        ),
        pytest.param({"volumeName": "b"}, {"a": {}, "b": {}}, "b", id="the one that the claim names"),
        pytest.param(
            {},
            {"a": {"size": "6Gi"}, "b": {"claimRef": {"namespace": "default", "name": "data"}}},
            "b",
            id="the one that names the claim",
        ),
        pytest.param(
            {},
            {"a": {"claimRef": {"namespace": "default", "name": "other"}}},
            None,
            id="none that is kept for another",
        ),
    ],
)
@pytest.mark.parametrize("claim_first", [True, False])
def test_a_claim_gets_a_volume_that_is_there(
    wanted: Content, volumes: dict[str, Content], expected: str | None, claim_first: bool
) -> None:
    async def test(world: World) -> None:
        if claim_first and len(volumes) == 1:
            claim(world, **wanted)
            await world.run_until_idle()
        for name, spec in volumes.items():
            volume(world, name, **spec)
        if not (claim_first and len(volumes) == 1):
            claim(world, **wanted)
        await world.run_until_idle()
        assert bound_to(world) == expected
        for name, spec in volumes.items():
            assert phase(world, name) == ("Bound" if name == expected else "Available"), spec

    in_world(test)


def test_a_claim_of_a_class_that_binds_at_once_gets_a_new_volume() -> None:
    async def test(world: World) -> None:
        storage_class(world, reclaimPolicy="Retain")
        claim(world, "fast")
        await world.run_until_idle()
        name = bound_to(world)
        assert name == f"pvc-{world.get(PERSISTENT_VOLUME_CLAIMS, 'data')['metadata']['uid']}"
        spec = world.get(PERSISTENT_VOLUMES, name)["spec"]
        assert spec["capacity"] == {"storage": "5Gi"}
        assert spec["csi"]["driver"] == "disks.example"
        assert (spec["storageClassName"], spec["persistentVolumeReclaimPolicy"]) == ("fast", "Retain")
        assert "nodeAffinity" not in spec
        assert world.events("data", "ProvisioningSucceeded") == [f"Successfully provisioned volume {name}"]

    in_world(test)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, ("topology.kubernetes.io/zone", "sim-b"), id="the zone of the node"),
        pytest.param(
            {"parameters": {"bayplan/topology": "kubernetes.io/hostname"}},
            ("kubernetes.io/hostname", "n02"),
            id="the node itself, if the class sets it",
        ),
        pytest.param(
            {
                "allowedTopologies": [
                    {"matchLabelExpressions": [{"key": "topology.kubernetes.io/region", "values": ["sim"]}]}
                ]
            },
            ("topology.kubernetes.io/region", "sim"),
            id="the keys of the allowed topologies",
        ),
    ],
)
def test_a_claim_that_waits_gets_a_volume_on_the_node_that_the_scheduler_selected(
    more: Content, expected: tuple[str, str]
) -> None:
    async def test(world: World) -> None:
        storage_class(world, "WaitForFirstConsumer", **more)
        claim(world, "fast")
        await world.after(600)
        assert bound_to(world) is None
        messages = world.events("data", "WaitForFirstConsumer")
        assert messages == ["waiting for first consumer to be created before binding"]
        note = {"volume.kubernetes.io/selected-node": "n02"}
        world.change(PERSISTENT_VOLUME_CLAIMS, "data", metadata={"annotations": note})
        await world.run_until_idle()
        name = bound_to(world)
        assert name is not None
        required = world.get(PERSISTENT_VOLUMES, name)["spec"]["nodeAffinity"]["required"]
        ((requirement,),) = (term["matchExpressions"] for term in required["nodeSelectorTerms"])
        assert (requirement["key"], requirement["values"]) == (expected[0], [expected[1]])

    in_world(test)


def test_a_node_that_was_deleted_after_it_was_selected_is_unselected() -> None:
    async def test(world: World) -> None:
        storage_class(world, "WaitForFirstConsumer")
        claim(world, "fast")
        world.api.delete(NODES, "n02")
        note = {"volume.kubernetes.io/selected-node": "n02"}
        world.change(PERSISTENT_VOLUME_CLAIMS, "data", metadata={"annotations": note})
        await world.run_until_idle()
        found = world.get(PERSISTENT_VOLUME_CLAIMS, "data")
        assert "volume.kubernetes.io/selected-node" not in found["metadata"].get("annotations", {})
        assert found["status"]["phase"] == "Pending"

    in_world(test)


@pytest.mark.parametrize(
    ("name", "reason", "text"),
    [
        pytest.param("", "FailedBinding", "no persistent volumes available", id="no class and no volume"),
        pytest.param("unknown", "ProvisioningFailed", "not found", id="a class that does not exist"),
    ],
)
def test_a_claim_without_a_volume_has_an_event_and_gets_one_later(name: str, reason: str, text: str) -> None:
    async def test(world: World) -> None:
        claim(world, name)
        await world.run_until_idle()
        assert bound_to(world) is None
        assert text in world.events("data", reason)[0]
        volume(world, "late", storageClassName=name)
        await world.run_until_idle()
        assert bound_to(world) == "late"

    in_world(test)


@pytest.mark.parametrize(("policy", "left"), [("Delete", []), ("Retain", ["v"])])
def test_what_becomes_of_the_volume_of_a_claim_that_is_deleted(policy: str, left: list[str]) -> None:
    async def test(world: World) -> None:
        volume(world, "v", persistentVolumeReclaimPolicy=policy)
        claim(world)
        await world.run_until_idle()
        world.api.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        await world.run_until_idle()
        assert world.names(PERSISTENT_VOLUMES) == left
        if left:
            assert phase(world, "v") == "Released"
            claim(world)
            await world.run_until_idle()
            assert bound_to(world) is None  # an administrator has to clean it first

    in_world(test)


def test_the_claim_of_an_ephemeral_volume_is_created_and_deleted_with_its_pod() -> None:
    async def test(world: World) -> None:
        storage_class(world)
        size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
        wanted = {"metadata": {"labels": {"a": "b"}}, "spec": {**size, "storageClassName": "fast"}}
        volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": wanted}}]
        world.create(PODS, "p", template(volumes=volumes, terminationGracePeriodSeconds=0)["spec"])
        await world.run_until_idle()
        found = world.get(PERSISTENT_VOLUME_CLAIMS, "p-scratch")
        assert (found["status"]["phase"], found["metadata"]["labels"]) == ("Bound", {"a": "b"})
        world.api.delete(PODS, "p", "default")
        await world.run_until_idle()
        assert world.names(PERSISTENT_VOLUME_CLAIMS) == world.names(PERSISTENT_VOLUMES) == []

    in_world(test)


def test_a_claim_in_use_is_kept_until_its_pod_is_deleted() -> None:
    async def test(world: World) -> None:
        size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
        for name in ("used", "free"):
            world.create(PERSISTENT_VOLUME_CLAIMS, name, size)
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "used"}}
        world.create(PODS, "p", {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]})
        await world.run_until_idle()
        for name in ("used", "free"):
            world.api.delete(PERSISTENT_VOLUME_CLAIMS, name, "default")
        await world.after(5)
        assert world.names(PERSISTENT_VOLUME_CLAIMS) == ["used"]
        world.api.delete(PODS, "p", "default")
        await world.after(5)
        assert world.names(PERSISTENT_VOLUME_CLAIMS) == []

    in_world(test)
