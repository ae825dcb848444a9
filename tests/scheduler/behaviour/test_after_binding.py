"""After the binding: PostBind, and pods that are tried then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import ConflictError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Status, unschedulable
from bayplan.scheduler.binding import PODS_TO_ACTIVATE
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, plugin, running, virtual
from .working import Works


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
