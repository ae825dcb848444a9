"""A plugin cannot end the scheduler: SystemExit and the like fail one attempt and name the plugin."""

from __future__ import annotations

import asyncio
import signal
import types
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayplan.api.pod import Pod
from bayplan.errors import InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import SKIP, Status, plugin_exceptions
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.extension_points import POINTS as EXTENSION_POINTS
from bayplan.runtime.extension_points import Placement
from bayplan.runtime.profile import Profile
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import load_plugin
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin

from .behaviour.running import running, virtual

EXITS = [SystemExit, GeneratorExit, KeyboardInterrupt, asyncio.CancelledError]
POINTS = ["pre_filter", "filter", "pre_score", "score", "reserve", "permit", "pre_bind", "bind"]

FIRST_BINDER = """
profiles:
- schedulerName: default-scheduler
  plugins:
    bind:
      disabled: [{name: DefaultBinder}]
      enabled: [{name: Exiting}, {name: DefaultBinder}]
"""


@pytest.fixture(autouse=True)
def handled_interrupt() -> Iterator[None]:
    """As in a live scheduler: the signal does not raise KeyboardInterrupt."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, before)


def exiting(point: str, error: type[BaseException]) -> type[Plugin]:
    """A plugin that raises at this point, for pods that are named "bad"."""

    def check(pod: Pod) -> None:
        if pod.name == "bad":
            raise error("told to")

    def method(self: Any, state: CycleState, pod: Pod, *args: Any) -> Any:
        check(pod)
        return np.zeros(len(args[0]), dtype=np.int64) if point == "score" else None

    async def wait(self: Any, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        await asyncio.sleep(0.1)
        check(pod)
        return SKIP if point == "bind" else None

    methods: dict[str, Any] = {point: wait if point in ("pre_bind", "bind") else method}
    if point == "pre_score":
        methods["score"] = lambda self, state, pod, nodes: np.zeros(len(nodes), dtype=np.int64)
    if point == "reserve":
        methods["unreserve"] = lambda self, state, pod, node_name: None
    if point == "pre_bind":
        methods["pre_bind_pre_flight"] = lambda self, state, pod, node_name: None
    return type("Exiting", (Plugin,), methods)


@pytest.mark.parametrize("error", EXITS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "tasks"])
@virtual
async def test_one_attempt_fails_and_others_go_on(
    point: str, error: type[BaseException], eager: bool
) -> None:
    pods = [make_pod("bad"), make_pod("good")]
    nodes = [make_node("n1"), make_node("n2")]
    config = FIRST_BINDER if point == "bind" else None
    plugins = [exiting(point, error)]
    async with running(*nodes, *pods, plugins=plugins, config=config, eager=eager) as world:
        await asyncio.sleep(30)
        assert not world.node_of("bad")
        assert world.node_of("good")
        assert '"Exiting"' in world.message("bad")
        assert f"{error.__name__}: told to" in world.message("bad")


def test_an_interrupt_by_the_user_is_not_the_plugins() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert KeyboardInterrupt not in plugin_exceptions()
    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, exiting("pre_filter", KeyboardInterrupt)])
    core.cluster.set_node(make_node("n"))
    with pytest.raises(KeyboardInterrupt):
        core.decide(make_pod("bad"))


def test_a_plugin_file_that_exits_is_named(tmp_path: Path) -> None:
    file = tmp_path / "exiting.py"
    file.write_text("import sys\nsys.exit(7)\n")
    with pytest.raises(InputError, match=r"exiting.py.*SystemExit: 7"):
        load_plugin(f"{file}:Exiting")


@pytest.mark.parametrize("another_loop", [False, True])
def test_a_plugin_is_not_blamed_when_its_loop_is_abandoned(another_loop: bool) -> None:
    """The coroutine is closed at PreBind, perhaps while another loop runs: not an error of the plugin."""

    class Waiting(Plugin):
        def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            return None

        async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            await suspended()
            return None

    plugin = make_plugin(Waiting)
    profile = Profile("p", {Point.PRE_BIND: [plugin]}, {})
    placed = Placement(profile, CycleState(), make_pod("a"), "n")
    work = EXTENSION_POINTS.pre_bind(profile.pre_binds[0], placed, lambda: "")
    work.send(None)
    if another_loop:
        asyncio.run(closing(work))
    else:
        work.close()  # raises what the coroutine raises instead of GeneratorExit


async def closing(work: Coroutine[None, None, None]) -> None:
    work.close()


@types.coroutine
def suspended() -> Generator[None, None, None]:
    yield
