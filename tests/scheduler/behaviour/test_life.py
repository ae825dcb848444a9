"""How a scheduler begins and ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import ServerError
from bayplan.simulate.virtual_time import current_loop
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, Cluster, plugin, running, virtual


class SlowNodes(Cluster):
    """Its nodes take a while to be listed."""

    async def list(self, kind: type[Any]) -> Any:
        if kind is Node:
            await asyncio.sleep(10)
        return await super().list(kind)


@virtual
async def test_nothing_is_tried_before_informers_have_synced() -> None:
    async with running(make_node("n"), make_pod("p"), kind_of_cluster=SlowNodes) as world:
        await world.after(9)
        assert world.decisions == []
        await world.after(1)
        assert world.node_of("p") == "n"


class BrokenLists(Cluster):
    """No list can be had at first."""

    async def list(self, kind: type[Any]) -> Any:
        if asyncio.get_running_loop().time() < 5:
            raise ServerError("starting up")
        return await super().list(kind)


@virtual
async def test_an_api_server_that_is_not_up_yet_is_waited_for() -> None:
    async with running(make_node("n"), make_pod("p"), kind_of_cluster=BrokenLists) as world:
        await world.after(20)
        assert world.node_of("p") == "n"


@virtual
async def test_it_ends_when_it_is_stopped() -> None:
    async with running(make_node("n")) as world:
        world.scheduler.stop()
        await asyncio.wait_for(world.run, 1)
        await world.create(make_pod("p"))
        assert world.decisions == []


@virtual
async def test_bindings_under_way_are_left_where_they_are_when_it_ends() -> None:
    """The next one finds the pod without a node, or with it."""
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", Answer(seconds=10))
        await world.create(make_pod("p"))
        world.scheduler.stop()
        await asyncio.wait_for(world.run, 1)
        await world.after(20)
        assert world.node_of("p") == ""
        assert world.condition("p") is None


@virtual
async def test_it_ends_with_an_error_where_it_cannot_take_in_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Better than to continue without any more events."""

    def unsortable(*_: Any) -> None:
        raise ArithmeticError("pods cannot be compared")

    async def live() -> None:
        async with running(make_node("n")) as world:
            monkeypatch.setattr(world.scheduler.context.queue, "add", unsortable)
            await world.create(make_pod("p"))
            await world.after(3600)

    with pytest.raises(ArithmeticError, match="pods cannot be compared"):
        await live()


@pytest.mark.parametrize(
    ("sort_key", "text"),
    [
        pytest.param(
            lambda pod, timestamp: 1 / 0 if pod.name == "a" else pod.name,
            "ZeroDivisionError: division by zero (test_life.py",
            id="an exception",
        ),
        pytest.param(
            lambda pod, timestamp: None if pod.name == "a" else pod.name,
            "sort_key returned None; return a number, a string, or a tuple of these",
            id="nothing",
        ),
        pytest.param(
            lambda pod, timestamp: 7 if pod.name == "a" else pod.name,
            "TypeError: '<' not supported between instances of 'int' and 'str'",
            id="what cannot be compared",
        ),
    ],
)
@virtual
async def test_a_pod_without_a_usable_sort_key_is_scheduled_last(
    sort_key: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = "profiles: [{plugins: {queueSort: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
    x = plugin("X", sort_key=sort_key)
    async with running(make_node("n"), plugins=[x], config=config) as world:
        await world.create(make_pod("c"), make_pod("a"), make_pod("b"))
        assert world.order() == ["b", "c", "a"]
    assert f'pod default/a is queued last: running QueueSort plugin "X": {text}' in caplog.text


@virtual
async def test_a_queue_order_of_ones_own() -> None:
    config = "profiles: [{plugins: {queueSort: {enabled: [{name: ByName}], disabled: [{name: '*'}]}}}]"
    by_name = plugin("ByName", sort_key=lambda pod, timestamp: pod.name)
    async with running(make_node("n"), plugins=[by_name], config=config) as world:
        await world.create(make_pod("b", priority=9), make_pod("c"), make_pod("a"))
        assert world.order() == ["a", "b", "c"]


@virtual
async def test_without_running_ahead_bindings_come_out_the_same() -> None:
    """As over HTTP, where every binding is a task."""
    async with running(make_node("n", cpu="4"), eager=False) as world:
        await world.create(*(make_pod(f"p{i}", cpu="1") for i in range(5)))
        assert [world.node_of(f"p{i}") for i in range(5)] == ["n"] * 4 + [""]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0.5, ["a", "urgent", "b", "c"], id="slow"),
        pytest.param(0.0001, ["a", "b", "c", "urgent"], id="quick"),
    ],
)
@virtual
async def test_a_plugin_that_takes_long_does_not_keep_news_from_the_scheduler(
    seconds: float, expected: list[str]
) -> None:
    """A pod of higher priority comes while the first of three is decided about."""

    def take_long(state: Any, pod: Pod, nodes: Any) -> None:
        current_loop().busy(seconds)
        if pod.name == "a":
            world.store.create(make_pod("urgent", priority=9))

    async with running(make_node("n"), plugins=[plugin("Slow", pre_filter=take_long)]) as world:
        await world.create(make_pod("a"), make_pod("b"), make_pod("c"))
        await world.after(3)
        assert world.order() == expected
