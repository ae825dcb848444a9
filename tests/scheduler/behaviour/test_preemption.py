"""Preemption carried out: victims are deleted, and the preemptor is scheduled there or tries again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.memory_api.kubelet import end_after_grace_period
from bayplan.metrics import SchedulerMetrics
from bayplan.plugins.default_preemption import DefaultPreemption
from bayplan.releases import V1_36, V1_37, Release
from bayplan.testing.builders import make_node, make_pod
from tests.metrics.scrape import values

from .running import Answer, plugin, running, virtual

NODE = make_node("n", cpu="4")
MARK = ("True", "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."
FOUND = "preemption: found a potential placement for pod on node n, preempting 1 victims"
MESSAGE = "Preempted by pod {} on node n"


def victim(name: str = "victim", cpu: str = "3", priority: int = 0, **fields: Any) -> Pod:
    return make_pod(name, cpu=cpu, node="n", priority=priority, **fields)


def preemptor(name: str = "p", cpu: str = "3", priority: int = 9, **fields: Any) -> Pod:
    return make_pod(name, cpu=cpu, priority=priority, **fields)


# Victims


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


# The preemptor


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


# Victims that are not bound yet


def waits_for(name: str) -> type[Plugin]:
    return plugin("X", permit=lambda state, pod, node: Wait(60) if pod.name == name else None)


@virtual
async def test_a_victim_that_waits_for_a_permit_is_rejected_in_memory() -> None:
    async with running(NODE, plugins=[waits_for("victim")]) as world:
        await world.create(make_pod("victim", cpu="3", priority=0))
        await world.create(preemptor())
        await world.after(0)
        assert world.cluster.written("delete") == []
        assert world.node_of("p") == "n"
        message = MESSAGE.format(world.pod("p").uid) + " (in kube-scheduler memory)."
        assert world.events("victim") == [
            ("Preempted", message),
            ("FailedScheduling", "waiting on permit for pod: preempted"),
        ]
        assert world.condition("victim") == (
            "False",
            "SchedulerError",
            "waiting on permit for pod: preempted",
        )
        assert world.condition("victim", "DisruptionTarget") is None
        assert world.sub_queue("victim") == "backoff"


def works_for(name: str, *, stubborn: bool = False) -> type[Plugin]:
    """A PreBind that takes a minute; a stubborn one ignores cancellation."""

    async def pre_bind(state: Any, pod: Pod, node_name: str) -> None:
        if pod.name == name:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not stubborn:
                    raise
                await asyncio.sleep(5)

    return plugin("X", pre_bind_pre_flight=lambda *_: None, pre_bind=pre_bind)


@pytest.mark.parametrize(
    ("stubborn", "seconds", "text"),
    [
        (False, 0.0, 'running PreBind plugin "X": preempted by DefaultPreemption'),
        (True, 5.0, "preempted by DefaultPreemption"),
    ],
    ids=["interrupted", "at its end"],
)
@virtual
async def test_a_victim_in_prebind_is_cancelled_in_memory(stubborn: bool, seconds: float, text: str) -> None:
    async with running(NODE, plugins=[works_for("victim", stubborn=stubborn)]) as world:
        await world.create(make_pod("victim", cpu="3", priority=0))
        await world.create(preemptor())
        await world.after(seconds)
        assert world.cluster.written("delete") == []
        assert world.node_of("p") == "n"
        assert world.condition("victim") == ("False", "SchedulerError", text)
        message = MESSAGE.format(world.pod("p").uid) + " (in kube-scheduler memory)."
        assert world.events("victim")[0] == ("Preempted", message)


@pytest.mark.parametrize(("release", "activated"), [(V1_36, 0), (V1_37, 1)], ids=str)
@pytest.mark.parametrize("stage", [waits_for("victim"), works_for("victim")], ids=["Permit", "PreBind"])
@virtual
async def test_the_preemptor_is_activated_after_a_victim_was_stopped_in_memory(
    stage: type[Plugin], release: Release, activated: int
) -> None:
    metrics = SchedulerMetrics()
    async with running(NODE, plugins=[stage], release=release, metrics=metrics) as world:
        await world.create(make_pod("victim", cpu="3", priority=0))
        await world.create(preemptor())
        await world.after(0)
        assert world.node_of("p") == "n"
    forced = values(metrics.exposition().decode(), "scheduler_queue_incoming_pods_total")
    assert sum(count for key, count in forced.items() if "ForceActivate" in key) == activated


@virtual
async def test_a_victim_that_takes_its_time_is_not_stopped_in_a_loop() -> None:
    """The preemptor is activated once; then it waits until the victim has ended."""
    attempts: list[str] = []
    seen = plugin("Seen", pre_filter=lambda state, pod, nodes: attempts.append(pod.name))
    plugins = [works_for("victim", stubborn=True), seen]
    async with running(NODE, plugins=plugins, release=V1_37) as world:
        await world.create(make_pod("victim", cpu="3", priority=0))
        await world.create(preemptor())
        await world.after(4)
        assert attempts.count("p") <= 3
        await world.after(2)
        assert world.node_of("p") == "n"


POLICY = plugin("Policy", DefaultPreemption)
INSTEAD = """
profiles:
- plugins:
    multiPoint:
      enabled: [{name: X}, {name: Policy}]
      disabled: [{name: DefaultPreemption}]
"""


@virtual
async def test_a_policy_of_ones_own_evicts_in_its_own_name_and_is_counted() -> None:
    metrics = SchedulerMetrics()
    plugins = [works_for("victim"), POLICY]
    async with running(NODE, plugins=plugins, config=INSTEAD, metrics=metrics) as world:
        await world.create(make_pod("victim", cpu="3", priority=0))
        await world.create(preemptor())
        assert world.node_of("p") == "n"
        text = 'running PreBind plugin "X": preempted by Policy'
        assert world.condition("victim") == ("False", "SchedulerError", text)
        assert b"\nscheduler_preemption_attempts_total 1.0\n" in metrics.exposition()


@virtual
async def test_a_victim_that_is_just_being_bound_is_deleted() -> None:
    """It is too late to take it back."""
    async with running(NODE) as world:
        world.cluster.will_answer("bind", Answer(seconds=1))
        await world.create(make_pod("victim", cpu="3", priority=0))
        await world.create(preemptor())
        assert world.cluster.written("delete") == ["victim"]
        await world.after(5)
        assert world.names() == ["p"]
        assert world.node_of("p") == "n"


@virtual
async def test_a_victim_whose_fate_is_decided_already_is_deleted() -> None:
    """It was allowed a moment ago, and its binding continues."""
    async with running(NODE, plugins=[waits_for("victim")]) as world:
        await world.create(make_pod("victim", cpu="3", priority=0))
        waiting = world.context.waiting.get(world.pod("victim").uid)
        assert waiting is not None
        world.store.create(preemptor())
        await asyncio.sleep(0)
        waiting.allow("X")
        await world.after(5)
        assert world.node_of("p") == "n"
        assert "victim" not in world.names() or world.node_of("victim") == ""


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
