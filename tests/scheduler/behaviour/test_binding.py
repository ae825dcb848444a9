"""The binding cycle: work before a binding, the binding itself, and what happens when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import SKIP, SUCCESS, Code, Status, failure, unschedulable
from bayplan.scheduler.binding import PODS_TO_ACTIVATE
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, World, plugin, running, virtual

# PreBind


class Works:
    """A slow PreBind plugin, and the times of its calls."""

    def __init__(
        self,
        seconds: float = 0.0,
        answer: Status | None = None,
        *,
        flight: Status | None = None,
        parallel: bool = False,
        built_in: bool = False,
        only: str = "",
    ) -> None:
        self.lines: list[tuple[float, str]] = []
        self._seconds = seconds
        self._answer = answer
        self._flight = flight
        self._parallel = parallel
        self._built_in = built_in
        self._only = only

    def named(self, name: str) -> type[Plugin]:
        async def pre_bind(state: Any, pod: Pod, node_name: str) -> Status | None:
            loop = asyncio.get_running_loop()
            self.lines.append((loop.time(), "begins"))
            try:
                await asyncio.sleep(self._seconds)
            except asyncio.CancelledError:
                self.lines.append((loop.time(), "is cancelled"))
                raise
            self.lines.append((loop.time(), "ends"))
            return self._answer

        return plugin(
            name,
            pre_binds_in_parallel=self._parallel,
            built_in=self._built_in,
            pre_bind_pre_flight=lambda state, pod, node: (
                SKIP if self._only and pod.name != self._only else self._flight
            ),
            pre_bind=pre_bind,
        )


@virtual
async def test_a_slow_prebind_does_not_delay_others() -> None:
    slow = Works(30, only="p")
    async with running(make_node("n"), make_pod("p"), make_pod("q"), plugins=[slow.named("X")]) as world:
        assert (world.node_of("p"), world.node_of("q")) == ("", "n")
        await world.after(30)
        assert world.node_of("p") == "n"


@virtual
async def test_the_status_of_a_pod_with_a_slow_prebind_has_its_expected_node() -> None:
    slow = Works(30)
    async with running(make_node("n"), make_pod("p"), plugins=[slow.named("X")]) as world:
        assert world.nominated("p") == "n"
        await world.after(30)
        assert (world.node_of("p"), world.nominated("p")) == ("n", "")


@virtual
async def test_no_expected_node_is_written_where_no_plugin_has_work_to_do() -> None:
    idle = Works(30, flight=SKIP)
    async with running(make_node("n"), make_pod("p"), plugins=[idle.named("X")]) as world:
        assert world.node_of("p") == "n"
        assert world.cluster.writes == [("bind", "p")]
        assert idle.lines == []


@virtual
async def test_an_expected_node_that_is_set_already_is_not_written() -> None:
    slow = Works(30)
    async with running(make_node("n"), make_pod("p", nominated_node="n"), plugins=[slow.named("X")]) as world:
        assert world.cluster.writes == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(failure("no map"), 'running PreBindPreFlight "X": no map', id="Error"),
        pytest.param(
            unschedulable("no map"),
            'PreBindPreFlight X returned "Unschedulable", which is unsupported. '
            "It is supposed to return Success, Skip, or Error status",
            id="Unschedulable is not supported",
        ),
        pytest.param(
            Status(Code.WAIT),
            'PreBindPreFlight X returned "Wait", which is unsupported. '
            "It is supposed to return Success, Skip, or Error status",
            id="Wait is not supported",
        ),
    ],
)
@virtual
async def test_a_preflight_that_fails_ends_the_attempt(answer: Status, text: str) -> None:
    work = Works(flight=answer)
    async with running(make_node("n"), make_pod("p"), plugins=[work.named("X")]) as world:
        assert world.condition("p") == ("False", "SchedulerError", text)
        assert world.sub_queue("p") == "backoff"
        assert work.lines == []


@virtual
async def test_a_rejection_by_prebind_is_reported_as_one_and_tried_again_like_an_error() -> None:
    """So late no pod is "unschedulable" any more: no event is waited for."""
    work = Works(answer=unschedulable("the volume is gone"))
    async with running(make_node("n"), make_pod("p"), plugins=[work.named("X")]) as world:
        assert world.condition("p") == ("False", "Unschedulable", "the volume is gone")
        assert world.sub_queue("p") == "backoff"
        await world.after(1)
        assert world.attempts("p") == 1
        await world.after(1)
        assert world.attempts("p") == 2


def timeline(*works: Works) -> list[tuple[float, str, str]]:
    """The calls with their times."""
    found = [
        (when, name, what) for name, work in zip("ABCD", works, strict=False) for when, what in work.lines
    ]
    return sorted(found, key=lambda line: line[0])


@pytest.mark.parametrize(
    ("parallel", "idle", "expected"),
    [
        pytest.param("", "", {"A": 0, "B": 1, "C": 2, "D": 3}, id="one after the other"),
        pytest.param("ABCD", "", {"A": 0, "B": 0, "C": 0, "D": 0}, id="all at once where all allow it"),
        pytest.param("ABD", "", {"A": 0, "B": 0, "C": 1, "D": 2}, id="one that does not is between"),
        pytest.param("ABD", "C", {"A": 0, "B": 0, "D": 1}, id="even if it has nothing to do"),
        pytest.param("ABCD", "B", {"A": 0, "C": 0, "D": 0}, id="an idle one that allows it does not"),
        pytest.param("BC", "", {"A": 0, "B": 1, "C": 1, "D": 2}, id="two in the middle"),
    ],
)
@virtual
async def test_which_prebinds_run_side_by_side(parallel: str, idle: str, expected: dict[str, float]) -> None:
    works = [Works(1, parallel=name in parallel, flight=SKIP if name in idle else None) for name in "ABCD"]
    plugins = [work.named(name) for name, work in zip("ABCD", works, strict=True)]
    async with running(make_node("n"), make_pod("p"), plugins=plugins) as world:
        await world.after(10)
        assert world.node_of("p") == "n"
        assert {name: when for when, name, what in timeline(*works) if what == "begins"} == expected


@pytest.mark.parametrize("built_in", [False, True], ids=["task", "eager"])
@virtual
async def test_the_first_prebind_that_fails_cancels_those_beside_it(built_in: bool) -> None:
    works = [
        Works(5, parallel=True, built_in=built_in),
        Works(2, failure("disk on fire"), parallel=True, built_in=built_in),
        Works(1, parallel=True, built_in=built_in),
        Works(1, built_in=built_in),
    ]
    plugins = [work.named(name) for name, work in zip("ABCD", works, strict=True)]
    async with running(make_node("n"), make_pod("p"), plugins=plugins) as world:
        await world.after(2)
        assert timeline(*works) == [
            (0, "A", "begins"),
            (0, "B", "begins"),
            (0, "C", "begins"),
            (1, "C", "ends"),
            (2, "A", "is cancelled"),
            (2, "B", "ends"),
        ]
        text = 'running PreBind plugin "B": disk on fire'
        assert world.condition("p") == ("False", "SchedulerError", text)


@virtual
async def test_two_prebinds_that_fail_at_once_are_one_failure(caplog: pytest.LogCaptureFixture) -> None:
    works = [Works(1, failure("no"), parallel=True), Works(1, failure("neither"), parallel=True)]
    plugins = [work.named(name) for name, work in zip("AB", works, strict=True)]
    async with running(make_node("n"), make_pod("p"), plugins=plugins) as world:
        await world.after(1)
        assert world.message("p") == 'running PreBind plugin "A": no'
    assert caplog.text == ""


@virtual
async def test_reserve_is_undone_only_after_every_prebind_has_ended() -> None:
    lines: list[str] = []

    async def cleans_up(*_: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            lines.append("cleaned up")

    tidy = plugin(
        "Tidy",
        pre_binds_in_parallel=True,
        pre_bind_pre_flight=lambda *_: None,
        pre_bind=cleans_up,
        reserve=lambda *_: None,
        unreserve=lambda *_: lines.append("unreserved"),
    )
    broken = Works(2, failure("no"), parallel=True).named("Broken")
    async with running(make_node("n"), make_pod("p"), plugins=[tidy, broken]) as world:
        await world.after(3)
        assert lines == ["cleaned up", "unreserved"]


# Bind

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
        pytest.param(ServerError("500: something broke"), id="server error"),
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


# After it


@virtual
async def test_postbind_is_reported_pods_that_are_bound() -> None:
    calls: list[tuple[str, str]] = []
    x = plugin("X", post_bind=lambda state, pod, node: calls.append((pod.name, node)))
    async with running(make_node("n", cpu="4"), plugins=[x]) as world:
        world.cluster.will_answer("bind", ConflictError("no"))
        await world.create(make_pod("p", priority=1, cpu="3"), make_pod("q", cpu="1"))
        assert calls == [("q", "n")]


@virtual
async def test_a_postbind_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no ink")

    async with running(make_node("n"), make_pod("p"), plugins=[plugin("X", post_bind=broken)]) as world:
        assert world.node_of("p") == "n"
        assert world.events("p") == [("Scheduled", "Successfully assigned default/p to n")]
    assert 'running PostBind plugin "X" for pod default/p: RuntimeError: no ink' in caplog.text


def activates(point: str, slow: bool) -> list[type[Plugin]]:
    """Plugins that reject pod `q` until pod `p` has come this far, and then activate `q`."""

    class X(Plugin):
        arrived = False

        def events_to_register(self) -> list[Any]:
            return []

        def pre_filter(self, state: Any, pod: Pod, nodes: Any) -> Status | None:
            return unschedulable("not before p") if pod.name == "q" and not X.arrived else None

        def reserve(self, state: Any, pod: Pod, node_name: str) -> None:
            if pod.name == "p" and point == "Reserve":
                self._activate(state)

        def unreserve(self, state: Any, pod: Pod, node_name: str) -> None: ...

        def post_bind(self, state: Any, pod: Pod, node_name: str) -> None:
            if pod.name == "p" and point == "PostBind":
                self._activate(state)

        def _activate(self, state: Any) -> None:
            X.arrived = True
            waiting = make_pod("q")
            state.write(PODS_TO_ACTIVATE, {waiting.uid: waiting})

    return [X, Works(10 if slow else 0, only="p").named("Slow")]


@pytest.mark.parametrize(
    ("point", "seconds"), [("Reserve", 0), ("PostBind", 10)], ids=["once it has a place", "once it is bound"]
)
@virtual
async def test_a_plugin_can_have_pods_tried_after_this_one(point: str, seconds: float) -> None:
    async with running(make_node("n"), make_pod("q"), plugins=activates(point, slow=True)) as world:
        assert world.sub_queue("q") == "unschedulable"
        await world.create(make_pod("p"))
        if seconds:
            await world.after(seconds - 1)
            assert world.node_of("q") == ""
            await world.after(1)
        assert world.node_of("q") == "n"


@virtual
async def test_pods_are_tried_after_one_whose_binding_is_answered_late() -> None:
    """The watch delivered it before; nothing else wakes the scheduler then."""
    async with running(make_node("n"), make_pod("q"), plugins=activates("PostBind", slow=False)) as world:
        world.cluster.will_answer("bind", Answer(seconds=10, done=True))
        await world.create(make_pod("p"))
        await world.after(9)
        assert (world.node_of("p"), world.node_of("q")) == ("n", "")
        await world.after(1)
        assert world.node_of("q") == "n"


@virtual
async def test_a_pod_that_changed_while_it_was_being_bound_is_tried_again_as_it_is_now() -> None:
    async with running(make_node("n"), make_node("m", labels={"disk": "ssd"}, cpu="1")) as world:
        world.cluster.will_answer("bind", Answer(ConflictError("no"), seconds=5))
        await world.create(make_pod("p", cpu="1"))
        await world.update(
            "p", lambda pod: replace(pod, spec=replace(pod.spec, node_selector={"disk": "ssd"}))
        )
        await world.after(7)
        assert world.node_of("p") == "m"
