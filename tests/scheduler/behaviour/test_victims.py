"""The victims of a preemption: they are marked, deleted and reported."""

from __future__ import annotations

import pytest

from bayplan.api.meta import Condition
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.testing.builders import make_node, make_pod

from .preempting import FOUND, MARK, MESSAGE, NO_ROOM, NODE, preemptor, victim
from .running import Answer, running, virtual


@virtual
async def test_a_victim_is_marked_then_deleted_then_reported_and_the_room_is_taken() -> None:
    async with running(NODE, victim()) as world:
        await world.create(preemptor())
        assert world.cluster.writes == [
            ("patch", "victim"),
            ("delete", "victim"),
            ("patch", "p"),
            ("bind", "p"),
        ]
        assert world.events("victim") == [("Preempted", MESSAGE.format(world.pod("p").uid))]
        assert world.names() == ["p"]
        assert world.node_of("p") == "n"


@virtual
async def test_while_the_victim_terminates_the_pod_is_nominated() -> None:
    async with running(NODE, victim(), kubelet=end_after_grace_period) as world:
        await world.create(preemptor())
        assert world.condition("victim", "DisruptionTarget") == MARK
        assert world.pod("victim").is_terminating
        assert world.condition("p") == ("False", "Unschedulable", f"{NO_ROOM} {FOUND}")
        assert world.nominated("p") == "n"
        await world.after(29)
        assert world.node_of("p") == ""
        await world.after(1)
        assert (world.node_of("p"), world.nominated("p")) == ("n", "")


@virtual
async def test_nominated_room_is_not_given_to_pods_of_lower_priority() -> None:
    async with running(NODE, victim(), kubelet=end_after_grace_period) as world:
        await world.create(preemptor(), make_pod("later", cpu="2", priority=8))
        await world.after(60)
        assert world.node_of("p") == "n"
        assert world.node_of("later") == ""


@virtual
async def test_nominated_room_may_be_taken_by_a_pod_of_higher_priority() -> None:
    async with running(NODE, victim(), kubelet=end_after_grace_period) as world:
        await world.create(preemptor())
        await world.create(preemptor("boss", priority=99))
        await world.after(60)
        assert (world.node_of("boss"), world.node_of("p")) == ("n", "")
        assert world.cluster.written("delete") == ["victim"]


@virtual
async def test_room_that_is_being_made_is_not_made_twice() -> None:
    """Tried again before the victim has ended, the pod may not evict another pod."""
    nodes = [NODE, make_node("m", cpu="4")]
    other = make_pod("other", cpu="3", node="m", priority=5)
    async with running(*nodes, victim(), other, kubelet=end_after_grace_period) as world:
        await world.create(preemptor())
        world.context.queue.activate([world.pod("p")])
        world.context.wake()
        await world.after(0)
        assert world.attempts("p") == 2
        assert world.message("p").endswith(
            "preemption: not eligible due to a terminating pod on the nominated node."
        )
        assert world.nominated("p") == "n"
        assert world.cluster.written("delete") == ["victim"]
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_all_victims_but_the_last_are_deleted_at_once_and_the_last_at_the_end() -> None:
    victims = [
        victim(name, cpu="1", priority=priority) for name, priority in zip("abc", (3, 2, 1), strict=True)
    ]
    async with running(NODE, *victims) as world:
        for _ in victims:
            world.cluster.will_answer("delete", Answer(seconds=5))
        await world.create(preemptor(cpu="4"))
        assert world.cluster.written("delete") == ["a", "b"]
        await world.after(5)
        assert world.cluster.written("delete") == ["a", "b", "c"]
        assert world.node_of("p") == ""
        await world.after(5)
        assert world.node_of("p") == "n"


