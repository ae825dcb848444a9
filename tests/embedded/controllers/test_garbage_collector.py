"""Garbage collection and the deletion of namespaces: what is deleted with what, and when."""

from __future__ import annotations

import pytest

from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SECRETS,
)
from bayplan.embedded.server.statuses import StatusError
from tests.embedded.controllers.world import World, in_world, template, workload


def owner(world: World, name: str, *, blocks: bool = False) -> dict[str, object]:
    content = world.get(CONFIG_MAPS, name)
    meta = content["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
    return {**reference, "blockOwnerDeletion": True} if blocks else reference


@pytest.mark.parametrize("propagation", [None, "Background", "Foreground"])
def test_all_that_a_deployment_made_is_deleted_with_it(propagation: str | None) -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=3))
        await world.run_until_idle()
        world.api.delete(DEPLOYMENTS, "web", "default", DeleteOptions(propagation=propagation))
        await world.run_until_idle()
        assert (world.names(DEPLOYMENTS) == ["web"]) is (propagation == "Foreground")
        await world.after(31)
        assert (world.names(DEPLOYMENTS), world.names(REPLICA_SETS), world.names(PODS)) == ([], [], [])

    in_world(test)


def test_orphans_stay_and_a_new_deployment_of_the_kind_takes_them_over() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=2))
        await world.run_until_idle()
        pods, sets = world.names(PODS), world.names(REPLICA_SETS)
        world.api.delete(DEPLOYMENTS, "web", "default", DeleteOptions(propagation="Orphan"))
        await world.run_until_idle()
        assert world.names(DEPLOYMENTS) == []
        assert world.names(PODS) == pods
        world.create(DEPLOYMENTS, "web", workload(replicas=2))
        await world.run_until_idle()
        assert (world.names(PODS), world.names(REPLICA_SETS)) == (pods, sets)

    in_world(test)


def test_an_object_with_two_owners_stays_until_both_are_gone() -> None:
    async def test(world: World) -> None:
        for name in ("first", "second"):
            world.create(CONFIG_MAPS, name)
        owners = [owner(world, "first"), owner(world, "second")]
        world.create(SECRETS, "child", ownerReferences=owners)
        await world.run_until_idle()
        world.api.delete(CONFIG_MAPS, "first", "default")
        await world.run_until_idle()
        (left,) = world.get(SECRETS, "child")["metadata"]["ownerReferences"]
        assert left["name"] == "second"
        world.api.delete(CONFIG_MAPS, "second", "default")
        await world.run_until_idle()
        assert world.names(SECRETS) == []

    in_world(test)


@pytest.mark.parametrize("blocks", [True, False])
def test_in_the_foreground_the_owner_waits_for_those_that_block_it(blocks: bool) -> None:
    async def test(world: World) -> None:
        world.create(CONFIG_MAPS, "parent")
        reference = owner(world, "parent", blocks=blocks)
        world.create(SECRETS, "child", ownerReferences=[reference], finalizers=["example.com/wait"])
        await world.run_until_idle()
        world.api.delete(CONFIG_MAPS, "parent", "default", DeleteOptions(propagation="Foreground"))
        await world.run_until_idle()
        assert ("parent" in world.names(CONFIG_MAPS)) is blocks
        world.change(SECRETS, "child", metadata={"finalizers": None})
        await world.run_until_idle()
        assert world.names(SECRETS) == []
        assert "parent" not in world.names(CONFIG_MAPS)

    in_world(test)


@pytest.mark.parametrize(
    ("uid", "kind", "stays"),
    [
        pytest.param("gone", "ConfigMap", False, id="an owner that was never there, or another of its name"),
        pytest.param("gone", "Unknown", True, id="an owner of a kind that is not served"),
    ],
)
def test_an_object_is_created_whose_owner_is_not_there(uid: str, kind: str, stays: bool) -> None:
    async def test(world: World) -> None:
        reference = {"apiVersion": "v1", "kind": kind, "name": "parent", "uid": uid}
        world.create(CONFIG_MAPS, "parent")
        world.create(SECRETS, "child", ownerReferences=[reference])
        await world.run_until_idle()
        assert world.names(SECRETS) == (["child"] if stays else [])

    in_world(test)


