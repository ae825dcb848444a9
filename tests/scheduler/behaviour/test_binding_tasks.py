"""Which task the coroutines of PreBind and Bind run in.

A time-out ends what runs in its task. So plugins that are not built in, and extenders, never run in the task
of the scheduling loop, not even before they first wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.plugins.default_binder import DefaultBinder
from bayplan.testing.builders import make_node, make_pod

from .running import Cluster, World, plugin, running, virtual
from .test_extenders import SlowExtenders

X_BINDS = (
    "profiles: [{plugins: {multiPoint: {enabled: [{name: X}]}, "
    "bind: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
)


async def times_out(*_: Any) -> None:
    async with asyncio.timeout(5):
        await asyncio.sleep(60)


def late_binder() -> type[Plugin]:
    return plugin("X", bind=times_out)


def late_derived_binder() -> type[Plugin]:
    class X(DefaultBinder):
        name = "X"

        async def bind(self, *args: Any) -> None:
            await times_out()

    return X


def late_binder_after_permit() -> type[Plugin]:
    return plugin("X", permit=lambda *_: Wait(30), bind=times_out)


def late_pre_bind() -> type[Plugin]:
    async def bind(*_: Any) -> None: ...

    return plugin("X", pre_bind_pre_flight=lambda *_: None, pre_bind=times_out, bind=bind)


def allow_all(world: World) -> None:
    for waiting in list(world.context.waiting):
        waiting.allow("X")


@pytest.mark.parametrize(
    ("make", "point"),
    [
        pytest.param(late_binder, "Bind", id="Bind"),
        pytest.param(late_derived_binder, "Bind", id="Bind derived from a built-in plugin"),
        pytest.param(late_binder_after_permit, "Bind", id="Bind after Permit"),
        pytest.param(late_pre_bind, "PreBind", id="PreBind"),
    ],
)
@virtual
async def test_a_time_out_ends_only_the_binding(make: Callable[[], type[Plugin]], point: str) -> None:
    async with running(make_node("n"), make_pod("p"), plugins=[make()], config=X_BINDS) as world:
        allow_all(world)
        await world.after(5)
        assert world.message("p").startswith(f'running {point} plugin "X": TimeoutError')
        await world.create(make_pod("q"))
        assert (world.attempts("q"), world.run.done()) == (1, False)


@virtual
async def test_a_binding_by_an_extender_that_times_out_ends_only_that_binding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class LateExtenders(SlowExtenders):
        async def bind(self, pod: Pod, node_name: str) -> bool:
            try:
                await times_out()
            except TimeoutError:
                raise BayplanError("too late") from None
            return True

    LateExtenders(monkeypatch, seconds=0)
    async with running(make_node("n"), make_pod("p")) as world:
        await world.after(5)
        assert world.message("p") == "too late"
        assert not world.run.done()


@pytest.mark.parametrize("built_in", [False, True], ids=["task", "eager"])
@virtual
async def test_a_prebind_that_is_built_in_has_no_task_until_it_waits(built_in: bool) -> None:
    tasks = []

    async def pre_bind(*_: Any) -> None:
        tasks.append(asyncio.current_task())

    x = plugin("X", built_in=built_in, pre_bind_pre_flight=lambda *_: None, pre_bind=pre_bind)
    async with running(make_node("n"), make_pod("p"), make_pod("q"), plugins=[x]) as world:
        assert (world.node_of("p"), world.node_of("q")) == ("n", "n")
        assert len(set(tasks)) == (1 if built_in else 2)


class TasksOfBindings(Cluster):
    """Records the task of each binding."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tasks: set[object] = set()

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        self.tasks.add(asyncio.current_task())
        await super().bind(pod, node_name, annotations)


class Derived(DefaultBinder):
    name = "X"


@pytest.mark.parametrize(
    ("plugins", "config", "tasks"),
    [
        pytest.param([], None, 1, id="built in: all in the task of the loop"),
        pytest.param([Derived], X_BINDS, 3, id="others: a task for each binding"),
    ],
)
@virtual
async def test_tasks_of_bind(plugins: list[type[Plugin]], config: str | None, tasks: int) -> None:
    pods = [make_pod(name) for name in "pqr"]
    async with running(
        make_node("n"), *pods, plugins=plugins, config=config, kind_of_cluster=TasksOfBindings
    ) as world:
        assert [world.node_of(name) for name in "pqr"] == ["n"] * 3
        assert isinstance(world.cluster, TasksOfBindings)
        assert len(world.cluster.tasks) == tasks
