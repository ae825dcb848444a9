"""Every namespace has its ServiceAccount, and the CA with which pods would verify the API server."""

from __future__ import annotations

from bayplan.embedded.server.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from tests.embedded.controllers.world import World, in_world

ROOT_CA = "kube-root-ca.crt"


def test_namespaces_old_and_new_have_them() -> None:
    async def test(world: World) -> None:
        world.api.root_ca = "PEM"
        world.create(NAMESPACES, "shop")
        await world.run_until_idle()
        for namespace in ("default", "kube-system", "shop"):
            assert world.names(SERVICE_ACCOUNTS, namespace) == ["default"]
        assert world.get(CONFIG_MAPS, ROOT_CA, "shop")["data"] == {"ca.crt": "PEM"}

    in_world(test)


def test_they_come_back() -> None:
    """Deleted by mistake, or with another certificate in it."""

    async def test(world: World) -> None:
        world.api.root_ca = "PEM"
        world.create(NAMESPACES, "shop")
        await world.run_until_idle()
        world.api.delete(SERVICE_ACCOUNTS, "default", "shop")
        world.api.patch(CONFIG_MAPS, ROOT_CA, "shop", {"data": {"ca.crt": "another"}})
        await world.run_until_idle()
        assert world.names(SERVICE_ACCOUNTS, "shop") == ["default"]
        assert world.get(CONFIG_MAPS, ROOT_CA, "shop")["data"] == {"ca.crt": "PEM"}

    in_world(test)


def test_a_deleted_namespace_is_removed_with_them() -> None:
    async def test(world: World) -> None:
        world.api.root_ca = "PEM"
        world.create(NAMESPACES, "shop")
        await world.run_until_idle()
        world.api.delete(NAMESPACES, "shop")
        await world.after(3)
        assert "shop" not in world.names(NAMESPACES)
        assert world.names(SERVICE_ACCOUNTS, "shop") == []

    in_world(test)
