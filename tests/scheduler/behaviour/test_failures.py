"""A pod whose attempt failed: its nomination, its queue and its status."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change
from bayplan.api.meta import Object
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError
from bayplan.framework.events import Action, Resource, event_with_hint
from bayplan.framework.outcome import Nomination, PostFilterResult
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.framework.status import failure, unresolvable, unschedulable
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, plugin, running, virtual

# The nomination

NO_POST_FILTER = "profiles: [{plugins: {postFilter: {disabled: [{name: '*'}]}}}]"
ONLY_X = "profiles: [{plugins: {postFilter: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
VICTIM = make_pod("victim", cpu="4", node="n", priority=0)
GOING = make_pod("other", cpu="4", node="n", priority=9)


def answers(*, nominates: str | None = None, status: Any = None) -> type[Plugin]:
    """A PostFilter that returns this."""
    nomination = None if nominates is None else Nomination(nominates)
    return plugin("X", post_filter=lambda *_: PostFilterResult(status, nomination))


def at(point: str, answer: Any) -> type[Plugin]:
    """A plugin that fails at one point."""
    methods: dict[str, Any] = {point: lambda *_: answer, "events_to_register": list}
    if point == "reserve":
        methods["unreserve"] = lambda *_: None
    return plugin("X", **methods)


@pytest.mark.parametrize(
    ("objects", "fields", "plugins", "config", "nominated"),
    [
        pytest.param([], {}, [], "", "", id="no nodes: cleared"),
        pytest.param([make_node("n")], {}, [at("pre_filter", failure("no"))], "", "", id="error: cleared"),
        pytest.param(
            [make_node("n")], {}, [at("reserve", unschedulable("no"))], "", "", id="Reserve rejects: cleared"
        ),
        pytest.param([make_node("n")], {}, [at("permit", failure("no"))], "", "", id="Permit: cleared"),
        pytest.param(
            [make_node("n"), GOING],
            {"cpu": "4"},
            [],
            NO_POST_FILTER,
            "",
            id="no PostFilter: cleared",
        ),
        pytest.param([make_node("n"), GOING], {"cpu": "4"}, [], "", "", id="no victims would help: cleared"),
        pytest.param(
            [make_node("n"), VICTIM],
            {"cpu": "4", "priority": 9, "preemption_policy": "Never"},
            [],
            "",
            "before",
            id="it may not preempt: kept",
        ),
        pytest.param(
            [make_node("n"), GOING],
            {"cpu": "4"},
            [answers(status=failure("no"))],
            ONLY_X,
            "before",
            id="PostFilter raises: kept",
        ),
        pytest.param(
            [make_node("n"), GOING],
            {"cpu": "4"},
            [answers(status=unresolvable("no"))],
            ONLY_X,
            "before",
            id="PostFilter does not set it: kept",
        ),
        pytest.param(
            [make_node("n"), GOING],
            {"cpu": "4"},
            [answers(status=unschedulable("no"), nominates="n")],
            ONLY_X,
            "n",
            id="PostFilter sets a node: set",
        ),
        pytest.param(
            [make_node("n"), GOING],
            {"cpu": "4"},
            [answers(status=unschedulable("no"), nominates="")],
            ONLY_X,
            "",
            id="PostFilter clears it: cleared",
        ),
    ],
)
@virtual
async def test_what_becomes_of_a_nomination(
    objects: list[Object], fields: dict[str, Any], plugins: list[type[Plugin]], config: str, nominated: str
) -> None:
    pod = make_pod("p", nominated_node="before", **fields)
    async with running(*objects, pod, plugins=plugins, config=config) as world:
        assert world.nominated("p") == nominated
        assert (world.context.queue.nominations.node_of(world.pod("p").uid) or "") == nominated


@virtual
async def test_a_failed_binding_clears_the_nomination() -> None:
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", ConflictError("no"))
        await world.create(make_pod("p", nominated_node="n"))
        assert world.nominated("p") == ""


@virtual
async def test_a_nominated_pod_takes_its_node_although_others_are_better() -> None:
    nodes = [make_node("small", cpu="1"), make_node("large", cpu="64")]
    async with running(*nodes, make_pod("p", cpu="1", nominated_node="small")) as world:
        assert world.node_of("p") == "small"


@virtual
async def test_a_nominated_pod_whose_node_does_not_fit_is_scheduled_elsewhere() -> None:
    nodes = [make_node("small", cpu="1"), make_node("large", cpu="64")]
    async with running(*nodes, make_pod("p", cpu="2", nominated_node="small")) as world:
        assert world.node_of("p") == "large"


# Its place in the queue


@virtual
async def test_a_pod_that_is_gone_when_its_attempt_fails_does_not_come_back() -> None:
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", Answer(NotFoundError("no such pod"), seconds=5))
        await world.create(make_pod("p"))
        await world.delete("p")
        await world.after(30)
        assert world.attempts("p") == 1
        assert world.sub_queue("p") == ""
        assert [reason for reason, _ in world.events("p")] == ["FailedScheduling"]


@virtual
async def test_a_pod_that_another_client_bound_meanwhile_does_not_come_back() -> None:
    async with running(make_node("n"), make_node("m", unschedulable=True)) as world:
        world.cluster.will_answer("bind", Answer(seconds=5))
        await world.create(make_pod("p"))
        world.store.bind("p", "default", "m")
        await world.after(30)
        assert world.attempts("p") == 1
        assert world.sub_queue("p") == ""
        assert world.counted("p") == "m"
        ((reason, note),) = world.events("p")
        assert reason == "FailedScheduling"
        assert note.endswith('pod p is already assigned to node "m"')


@virtual
async def test_no_status_is_written_for_a_pod_that_was_replaced_by_a_namesake() -> None:
    """The namesake is a pod of its own."""
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", Answer(seconds=5))
        await world.create(make_pod("p"))
        await world.delete("p")
        await world.create(make_pod("p"))
        assert world.node_of("p") == "n"
        writes = list(world.cluster.writes)
        await world.after(30)
        assert world.cluster.writes == writes == [("bind", "p"), ("bind", "p")]
        assert world.events("p") == [("Scheduled", "Successfully assigned default/p to n")]


@virtual
async def test_a_pod_comes_back_as_it_is_now() -> None:
    x = plugin(
        "X", permit=lambda state, pod, node: Wait(5) if not pod.labels else None, events_to_register=list
    )
    async with running(make_node("n"), make_pod("p"), plugins=[x]) as world:
        await world.update("p", lambda pod: replace(pod, metadata=replace(pod.metadata, labels={"a": "b"})))
        await world.after(5)
        assert "timeout" in world.message("p")
        waiting = world.context.queue.find("default/p")
        assert waiting is not None
        assert waiting.pod.labels == {"a": "b"}


@virtual
async def test_what_happened_during_an_attempt_brings_a_pod_back_at_once() -> None:
    """It had to wait for a permit; the node that would have helped came meanwhile."""
    x = plugin(
        "X",
        permit=lambda state, pod, node: Wait(5) if node == "n" else None,
        events_to_register=lambda: [event_with_hint(Resource.NODE, Action.ADD)],
    )
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="1"), plugins=[x]) as world:
        await world.create(make_node("m", cpu="64"))
        await world.after(5)
        assert world.node_of("p") == "m"


# Writing its status


@pytest.mark.parametrize(
    "error", [pytest.param(ConflictError("409"), id="409"), pytest.param(ServerError("503"), id="503")]
)
@virtual
async def test_a_status_that_could_not_be_written_is_tried_again_soon(error: APIError) -> None:
    async with running(make_node("n", cpu="1")) as world:
        world.cluster.will_answer("patch", error, times=3)
        await world.create(make_pod("p", cpu="2"))
        await world.after(0.35)
        assert world.cluster.written("patch") == ["p"] * 4
        assert "Insufficient cpu" in world.message("p")


@virtual
async def test_a_status_is_given_up_after_four_tries(caplog: pytest.LogCaptureFixture) -> None:
    async with running(make_node("n", cpu="1")) as world:
        world.cluster.will_answer("patch", ServerError("500: down"), times=4)
        await world.create(make_pod("p", cpu="2"))
        await world.after(10)
        assert world.cluster.written("patch") == ["p"] * 4
        assert world.condition("p") is None
        assert world.sub_queue("p") == "unschedulable"
    assert "cannot write the status of pod default/p: 500: down" in caplog.text


@virtual
async def test_what_cannot_help_is_not_tried_again() -> None:
    async with running(make_node("n", cpu="1")) as world:
        world.cluster.will_answer("patch", APIError("403: you may not", 403))
        await world.create(make_pod("p", cpu="2"))
        await world.after(10)
        assert world.cluster.written("patch") == ["p"]


@virtual
async def test_a_slow_status_does_not_delay_others() -> None:
    async with running(make_node("n", cpu="1")) as world:
        world.cluster.will_answer("patch", Answer(seconds=30))
        await world.create(make_pod("p", cpu="2"))
        await world.create(make_pod("q", cpu="1"))
        assert world.node_of("q") == "n"


@virtual
async def test_of_two_statuses_the_later_one_stays() -> None:
    async with running(make_node("n", cpu="1")) as world:
        world.cluster.will_answer("patch", Answer(seconds=30))
        await world.create(make_pod("p", cpu="2"))
        await world.create(make_node("m", cpu="1"))
        await world.update("p", lambda pod: replace(pod, metadata=replace(pod.metadata, labels={"a": "b"})))
        world.context.queue.activate([world.pod("p")])
        world.context.wake()
        await world.after(60)
        assert world.message("p").startswith("0/2 nodes")


@virtual
async def test_a_nomination_that_a_watch_changes_is_updated() -> None:
    """Another client changed the nomination; the scheduler uses the new one."""
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2", nominated_node="n")) as world:
        pod = world.pod("p")
        changed = replace(
            pod,
            metadata=replace(pod.metadata, resource_version="999"),
            status=replace(pod.status, nominated_node_name="m"),
        )
        await world.show(Change.MODIFIED, changed)
        assert world.context.queue.nominations.node_of(pod.uid) == "m"


@virtual
async def test_many_failures_at_once_are_all_written() -> None:
    pods = [make_pod(f"p{i}", cpu="2") for i in range(100)]
    async with running(make_node("n", cpu="1")) as world:
        for _ in range(100):
            world.cluster.will_answer("patch", Answer(seconds=1))
        await world.create(*pods)
        await world.after(1)
        assert {world.message(name)[:10] for name in world.names()} == {"0/1 nodes "}


@virtual
async def test_a_pod_is_not_bound_before_the_status_of_its_last_attempt_is_written() -> None:
    """Otherwise a bound pod could be marked as unschedulable."""
    async with running() as world:
        world.cluster.will_answer("patch", Answer(seconds=5))
        await world.create(make_pod("p"))
        await world.create(make_node("n"))
        await world.after(3)
        assert world.attempts("p") == 2
        assert world.node_of("p") == ""
        await world.after(3)
        assert world.node_of("p") == "n"
        (condition,) = [c for c in world.pod("p").status.conditions if c.type == "PodScheduled"]
        assert condition.status == "True"
