"""The places of pending pods in the process of a scheduler, members of pod groups included."""

from __future__ import annotations

from bayplan.ui.queue import places_in
from tests.scheduler.behaviour.running import virtual
from tests.scheduler.behaviour.test_groups import grouped, make_group, members, nodes


@virtual
async def test_members_have_the_place_of_their_group() -> None:
    """A gang that fits nowhere backs off; one that is too small is gated, and so is one without PodGroup."""
    async with grouped(*nodes(1)) as world:
        await world.create(make_group("large", 2), *members(2, "large", cpu="3"))
        await world.create(make_group("small", 3), *members(1, "small"), *members(1, "orphan"))
        places = {place.pod.name: (place.state, place.plugins) for place in places_in(world.context)}
    assert places == {
        "large-0": ("backoff", ("NodeResourcesFit",)),
        "large-1": ("backoff", ()),  # not tried: the group cannot be complete without the first
        "small-0": ("gated", ("GangScheduling",)),
        "orphan-0": ("gated", ("GangScheduling",)),
    }
