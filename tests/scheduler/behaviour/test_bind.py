"""Bind: the binding itself, and what happens when it fails or takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import SKIP, SUCCESS, Status, unschedulable
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, World, plugin, running, virtual

ONLY_X = "profiles: [{plugins: {bind: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
X_THEN_DEFAULT = (
    "profiles: [{plugins: {bind: {enabled: [{name: X}, {name: DefaultBinder}], disabled: [{name: '*'}]}}}]"
)


def binder(answer: Status | None) -> type[Plugin]:
    async def bind(*_: Any) -> Status | None:
        return answer

    return plugin("X", bind=bind)


@virtual
async def test_a_bound_pod_has_a_node_a_condition_and_an_event() -> None:
    async with running(make_node("n"), make_pod("p")) as world:
        assert world.node_of("p") == "n"
        assert world.condition("p") == ("True", "", "")
        assert world.events("p") == [("Scheduled", "Successfully assigned default/p to n")]
        assert world.context.cache.assumed_count == 0


@virtual
async def test_a_binder_that_skips_leaves_it_to_the_next() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[binder(SKIP)], config=X_THEN_DEFAULT) as world:
        assert world.node_of("p") == "n"


@virtual
async def test_the_first_binder_that_does_not_skip_decides() -> None:
    async with running(
        make_node("n"), make_pod("p"), plugins=[binder(SUCCESS)], config=X_THEN_DEFAULT
    ) as world:
        assert world.cluster.writes == []
        assert world.events("p") == [("Scheduled", "Successfully assigned default/p to n")]


@virtual
async def test_a_pod_that_every_binder_skips_is_tried_again_without_a_word() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[binder(SKIP)], config=ONLY_X) as world:
        assert world.sub_queue("p") == "backoff"
        assert world.events("p") == []
        assert world.cluster.writes == []
        assert world.context.cache.assumed_count == 0
        await world.after(2)
        assert world.attempts("p") == 2


@virtual
async def test_a_rejection_by_bind_is_reported_as_one_and_tried_again_like_an_error() -> None:
    async with running(
        make_node("n"), make_pod("p"), plugins=[binder(unschedulable("no seat"))], config=ONLY_X
    ) as world:
        assert world.condition("p") == ("False", "Unschedulable", "no seat")
        assert world.sub_queue("p") == "backoff"


@pytest.mark.parametrize("eager", [True, False], ids=["at once", "as tasks"])
@virtual
async def test_no_write_overtakes_another(eager: bool) -> None:
    """Bindings are made many in a row, but before anything is reported about a pod that came later."""
    async with running(make_node("n", cpu="3"), eager=eager) as world:
        sizes = {"a": "1", "b": "1", "huge": "9", "c": "1", "d": "1"}
        await world.create(*(make_pod(name, cpu=cpu) for name, cpu in sizes.items()))
        assert world.cluster.writes == [
            ("bind", "a"),
            ("bind", "b"),
            ("patch", "huge"),
            ("bind", "c"),
            ("patch", "d"),
        ]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConflictError("409: it has changed"), id="conflict"),
        pytest.param(NotFoundError("404: no such pod"), id="not found"),
        pytest.param(ServerError("500: internal error"), id="server error"),
        pytest.param(APIError("403: you may not", 403), id="forbidden"),
        pytest.param(UnknownOutcomeError("no answer"), id="no answer"),
    ],
)
@virtual
async def test_a_binding_that_failed_is_reported_and_tried_again(error: APIError) -> None:
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", error)
        await world.create(make_pod("p"))
        text = f'running Bind plugin "DefaultBinder": {error}'
        assert world.condition("p") == ("False", "SchedulerError", text)
        assert world.events("p") == [("FailedScheduling", text)]
        assert world.sub_queue("p") == "backoff"
        assert world.counted("p") == ""
        await world.after(2)
        assert world.node_of("p") == "n"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnknownOutcomeError("no answer"), id="no answer"),
        pytest.param(ServerError("504: the gateway gave up"), id="server error"),
    ],
)
@virtual
async def test_a_binding_that_took_effect_without_an_answer_counts(error: APIError) -> None:
    """It is read back before anything is given up."""
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", Answer(error, seconds=10, done=True))
        await world.create(make_pod("p"))
        await world.after(10)
        assert world.events("p") == [("Scheduled", "Successfully assigned default/p to n")]
        assert world.cluster.writes == [("bind", "p")]
        assert world.counted("p") == "n"


@virtual
async def test_the_pod_stays_assumed_until_the_api_server_shows_whether_it_is_bound() -> None:
    async with running(make_node("n", cpu="4")) as world:
        world.cluster.will_answer("bind", UnknownOutcomeError("no answer"))
        world.cluster.will_answer("get", ServerError("down"), times=3)
        await world.create(make_pod("p", cpu="3"))
        await world.create(make_pod("q", cpu="3"))
        await world.after(6)
        assert world.counted("p") == "n"
        assert world.node_of("q") == ""
        await world.after(1)
        assert world.condition("p") == (
            "False",
            "SchedulerError",
            'running Bind plugin "DefaultBinder": no answer',
        )
        assert world.node_of("q") == "n"


@pytest.mark.parametrize(
    ("meanwhile", "part"),
    [
        pytest.param(lambda world: world.store.bind("p", "default", "m"), "", id="bound elsewhere"),
        pytest.param(lambda world: world.store.delete(Pod, "p", "default"), "", id="deleted"),
    ],
)
@virtual
async def test_a_pod_of_which_others_disposed_while_it_was_being_bound(
    meanwhile: Callable[[World], object], part: str
) -> None:
    async with running(make_node("n"), make_node("m", unschedulable=True)) as world:
        world.cluster.will_answer("bind", Answer(UnknownOutcomeError("no answer"), seconds=5))
        await world.create(make_pod("p"))
        meanwhile(world)
        await world.after(60)
        assert world.sub_queue("p") == part
        assert world.attempts("p") == 1
        assert world.context.cache.assumed_count == 0
        assert world.counted("p") in ("", "m")


@virtual
async def test_a_failed_binding_frees_the_room_for_others() -> None:
    """Pods that wait for room are requeued as if the pod had been deleted."""
    async with running(make_node("n", cpu="4")) as world:
        world.cluster.will_answer("bind", Answer(ConflictError("no"), seconds=3))
        await world.create(make_pod("p", cpu="3"))
        await world.create(make_pod("q", cpu="3"))
        assert world.sub_queue("q") == "unschedulable"
        await world.after(3)
        assert world.node_of("q") == "n"
        assert world.sub_queue("p") == "backoff"


@virtual
async def test_a_binding_that_takes_long_does_not_delay_others() -> None:
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", Answer(seconds=30))
        await world.create(make_pod("p"))
        await world.create(make_pod("q"))
        assert (world.node_of("p"), world.node_of("q")) == ("", "n")
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_a_pod_deleted_while_it_is_being_bound_makes_room_at_once() -> None:
    """The binding is not interrupted; its failure changes nothing any more."""
    async with running(make_node("n", cpu="4")) as world:
        world.cluster.will_answer("bind", Answer(seconds=30))
        await world.create(make_pod("p", cpu="3"))
        await world.create(make_pod("q", cpu="3"))
        await world.delete("p")
        assert world.node_of("q") == "n"
        await world.after(60)
        assert world.counted("q") == "n"
        assert world.sub_queue("p") == ""