def test_custom_resources_can_own_and_be_owned_also_after_their_definition_was_replaced() -> None:
    async def test(world: World) -> None:
        names = {"plural": "gangs", "kind": "Gang", "singular": "gang"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]}
        for _ in range(2):
            world.create(CUSTOM_RESOURCE_DEFINITIONS, "gangs.x.io", spec)
            gangs = world.api.catalog.of_kind("x.io/v1", "Gang")
            for name in ("one", "two"):
                uid = world.create(gangs, name)["metadata"]["uid"]
                reference = {"apiVersion": "x.io/v1", "kind": "Gang", "name": name, "uid": uid}
                world.create(SECRETS, f"child-of-{name}", ownerReferences=[reference])
            await world.run_until_idle()
            world.api.delete(gangs, "one", "default")
            await world.run_until_idle()
            assert world.names(SECRETS) == ["child-of-two"]
            world.api.delete(CUSTOM_RESOURCE_DEFINITIONS, "gangs.x.io")
            await world.run_until_idle()
            # Its owner was deleted with the definition. Of a kind that is not served this is unknown.
            world.api.delete(SECRETS, "child-of-two", "default")

    in_world(test)


def test_a_namespace_is_deleted_when_everything_in_it_is_gone() -> None:
    async def test(world: World) -> None:
        world.create(NAMESPACES, "shop")
        world.api.create(PODS, {"metadata": {"name": "p"}, "spec": template()["spec"]}, "shop")
        world.api.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": workload(replicas=2)}, "shop")
        await world.run_until_idle()
        world.api.delete(NAMESPACES, "shop")
        await world.run_until_idle()
        status = world.get(NAMESPACES, "shop")["status"]
        assert status["phase"] == "Terminating"
        problems = {one["type"]: one["message"] for one in status["conditions"] if one["status"] == "True"}
        assert problems == {
            "NamespaceContentRemaining": "Some resources are remaining: pods. has 3 resource instances"
        }
        assert "NamespaceDeletionContentFailure" in {one["type"] for one in status["conditions"]}
        assert world.names(DEPLOYMENTS, "shop") == ["web"]  # it stays until the pods are gone
        with pytest.raises(StatusError, match="being terminated"):
            world.api.create(CONFIG_MAPS, {"metadata": {"name": "late"}}, "shop")
        await world.after(32)
        assert "shop" not in world.names(NAMESPACES)
        assert world.names(PODS, "shop") == world.names(EVENTS, "shop") == []

    in_world(test)


def test_a_namespace_with_more_than_is_deleted_at_once_is_deleted_too() -> None:
    async def test(world: World) -> None:
        world.create(NAMESPACES, "shop")
        for number in range(1300):
            world.api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "shop")
        world.api.delete(NAMESPACES, "shop")
        await world.run_until_idle()
        assert "shop" not in world.names(NAMESPACES)

    in_world(test)


def test_a_circle_of_owners_is_deleted_in_the_foreground() -> None:
    async def test(world: World) -> None:
        for name in ("a", "b", "c"):
            world.create(CONFIG_MAPS, name)
        for name, of in (("a", "c"), ("b", "a"), ("c", "b")):
            references = [owner(world, of, blocks=True)]
            world.change(CONFIG_MAPS, name, metadata={"ownerReferences": references})
        await world.run_until_idle()
        world.api.delete(CONFIG_MAPS, "a", "default", DeleteOptions(propagation="Foreground"))
        await world.after(5)
        assert not {"a", "b", "c"} & set(world.names(CONFIG_MAPS, "default"))

    in_world(test)


def test_the_pods_of_a_namespace_are_deleted_first() -> None:
    async def test(world: World) -> None:
        world.create(NAMESPACES, "shop")
        world.api.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "shop")
        pod = {"metadata": {"name": "p", "finalizers": ["example.com/wait"]}, "spec": template()["spec"]}
        world.api.create(PODS, pod, "shop")
        await world.run_until_idle()
        world.api.delete(NAMESPACES, "shop")
        await world.after(60)
        assert "c" in world.names(CONFIG_MAPS, "shop")
        world.api.patch(PODS, "p", "shop", {"metadata": {"finalizers": None}})
        await world.after(5)
        assert "shop" not in world.names(NAMESPACES)

    in_world(test)
