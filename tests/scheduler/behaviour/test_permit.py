"""Reserve and Permit: a pod is reserved, waits, is allowed or rejected."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.errors import ConflictError
from bayplan.framework.events import Action, Resource, event_with_hint
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.framework.status import Status, failure, unresolvable, unschedulable
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, World, plugin, running, virtual

NODE_ADDED = [event_with_hint(Resource.NODE, Action.ADD)]


def waits(name: str, seconds: float = 60.0) -> type[Plugin]:
    """A plugin that lets every pod wait, and allows none by itself."""
    return plugin(name, permit=lambda *_: Wait(seconds), events_to_register=lambda: NODE_ADDED)


def allow(world: World, name: str, *plugins: str) -> None:
    waiting = world.context.waiting.get(world.pod(name).uid)
    assert waiting is not None
    for each in plugins:
        waiting.allow(each)


def reject(world: World, name: str, by: str, message: str) -> bool:
    waiting = world.context.waiting.get(world.pod(name).uid)
    assert waiting is not None
    return waiting.reject(by, message)


# Reserve


class Log:
    """Three Reserve plugins that record their calls."""

    def __init__(self, **answers: Any) -> None:
        self.lines: list[str] = []
        self.plugins = [self._make(name, answers.get(name)) for name in ("A", "B", "C")]

    def _make(self, name: str, answer: Any) -> type[Plugin]:
        def reserve(state: Any, pod: Pod, node_name: str) -> Any:
            self.lines.append(f"+{name}")
            return answer

        def unreserve(state: Any, pod: Pod, node_name: str) -> None:
            self.lines.append(f"-{name}")

        return plugin(name, reserve=reserve, unreserve=unreserve, events_to_register=list)


UNDONE = ["-C", "-B", "-A"]


@virtual
async def test_reserve_is_run_in_order_and_never_undone_for_a_pod_that_is_bound() -> None:
    log = Log()
    async with running(make_node("n"), make_pod("p"), plugins=log.plugins) as world:
        assert world.node_of("p") == "n"
        assert log.lines == ["+A", "+B", "+C"]


@pytest.mark.parametrize(
    ("answer", "reason", "message", "part"),
    [
        pytest.param(
            unschedulable("no desk", "no chair"),
            "Unschedulable",
            "0/1 nodes are available: 1 no chair, 1 no desk.",
            "unschedulable",
            id="rejected",
        ),
        pytest.param(
            unresolvable("no desk"),
            "Unschedulable",
            "0/1 nodes are available: 1 no desk.",
            "unschedulable",
            id="rejected for good",
        ),
        pytest.param(
            failure("no desk"),
            "SchedulerError",
            'running Reserve plugin "B": no desk',
            "backoff",
            id="an error",
        ),
    ],
)
@virtual
async def test_where_reserve_fails_all_plugins_undo_it_in_reverse(
    answer: Status, reason: str, message: str, part: str
) -> None:
    """Those too that were not run, and the one that failed."""
    log = Log(B=answer)
    async with running(make_node("n"), make_pod("p"), plugins=log.plugins) as world:
        assert log.lines == ["+A", "+B", *UNDONE]
        assert world.condition("p") == ("False", reason, message)
        assert world.sub_queue("p") == part
        assert world.counted("p") == ""


def failing(point: str) -> tuple[list[type[Plugin]], str]:
    """Plugins and configuration of an attempt that fails at a point."""
    no = failure("no")

    async def rejects(*_: Any) -> Status:
        return no

    match point:
        case "Permit":
            return [plugin("X", permit=lambda *_: no)], ""
        case "waiting":
            return [waits("X", 1)], ""
        case "PreBindPreFlight":
            return [plugin("X", pre_bind_pre_flight=lambda *_: no, pre_bind=rejects)], ""
        case "PreBind":
            return [plugin("X", pre_bind_pre_flight=lambda *_: None, pre_bind=rejects)], ""
    config = "profiles: [{plugins: {bind: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
    return [plugin("X", bind=rejects)], config


@pytest.mark.parametrize("point", ["Permit", "waiting", "PreBindPreFlight", "PreBind", "Bind"])
@virtual
async def test_wherever_an_attempt_fails_reserve_is_undone_in_reverse(point: str) -> None:
    log = Log()
    plugins, config = failing(point)
    async with running(
        make_node("n"), make_pod("p"), plugins=[*log.plugins, *plugins], config=config
    ) as world:
        await world.after(1)
        assert log.lines == ["+A", "+B", "+C", *UNDONE]
        assert world.context.cache.assumed_count == 0


@virtual
async def test_an_unreserve_that_raises_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("lost the key")

    log = Log(A=failure("no"))
    last = plugin("D", reserve=lambda *_: None, unreserve=broken)
    async with running(make_node("n"), make_pod("p"), plugins=[*log.plugins, last]) as world:
        assert log.lines == ["+A", *UNDONE]
        assert world.counted("p") == ""
    assert 'running Unreserve plugin "D" for pod default/p: RuntimeError: lost the key' in caplog.text


# Permit


@virtual
async def test_a_waiting_pod_stays_assumed_and_is_bound_once_it_is_allowed() -> None:
    async with running(make_node("n", cpu="4"), make_pod("p", cpu="3"), plugins=[waits("X")]) as world:
        assert world.counted("p") == "n"
        await world.create(make_pod("q", cpu="2"))
        assert "1 Insufficient cpu" in world.message("q")
        assert world.node_of("p") == ""
        allow(world, "p", "X")
        await world.after(0)
        assert world.node_of("p") == "n"


@virtual
async def test_a_waiting_pod_does_not_delay_others() -> None:
    x = plugin("X", permit=lambda state, pod, node: Wait(60) if pod.name == "p" else None)
    async with running(make_node("n"), make_pod("p"), make_pod("q"), plugins=[x]) as world:
        assert (world.node_of("p"), world.node_of("q")) == ("", "n")


@virtual
async def test_the_status_of_a_waiting_pod_has_its_expected_node() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[waits("X")]) as world:
        assert world.nominated("p") == "n"
        allow(world, "p", "X")
        await world.after(0)
        assert world.nominated("p") == ""


@virtual
async def test_all_plugins_that_returned_wait_must_allow_the_pod() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[waits("X"), waits("Y")]) as world:
        waiting = world.context.waiting.get(world.pod("p").uid)
        assert waiting is not None
        assert waiting.pending_plugins == ["X", "Y"]
        allow(world, "p", "X")
        await world.after(0)
        assert world.node_of("p") == ""
        allow(world, "p", "Y")
        await world.after(0)
        assert world.node_of("p") == "n"


@virtual
async def test_a_plugin_that_did_not_return_wait_cannot_allow_the_pod() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[waits("X")]) as world:
        allow(world, "p", "Y")
        await world.after(0)
        assert world.node_of("p") == ""


@virtual
async def test_a_rejection_at_permit_is_final_although_others_returned_wait() -> None:
    x = plugin("X", permit=lambda *_: unschedulable("not you"), events_to_register=lambda: NODE_ADDED)
    async with running(make_node("n"), make_pod("p"), plugins=[waits("W"), x, waits("Y")]) as world:
        text = "0/1 nodes are available: 1 not you."
        assert world.condition("p") == ("False", "Unschedulable", text)
        assert world.events("p") == [("FailedScheduling", text)]
        assert world.sub_queue("p") == "unschedulable"
        assert len(world.context.waiting) == 0
        assert world.nominated("p") == ""


@virtual
async def test_a_waiting_pod_that_is_rejected_waits_for_events_of_the_plugin_that_did_it() -> None:
    turned_away: list[str] = []
    x = plugin(
        "X",
        permit=lambda state, pod, node: None if turned_away else Wait(60),
        events_to_register=lambda: NODE_ADDED,
    )
    async with running(make_node("n"), make_pod("p"), plugins=[x]) as world:
        assert reject(world, "p", "X", "the band broke up")
        assert not reject(world, "p", "X", "again")
        turned_away.append("p")
        await world.after(0)
        text = "0/1 nodes are available: 1 the band broke up."
        assert world.condition("p") == ("False", "Unschedulable", text)
        assert world.nominated("p") == ""
        assert world.sub_queue("p") == "unschedulable"
        assert world.counted("p") == ""
        await world.after(60)
        assert world.node_of("p") == ""
        await world.create(make_node("m", cpu="1"))
        assert world.node_of("p") == "n"


@pytest.mark.parametrize(
    ("timeout", "seconds", "text"),
    [
        (0.25, 0.25, "250ms"),
        (7.0, 7.0, "7s"),
        (90.0, 90.0, "1m30s"),
        pytest.param(3600.0, 900.0, "15m0s", id="not longer than 15 minutes"),
    ],
)
@virtual
async def test_a_pod_that_waited_too_long_is_rejected(timeout: float, seconds: float, text: str) -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[waits("X", timeout)]) as world:
        await world.after(seconds - 0.001)
        assert world.condition("p") is None
        await world.after(0.001)
        message = f"0/1 nodes are available: 1 rejected due to timeout after waiting {text} at plugin X."
        assert world.condition("p") == ("False", "Unschedulable", message)
        assert world.sub_queue("p") == "unschedulable"


@virtual
async def test_the_shortest_wait_of_several_ends_it() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[waits("X", 60), waits("Y", 20)]) as world:
        await world.after(20)
        assert "after waiting 20s at plugin Y" in world.message("p")


@virtual
async def test_after_a_plugin_has_allowed_the_pod_its_timeout_does_not_count() -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[waits("X", 60), waits("Y", 20)]) as world:
        allow(world, "p", "Y")
        await world.after(40)
        assert world.condition("p") is None
        await world.after(20)
        assert "after waiting 1m0s at plugin X" in world.message("p")


@virtual
async def test_the_room_of_a_pod_that_waited_too_long_is_given_to_others() -> None:
    x = plugin(
        "X", permit=lambda state, pod, node: Wait(30) if pod.name == "p" else None, events_to_register=list
    )
    async with running(make_node("n", cpu="4"), make_pod("p", cpu="3"), plugins=[x]) as world:
        await world.create(make_pod("q", cpu="2"))
        await world.after(29)
        assert world.node_of("q") == ""
        await world.after(1)
        assert world.node_of("q") == "n"
        assert world.sub_queue("p") == "unschedulable"


@virtual
async def test_a_waiting_pod_that_is_deleted_makes_room_and_has_no_more_events() -> None:
    x = plugin(
        "X", permit=lambda state, pod, node: Wait(60) if pod.name == "p" else None, events_to_register=list
    )
    async with running(make_node("n", cpu="4"), make_pod("p", cpu="3"), plugins=[x]) as world:
        await world.create(make_pod("q", cpu="2"))
        await world.delete("p")
        await world.after(0)
        assert len(world.context.waiting) == 0
        assert world.context.cache.assumed_count == 0
        assert world.sub_queue("p") == ""
        assert world.node_of("q") == "n"
        assert world.cluster.written("bind") == ["q"]


@virtual
async def test_waiting_pods_can_be_found_through_the_handle() -> None:
    """By plugins that allow all once enough are there."""

    class Three(Plugin):
        def permit(self, state: Any, pod: Pod, node_name: str) -> Wait | None:
            assert self.handle is not None
            others = list(self.handle.waiting_pods())
            if len(others) < 2:
                return Wait(60)
            for other in others:
                assert self.handle.waiting_pod(other.pod.uid) is other
                other.allow("Three")
            return None

    async with running(make_node("n"), make_pod("a"), make_pod("b"), plugins=[Three]) as world:
        assert (world.node_of("a"), world.node_of("b")) == ("", "")
        await world.create(make_pod("c"))
        assert [world.node_of(name) for name in "abc"] == ["n", "n", "n"]


@virtual
async def test_a_waiting_pod_that_another_client_binds_counts_where_it_is() -> None:
    async with running(make_node("n"), make_node("m"), make_pod("p"), plugins=[waits("X")]) as world:
        held = world.counted("p")
        other = "m" if held == "n" else "n"
        world.store.bind("p", "default", other)
        await world.after(0)
        assert world.counted("p") == other
        allow(world, "p", "X")
        await world.after(0)
        assert world.counted("p") == other
        assert world.sub_queue("p") == ""
        assert world.context.cache.assumed_count == 0


@virtual
async def test_a_rejected_write_of_the_expected_node_does_not_stop_a_binding(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(make_node("n"), plugins=[waits("X")]) as world:
        world.cluster.will_answer("patch", ConflictError("not now"), times=4)
        await world.create(make_pod("p"))
        await world.after(1)
        assert world.nominated("p") == ""
        allow(world, "p", "X")
        await world.after(0)
        assert world.node_of("p") == "n"
    assert "cannot set nominatedNodeName of pod default/p to n: not now" in caplog.text


@virtual
async def test_an_expected_node_that_is_still_being_written_is_cleared() -> None:
    """The pod is rejected before its watch shows the expected node. No room is kept for it."""
    async with running(make_node("n", cpu=2), plugins=[waits("X")]) as world:
        world.cluster.will_answer("patch", Answer(seconds=5))
        await world.create(make_pod("p", cpu="2"))
        reject(world, "p", "X", "not now")
        await world.after(6)
        assert world.nominated("p") == ""
        await world.create(make_pod("q", cpu="2"))
        assert world.counted("q") == "n"


@virtual
async def test_an_expected_node_is_not_written_for_another_pod_of_the_same_name() -> None:
    """The pod is created again, and is not to be tried yet, while its former node is being written."""
    async with running(make_node("n", cpu=2), plugins=[waits("X")]) as world:
        world.cluster.will_answer("patch", Answer(seconds=5))
        await world.create(make_pod("p", cpu="2"))
        await world.delete("p")
        await world.create(make_pod("p", cpu="2", gates=["g"]))
        await world.after(6)
        assert world.nominated("p") == ""
        await world.create(make_pod("q", cpu="2"))
        assert world.counted("q") == "n"
