"""Groups that cannot be completed release their nodes."""

from __future__ import annotations

import pytest

from bayplan.errors import ServerError
from bayplan.plugins.library.coscheduling import (
    BACKS_OFF,
    MAX_BACKOFF_SECONDS,
)
from bayplan.scheduler.loop import PODS_BETWEEN_YIELDS
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod, make_toleration

from .gangs import Breaks, after, gangs, make_group, make_member, make_members, make_without_claim, virtual


@virtual
async def test_a_group_that_cannot_be_completed_gives_back_at_once() -> None:
    """Not a moment passes between the rejection of one and the release of the others."""
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        assert (current_loop().time(), cluster.held) == (0, 0)


@virtual
async def test_members_that_come_too_late_are_not_tried_at_all() -> None:
    """Three of five are needed, and one fits. After the third rejection the last one is not evaluated."""
    async with gangs(make_node("n", cpu=1), make_group(), *make_members(5)) as cluster:
        reasons = [cluster.reason(f"g-{number}") for number in range(5)]
        assert [BACKS_OFF.format(name="g") in text for text in reasons] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("in_group", "seconds"),
    [
        pytest.param(7, 7, id="as long as that of the group"),
        pytest.param(None, 60, id="as long as that of the arguments"),
    ],
)
def test_waiting_ends(in_group: int | None, seconds: int) -> None:
    async def main() -> None:
        group = make_group(timeout=in_group)
        async with gangs(make_node("n"), group, *make_members(2), make_without_claim(2)) as cluster:
            await after(seconds - 0.1)
            assert cluster.held == 2
            await after(0.1)
            assert cluster.held == 0

    run_virtual(main())


@virtual
async def test_a_member_that_has_waited_too_long_does_not_count_until_it_is_tried_again() -> None:
    """Its nomination is written so slowly that it still has it when the others come for the second time."""
    async with gangs(make_node("n", cpu=5), make_group(timeout=3)) as cluster:
        cluster.announcing = {"g-0": 4, "g-1": 20}
        cluster.add(*make_members(2), make_without_claim(2))
        await after(5)
        cluster.remove("g-2")
        cluster.announcing.clear()
        cluster.add(make_member(3))
        await after(10)
        assert cluster.bound() == 0
        await after(20)
        assert (cluster.bound(), cluster.held) == (3, 0)


@virtual
async def test_a_member_that_has_waited_too_long_is_tried_again_in_a_complete_group() -> None:
    """Two of three are enough: when they are bound the first was rejected, but still has its node.

    Both status writes of the first take 20 seconds, and its binding waits for them.
    """
    async with gangs(make_node("n"), make_group(wanted=2, timeout=3)) as cluster:
        cluster.announcing = {"g-0": 20}
        cluster.add(make_member(0), make_without_claim(1))
        await after(5)
        cluster.add(make_member(2), make_member(3))
        await after(5)
        assert cluster.bound() == 2
        await after(35)
        assert (cluster.bound(), cluster.held) == (3, 0)


@virtual
async def test_a_deleted_member_releases_the_others() -> None:
    async with gangs(make_node("n"), make_group(), *make_members(2), make_without_claim(2)) as cluster:
        assert cluster.held == 2
        cluster.remove("g-0")
        await quiescent()
        assert cluster.held == 0


@virtual
async def test_a_preempted_member_releases_the_others() -> None:
    """They are not bound, so no pod has to be evicted; the group comes back when there is room."""
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(2), make_without_claim(2)) as cluster:
        assert cluster.held == 2
        cluster.add(make_pod("urgent", cpu="1", priority=10))
        await quiescent()
        assert (cluster.pod("urgent").spec.node_name, cluster.held) == ("n", 0)
        cluster.add(make_node("m"), make_member(3), make_member(4))
        await after(MAX_BACKOFF_SECONDS)
        assert cluster.bound() == 4


@virtual
async def test_a_failed_binding_is_repeated_alone() -> None:
    """The group had been allowed: the others stay, and the one comes back."""
    async with gangs(make_node("n"), make_group()) as cluster:
        cluster.api_errors.append(ServerError("not now"))
        cluster.add(*make_members(3))
        await quiescent()
        assert (cluster.bound(), cluster.held) == (2, 0)
        await after(5)
        assert cluster.bound() == 3


@virtual
async def test_a_group_is_tried_again_when_room_appears() -> None:
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        await after(300)
        cluster.add(make_node("m"))
        await after(2 * MAX_BACKOFF_SECONDS)
        assert cluster.bound() == 3


@virtual
async def test_a_group_that_does_not_fit_is_not_tried_all_the_time() -> None:
    """Its own release is an event that requeues the member that was rejected."""
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        await after(600)
        assert cluster.attempts < 150


@virtual
async def test_members_that_were_released_are_tried_once_the_group_is_complete() -> None:
    """One is enough. When its room is taken, the second is rejected and the third is not evaluated."""
    async with gangs(make_node("n", cpu=1), make_group(wanted=1), *make_members(3)) as cluster:
        cluster.remove("g-0")
        cluster.add(make_pod("urgent", cpu="1", priority=5))
        await quiescent()
        assert BACKS_OFF.format(name="g") in cluster.reason("g-2")
        cluster.add(make_node("m"))
        await after(5)
        assert cluster.bound() == 2


@virtual
async def test_members_that_were_released_do_not_depend_on_the_one_that_failed() -> None:
    """The first fails after it got its node, and is then deleted: no pod has been rejected."""
    async with gangs(make_node("n"), make_group(wanted=2)) as cluster:
        Breaks.names.add("g-0")
        cluster.add(*make_members(3))
        await quiescent()
        cluster.remove("g-0")
        await after(5)
        assert cluster.bound() == 2


@pytest.mark.parametrize(
    "rejected",
    [
        pytest.param(1, id="the only one that was rejected"),
        pytest.param(2, id="one of two that were rejected, and the group can do without the other"),
    ],
)
def test_members_that_were_released_when_others_bind_one_that_was_rejected(rejected: int) -> None:
    async def main() -> None:
        tolerant = make_member(9, tolerations=[make_toleration("k")])
        async with gangs(make_node("m", taints=["k:NoSchedule"]), make_group(wanted=2)) as cluster:
            cluster.add(*make_members(rejected), tolerant)
            await after(60)
            assert (BACKS_OFF.format(name="g") in cluster.reason("g-9"), cluster.bound()) == (True, 0)
            cluster.store.bind("g-0", "default", "m")
            await after(2 * MAX_BACKOFF_SECONDS)
            assert (cluster.bound(), cluster.pod("g-9").spec.node_name) == (2, "m")

    run_virtual(main())


@virtual
async def test_a_member_that_was_rejected_and_released_is_tried_again() -> None:
    """Room comes up for it just before another is rejected, which would not fit there."""
    async with gangs(
        make_node("n", cpu=1), make_pod("full", cpu="1", priority=3), make_group(wanted=1)
    ) as cluster:
        cluster.on_attempt["g-0"] = lambda: cluster.remove("full")
        between = [make_pod(f"p{number}", cpu="64", priority=1) for number in range(PODS_BETWEEN_YIELDS)]
        cluster.add(make_member(0, priority=2), *between, make_member(1, cpu="2"))
        await quiescent()
        assert BACKS_OFF.format(name="g") in cluster.reason("g-0")
        await after(MAX_BACKOFF_SECONDS)
        assert cluster.bound() == 1
