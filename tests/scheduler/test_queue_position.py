"""The position of members of a group in the queue."""

from __future__ import annotations

from bayplan.scheduler.queue_position import queue_position
from tests.scheduler.behaviour.running import running, virtual
from tests.scheduler.behaviour.test_groups import GROUPS, make_group, members, nodes


@virtual
async def test_members_wait_with_their_group() -> None:
    async with running(*nodes(1), make_group(min_count=3), release=GROUPS) as world:
        context = world.context
        await world.create(*members(2))
        gated = queue_position(context, "default/g-0")
        assert (gated["state"], gated["plugins"]) == ("gated", ["GangScheduling"])
        await world.create(*members(1, first=2))
        failed = queue_position(context, "default/g-2")
        assert (failed["state"], failed["group"], failed["attempts"]) == ("backoff", "default/g", 1)
        assert failed["members"] == ["default/g-0", "default/g-1", "default/g-2"]
        assert 0 < failed["secondsToNextAttempt"] <= 1
        await world.create(*members(1, group="absent"))
        assert queue_position(context, "default/absent-0")["state"] == "Incomplete"
