"""Room for the replacement of a pod that is about to be evicted: it gets the node, and nobody else does."""

from __future__ import annotations

from bayplan.api.pod import Pod
from bayplan.scheduler.reservations import Reservations
from bayplan.testing.builders import make_node, make_owner, make_pod

from .running import running, virtual

OLD, GOOD, BETTER = make_node("old", cpu="2"), make_node("good", cpu="2"), make_node("better", cpu="4")


def replica(name: str, node: str = "") -> Pod:
    return make_pod(name, cpu="2", node=node, owner=make_owner("ReplicaSet", "web"), uid=name)


@virtual
async def test_the_replacement_gets_the_node_even_if_another_has_a_higher_score() -> None:
    async with running(OLD, GOOD, BETTER, replica("w1", "old")) as world:
        Reservations(world.scheduler).reserve(world.pod("w1"), "good")
        await world.create(replica("w2"))
        assert world.node_of("w2") == "good"


@virtual
async def test_others_do_not_take_the_room_until_it_is_released() -> None:
    async with running(OLD, GOOD, replica("w1", "old")) as world:
        reservations = Reservations(world.scheduler)
        reservations.reserve(world.pod("w1"), "good")
        await world.create(make_pod("rival", cpu="2"))
        assert world.node_of("rival") == ""
        reservations.release(world.pod("w1"))
        await world.after(30)
        assert world.node_of("rival") == "good"


@virtual
async def test_the_room_goes_to_the_replacement_and_not_to_a_pod_that_came_first() -> None:
    async with running(OLD, GOOD, replica("w1", "old")) as world:
        Reservations(world.scheduler).reserve(world.pod("w1"), "good")
        await world.create(make_pod("rival", cpu="2"))
        await world.create(replica("w2"))
        await world.after(60)
        assert (world.node_of("w2"), world.node_of("rival")) == ("good", "")


@virtual
async def test_a_replacement_that_does_not_fit_any_more_gets_another_node() -> None:
    async with running(OLD, GOOD, BETTER, replica("w1", "old")) as world:
        Reservations(world.scheduler).reserve(world.pod("w1"), "good")
        await world.create(make_pod("bound-by-someone-else", cpu="2", node="good"))
        await world.create(replica("w2"))
        await world.after(60)
        assert world.node_of("w2") == "better"
