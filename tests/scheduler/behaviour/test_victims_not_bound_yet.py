"""Victims between decision and binding: they are stopped in memory, if it is not too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.metrics import SchedulerMetrics
from bayplan.plugins.default_preemption import DefaultPreemption
from bayplan.testing.builders import make_pod
from tests.metrics.scrape import values

from .preempting import MESSAGE, NODE, preemptor
from .running import Answer, plugin, running, virtual


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