@virtual
async def test_where_one_victim_stays_the_last_one_is_spared_and_the_pod_tried_again() -> None:
    victims = [victim("a", cpu="2", priority=2), victim("b", cpu="2", priority=1)]
    async with running(NODE, *victims) as world:
        world.cluster.will_answer("delete", Answer(ConflictError("no"), seconds=5))
        await world.create(preemptor(cpu="4"))
        await world.after(4)
        assert world.attempts("p") == 1
        await world.after(1)
        assert world.attempts("p") > 1
        assert world.cluster.written("delete")[:2] == ["a", "a"]
        assert world.node_of("p") == "n"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConflictError("409"), id="409"),
        pytest.param(ServerError("500"), id="500"),
        pytest.param(APIError("403", 403), id="403"),
    ],
)
@virtual
async def test_where_the_victim_cannot_be_deleted_the_pod_is_tried_again(error: APIError) -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("delete", Answer(error, seconds=1))
        await world.create(preemptor())
        await world.after(1)
        assert world.names() == ["p"]
        assert world.node_of("p") == "n"
        assert [note for _, note in world.events("victim")] == [MESSAGE.format(world.pod("p").uid)]


@virtual
async def test_a_victim_that_is_marked_already_is_not_marked_again() -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("delete", Answer(ConflictError("409"), seconds=1))
        await world.create(preemptor())
        await world.after(5)
        assert world.cluster.written("delete") == ["victim", "victim"]
        assert world.cluster.written("patch").count("victim") == 1


@virtual
async def test_a_victim_that_cannot_be_marked_is_not_deleted() -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("patch", APIError("403: you may not", 403))
        await world.create(preemptor())
        assert world.cluster.writes[:2] == [("patch", "victim"), ("patch", "p")]
        await world.after(5)
        assert world.node_of("p") == "n"


@pytest.mark.parametrize("verb", ["patch", "delete"], ids=["when marked", "when deleted"])
@virtual
async def test_a_victim_that_is_deleted_already_has_no_event(verb: str) -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer(verb, NotFoundError("no such pod"))
        await world.create(preemptor())
        assert world.events("victim") == []
        await world.delete("victim")
        assert world.node_of("p") == "n"


@virtual
async def test_a_pod_that_has_taken_the_name_of_a_victim_is_not_evicted_in_its_place() -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("patch", Answer(seconds=1))
        await world.create(preemptor())
        await world.delete("victim")
        await world.create(make_pod("victim", cpu="3"))
        await world.after(5)
        assert world.node_of("p") == "n"
        assert (world.names(), world.condition("victim", "DisruptionTarget")) == (["p", "victim"], None)


@virtual
async def test_a_victim_that_is_ending_anyway_is_waited_for_and_not_evicted() -> None:
    async with running(NODE, victim(), kubelet=end_after_grace_period) as world:
        await world.delete("victim")
        await world.create(preemptor())
        assert world.cluster.writes == [("patch", "p")]
        assert world.condition("victim", "DisruptionTarget") is None
        assert world.nominated("p") == "n"
        assert world.context.queue.nominations.preemptions == {}
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_of_several_victims_those_that_are_ending_anyway_are_left_alone() -> None:
    victims = [victim("a", cpu="2"), victim("b", cpu="2")]
    async with running(NODE, *victims, kubelet=end_after_grace_period) as world:
        await world.delete("a")
        await world.create(preemptor(cpu="4"))
        assert world.cluster.written("delete") == ["b"]


@virtual
async def test_a_victim_that_was_marked_by_another_client_is_marked_again() -> None:
    mark = Condition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI", message="drain")
    async with running(NODE, victim(conditions=[mark]), kubelet=end_after_grace_period) as world:
        await world.create(preemptor())
        assert world.condition("victim", "DisruptionTarget") == MARK


@virtual
async def test_events_of_victims_name_the_profile_of_the_preemptor() -> None:
    config = "profiles: [{schedulerName: default-scheduler}, {schedulerName: mine}]"
    async with running(NODE, victim(), config=config, kubelet=end_after_grace_period) as world:
        await world.create(preemptor(scheduler_name="mine"))
        assert world.condition("victim", "DisruptionTarget") == (
            "True",
            "PreemptionByScheduler",
            "mine: preempting to accommodate a higher priority pod",
        )


@virtual
async def test_a_victim_of_another_scheduler_is_evicted_like_any_other() -> None:
    async with running(NODE, victim(scheduler_name="other")) as world:
        await world.create(preemptor())
        assert world.names() == ["p"]
