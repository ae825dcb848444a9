"""ResourceQuotas: their status follows what is there."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.kinds import CONFIG_MAPS, PODS, REPLICA_SETS, RESOURCE_QUOTAS
from tests.embedded.controllers.world import World, in_world, workload

POD: Content = {"containers": [{"name": "c", "image": "web"}], "terminationGracePeriodSeconds": 0}


def status(world: World) -> Any:
    return world.get(RESOURCE_QUOTAS, "q").get("status")


def test_a_new_quota_counts_what_is_there() -> None:
    async def test(world: World) -> None:
        world.create(PODS, "a", POD)
        world.create(RESOURCE_QUOTAS, "q", {"hard": {"pods": "3"}})
        await world.after(1)
        assert status(world) == {"hard": {"pods": "3"}, "used": {"pods": "1"}}
        world.change(RESOURCE_QUOTAS, "q", spec={"hard": {"pods": "5"}})
        await world.after(1)
        assert status(world) == {"hard": {"pods": "5"}, "used": {"pods": "1"}}

    in_world(test)


def test_an_overwritten_status_is_replaced() -> None:
    """Within five minutes: the quota is counted again then."""

    async def test(world: World) -> None:
        world.create(RESOURCE_QUOTAS, "q", {"hard": {"pods": "3"}})
        await world.after(1)
        quota = world.get(RESOURCE_QUOTAS, "q")
        quota["status"] = {"hard": {"pods": "7"}, "used": {"pods": "7"}}
        world.api.update(RESOURCE_QUOTAS, quota, subresource="status")
        await world.after(10)
        assert status(world) == {"hard": {"pods": "7"}, "used": {"pods": "7"}}
        await world.after(300)
        assert status(world) == {"hard": {"pods": "3"}, "used": {"pods": "0"}}

    in_world(test)


def test_what_is_deleted_or_has_ended_is_not_charged_any_more() -> None:
    async def test(world: World) -> None:
        world.create(RESOURCE_QUOTAS, "q", {"hard": {"pods": "5", "count/pods": "5", "configmaps": "2"}})
        world.create(PODS, "stays", POD)
        world.create(PODS, "deleted", POD)
        short = {**POD, "restartPolicy": "Never"}
        world.create(PODS, "ends", short, annotations={"bayplan/run-seconds": "2"})
        world.create(CONFIG_MAPS, "settings")
        await world.after(1)
        assert status(world)["used"] == {"pods": "3", "count/pods": "3", "configmaps": "1"}
        world.api.delete(PODS, "deleted", "default")
        world.api.delete(CONFIG_MAPS, "settings", "default")
        await world.after(5)
        assert status(world)["used"] == {"pods": "1", "count/pods": "2", "configmaps": "0"}

    in_world(test)


def test_a_replica_set_makes_as_many_pods_as_the_quota_allows(caplog: pytest.LogCaptureFixture) -> None:
    """It reports what exceeds the quota, and continues when there is room. Neither is logged as an error."""

    async def test(world: World) -> None:
        world.create(RESOURCE_QUOTAS, "q", {"hard": {"pods": "2"}})
        await world.after(1)
        world.create(REPLICA_SETS, "web", workload(replicas=3))
        await world.after(5)
        assert len(world.pods()) == 2
        assert "exceeded quota: q" in world.events("web", "FailedCreate")[0]
        world.change(RESOURCE_QUOTAS, "q", spec={"hard": {"pods": "3"}})
        await world.after(600)
        assert len(world.pods()) == 3
        assert status(world)["used"] == {"pods": "3"}

    with caplog.at_level(logging.ERROR):
        in_world(test)
    assert caplog.messages == []
