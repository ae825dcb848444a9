"""Permit of groups: a gang is never bound in part, whatever plugins say about single members."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.framework.status import Status, unschedulable

from .running import World, plugin, virtual
from .test_composite_groups import TREES, make_composite, part
from .test_groups import bound, condition, grouped, make_group, members, nodes

GANG = [make_group(min_count=3), *members(3)]
BY_SIBLING = (
    "pod group is unschedulable, pod default/{pod} was rejected after a node had been found for it: {why}"
)


class Guard:
    """A plugin that lets some pods wait and rejects others."""

    def __init__(self, *, waits: tuple[str, ...] = (), rejects: tuple[str, ...] = ()) -> None:
        self.waits, self.rejects = waits, rejects

    def plugins(self) -> list[type[Plugin]]:
        def permit(state: Any, pod: Pod, node_name: str) -> Status | Wait | None:
            if pod.name in self.rejects:
                return unschedulable("no badge")
            return Wait(60.0) if pod.name in self.waits else None

        return [plugin("Guard", permit=permit, events_to_register=list)]


def decide(world: World, name: str, *, allow: bool) -> None:
    waiting = world.context.waiting.get(world.pod(name).uid)
    assert waiting is not None
    if allow:
        waiting.allow("Guard")
    else:
        assert waiting.reject("Guard", "no badge")


@pytest.mark.parametrize("rejected", ["g-0", "g-1", "g-2"])
@virtual
async def test_if_permit_rejects_a_member_none_is_bound_until_it_does_not(rejected: str) -> None:
    guard = Guard(rejects=(rejected,))
    async with grouped(*nodes(2), plugins=guard.plugins()) as world:
        await world.create(*GANG)
        text = BY_SIBLING.format(pod=rejected, why="no badge")
        assert (bound(world), world.context.cache.assumed_count) == ([], 0)
        assert condition(world) == ("False", "Unschedulable", text)
        messages = {world.message(name) for name in ("g-0", "g-1", "g-2")}
        assert messages == {f"0/1 nodes are available: 1 {why}." for why in ("no badge", text)}
        guard.rejects = ()
        await world.after(10)
        assert bound(world) == ["g-0", "g-1", "g-2"]
        assert condition(world) == ("True", "Scheduled", "")


@virtual
async def test_members_wait_with_one_that_waits_at_permit() -> None:
    async with grouped(*nodes(2), plugins=Guard(waits=("g-0", "g-2")).plugins()) as world:
        await world.create(*GANG)
        decide(world, "g-0", allow=True)
        await world.after(5)
        assert (bound(world), condition(world)) == ([], None)
        decide(world, "g-2", allow=True)
        await world.after(0)
        assert bound(world) == ["g-0", "g-1", "g-2"]
        assert condition(world) == ("True", "Scheduled", "")


@pytest.mark.parametrize("deleted", [False, True], ids=["rejected", "deleted"])
@virtual
async def test_members_are_rejected_with_one_that_waits_at_permit(deleted: bool) -> None:
    async with grouped(*nodes(2), plugins=Guard(waits=("g-1",)).plugins()) as world:
        await world.create(*GANG)
        if deleted:
            await world.delete("g-1")
        else:
            decide(world, "g-1", allow=False)
            await world.after(0)
        assert (bound(world), world.context.cache.assumed_count, len(world.context.waiting)) == ([], 0, 0)
        why = "removed" if deleted else "no badge"
        assert condition(world) == ("False", "Unschedulable", BY_SIBLING.format(pod="g-1", why=why))


@virtual
async def test_members_that_are_enough_do_not_wait_for_others() -> None:
    async with grouped(*nodes(2), plugins=Guard(waits=("g-1",)).plugins()) as world:
        await world.create(make_group(min_count=2), *members(3))
        assert bound(world) == ["g-0", "g-2"]
        decide(world, "g-1", allow=False)
        await world.after(0)
        assert bound(world) == ["g-0", "g-2"]


@virtual
async def test_members_of_a_basic_group_do_not_wait_for_others() -> None:
    async with grouped(*nodes(2), plugins=Guard(waits=("g-0",), rejects=("g-1",)).plugins()) as world:
        await world.create(make_group(), *members(3))
        assert bound(world) == ["g-2"]


@virtual
async def test_groups_of_a_composite_group_are_rejected_together() -> None:
    async with grouped(*nodes(2), release=TREES, plugins=Guard(waits=("b-0",)).plugins()) as world:
        await world.create(make_composite(min_groups=2), part("a", 2), part("b", 2))
        await world.create(*members(2, "a"), *members(2, "b"))
        assert (bound(world), len(world.context.waiting)) == ([], 4)
        decide(world, "b-0", allow=False)
        await world.after(0)
        text = BY_SIBLING.format(pod="b-0", why="no badge")
        assert (bound(world), condition(world, "a"), condition(world, "b")) == (
            [],
            ("False", "Unschedulable", text),
            ("False", "Unschedulable", text),
        )


@virtual
async def test_a_profile_without_the_plugin_holds_no_member_back() -> None:
    config = "profiles: [{plugins: {multiPoint: {disabled: [{name: GangScheduling}]}}}]"
    async with grouped(*nodes(2), plugins=Guard(rejects=("g-1",)).plugins(), config=config) as world:
        await world.create(*GANG)
        assert bound(world) == ["g-0", "g-2"]
