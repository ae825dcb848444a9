"""A pod that preempts: it waits for its victims, is scheduled there, or tries again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError
from bayplan.plugins.default_preemption import DefaultPreemption
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.testing.builders import make_node, make_pod

from .preempting import NO_ROOM, NODE, preemptor, victim
from .running import Answer, running, virtual


@virtual
async def test_it_is_gated_while_its_victims_are_being_evicted() -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("delete", Answer(seconds=10))
        await world.create(preemptor())
        await world.create(make_node("m", cpu="1"), make_node("o", cpu="3", labels={"a": "b"}))
        await world.update_node(make_node("o", cpu="3", labels={"a": "b"}, taints=["x:NoSchedule"]))
        counts = world.context.queue.counts()
        assert (world.attempts("p"), counts.gated, counts.backoff + counts.active) == (1, 1, 0)
        await world.after(10)
        assert world.node_of("p") == "n"
        assert world.context.queue.nominations.preemptions == {}


@virtual
async def test_it_enters_the_queue_as_soon_as_the_last_victim_is_terminating() -> None:
    """Although the answer to the eviction is still on its way."""
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("delete", Answer(seconds=10, done=True))
        await world.create(preemptor())
        assert world.node_of("p") == "n"


@virtual
async def test_it_enters_the_queue_at_the_end_if_the_last_victim_was_deleted_before() -> None:
    """Its deletion would have requeued the preemptor, had it not still been gated."""
    victims = [victim("first", cpu="2", priority=2), victim("last", cpu="2", priority=1)]
    async with running(NODE, *victims) as world:
        world.cluster.will_answer("delete", Answer(seconds=5, done=True))
        await world.create(preemptor(cpu="4"))
        await world.delete("last")
        assert (world.names(), world.node_of("p")) == (["p"], "")
        await world.after(5)
        assert world.node_of("p") == "n"


@pytest.mark.parametrize("victims", [1, 3])
@virtual
async def test_pre_enqueue_is_not_run_for_the_victims_of_other_preemptors(
    victims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a deleted victim does not grow with the number of pods that wait for other victims."""
    many, calls = 12, Counter[str]()
    pre_enqueue = DefaultPreemption.pre_enqueue

    def counting(self: DefaultPreemption, pod: Pod) -> Any:
        calls[pod.name] += 1
        return pre_enqueue(self, pod)

    monkeypatch.setattr(DefaultPreemption, "pre_enqueue", counting)
    nodes = [make_node(f"n{number}", cpu="3") for number in range(many)]
    there = [
        make_pod(f"v{number}-{which}", cpu=3 // victims, node=f"n{number}", priority=0)
        for number in range(many)
        for which in range(victims)
    ]
    async with running(*nodes, *there) as world:
        for number in range(many * victims):
            world.cluster.will_answer("delete", Answer(seconds=1 + number))
        await world.create(*(preemptor(f"p{number}") for number in range(many)))
        await world.after(200)
        assert {world.node_of(f"p{number}") for number in range(many)} == {node.name for node in nodes}
        assert world.context.queue.nominations.last_victims == {}
    assert max(calls.values()) <= 7


@virtual
async def test_nominations_of_lower_priority_on_that_node_are_cleared() -> None:
    async with running(NODE, victim(), kubelet=end_after_grace_period) as world:
        await world.create(preemptor("low", cpu="1", priority=5))
        await world.create(preemptor("middle", cpu="2", priority=7))
        assert (world.nominated("low"), world.nominated("middle")) == ("", "n")
        await world.create(victim("tiny", cpu="1", priority=0))
        await world.create(preemptor("high", cpu="4", priority=9))
        assert (world.nominated("middle"), world.nominated("high")) == ("", "n")


@virtual
async def test_nominations_that_cannot_be_cleared_have_it_tried_again() -> None:
    async with running(NODE, victim(), victim("tiny", cpu="1"), kubelet=end_after_grace_period) as world:
        await world.create(preemptor("low", cpu="3", priority=5))
        assert world.nominated("low") == "n"
        world.cluster.will_answer("patch", APIError("403: you may not", 403))
        await world.create(preemptor("high", cpu="4", priority=9))
        assert world.attempts("high") == 2
        assert world.cluster.written("delete")[:2] == ["victim", "tiny"]
        await world.after(31)
        assert world.node_of("high") == "n"


@virtual
async def test_a_preemptor_that_is_deleted_meanwhile_leaves_the_room_to_others() -> None:
    async with running(NODE, victim(), kubelet=end_after_grace_period) as world:
        await world.create(preemptor())
        await world.create(make_pod("q", cpu="3", priority=-1))
        await world.delete("p")
        await world.after(30)
        assert world.node_of("q") == "n"
        assert len(world.context.queue.nominations.nodes) == 0


@virtual
async def test_a_preemptor_that_is_deleted_while_its_victim_is_being_evicted_leaves_nothing_behind() -> None:
    async with running(NODE, victim()) as world:
        world.cluster.will_answer("delete", Answer(ConflictError("no"), seconds=5))
        await world.create(preemptor())
        await world.delete("p")
        await world.after(10)
        assert world.context.queue.nominations.preemptions == {}
        assert world.sub_queue("p") == ""
        assert world.names() == ["victim"]


@virtual
async def test_pods_that_may_not_preempt_evict_no_pod() -> None:
    async with running(NODE, victim()) as world:
        await world.create(preemptor(preemption_policy="Never"))
        assert world.message("p") == (f"{NO_ROOM} preemption: not eligible due to preemptionPolicy=Never.")
        assert world.names() == ["p", "victim"]
