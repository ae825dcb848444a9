"""A PodGroup stays until its pods have ended."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.releases import V1_37
from bayplan.embedded.server.kinds import POD_GROUPS, PODS
from bayplan.embedded.server.preparation import GROUP_PROTECTION

from .world import World, in_world

RELEASE = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
GROUP = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}


def member(name: str, group: str = "g") -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": group}}
    return {"metadata": {"name": name}, "spec": spec}


def groups(world: World) -> list[str]:
    return [group["metadata"]["name"] for group in world.api.list(POD_GROUPS)]


@pytest.mark.parametrize(
    ("pods", "stays"),
    [
        pytest.param([], False, id="no pods"),
        pytest.param([member("a")], True, id="a member"),
        pytest.param([member("a", "other")], False, id="a pod of another group"),
    ],
)
def test_a_group_that_is_deleted(pods: list[dict[str, Any]], stays: bool) -> None:
    async def main(world: World) -> None:
        created = world.api.create(POD_GROUPS, GROUP, "default")
        assert created["metadata"]["finalizers"] == [GROUP_PROTECTION]
        for pod in pods:
            world.api.create(PODS, pod, "default")
        world.api.delete(POD_GROUPS, "g", "default")
        await world.run_until_idle()
        assert groups(world) == (["g"] if stays else [])

    in_world(main, nodes=1, release=RELEASE)


def test_a_group_goes_with_its_last_member() -> None:
    """One that ended counts no more, nor does one that is deleted."""

    async def main(world: World) -> None:
        world.api.create(POD_GROUPS, GROUP, "default")
        for name in ("a", "b"):
            world.api.create(PODS, member(name), "default")
        world.api.delete(POD_GROUPS, "g", "default")
        world.api.patch(PODS, "a", "default", {"status": {"phase": "Succeeded"}}, subresource="status")
        await world.run_until_idle()
        assert groups(world) == ["g"]
        world.api.patch(PODS, "b", "default", {"status": {"phase": "Failed"}}, subresource="status")
        await world.run_until_idle()
        assert groups(world) == []

    in_world(main, nodes=0, release=RELEASE)
