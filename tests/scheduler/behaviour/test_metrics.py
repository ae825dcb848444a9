"""A life in which everything happens once, and a scrape afterwards."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import ConflictError
from bayplan.framework.plugin_api import Wait
from bayplan.framework.status import unschedulable
from bayplan.metrics import SchedulerMetrics
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod, make_storage_class

from .running import World, plugin, running


class EveryCycle(random.Random):
    """Samples every cycle."""

    def random(self) -> float:
        return 0.0


class NoCycle(random.Random):
    """Samples practically no cycle."""

    def random(self) -> float:
        return 1.0 - 2**-53


def hold(state: Any, pod: Any, node_name: str) -> Any:
    """Permit: some pods wait, some are rejected."""
    match pod.labels.get("permit"):
        case "wait":
            return Wait(10.0)
        case "reject":
            return unschedulable("not now")
    return None


def trip(state: Any, pod: Any, nodes: Any) -> Any:
    """Filter: raises for some pods."""
    if "break" in pod.labels:
        raise ArithmeticError("tripped")
    return ()


HOLD = plugin("Hold", permit=hold, events_to_register=lambda: ())
TRIP = plugin("Trip", filter=trip, events_to_register=lambda: ())


Story = Callable[[World], Awaitable[None]]


def scraped(story: Story, sampler: random.Random | None = None) -> dict[str, dict[tuple[str, ...], float]]:
    """A scrape after a story: by family, its series that are not 0 by their label values.

    Durations are left out: they are this machine's. The profile is left out, too: it is the same everywhere.
    """

    async def live() -> bytes:
        nodes = make_node("n", cpu="4"), make_node("small", cpu="1")
        async with running(*nodes, plugins=[HOLD, TRIP], metrics=metrics) as world:
            await story(world)
            await world.after(0)
            return metrics.exposition()

    metrics = SchedulerMetrics(sampler or EveryCycle())
    text = run_virtual(live()).decode()
    families: dict[str, dict[tuple[str, ...], float]] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"scheduler_(\w+?)(?:_count)?(?:\{(.*)\})? (\S+)", line)
        if found and not re.search(r"_(bucket|sum)$", found[1]) and float(found[3]):
            labels = re.findall(r'(\w+)="(.*?)"', found[2] or "")
            key = tuple(value for name, value in labels if name != "profile")
            families.setdefault(found[1], {})[key] = float(found[3])
    return families


async def bound(world: World) -> None:
    await world.create(make_pod("p", cpu="500m"))
    assert world.node_of("p")


async def bound_to_the_only_node(world: World) -> None:
    await world.create(make_pod("p", cpu="3"))
    assert world.node_of("p") == "n"


async def allowed(world: World) -> None:
    await world.create(make_pod("p", cpu="3", labels={"permit": "wait"}))
    await world.after(2)
    (waiting,) = world.context.waiting
    waiting.allow("Hold")


async def kept_waiting(world: World) -> None:
    await world.create(make_pod("p", cpu="3", labels={"permit": "wait"}))
    await world.after(10)
    await world.delete("p")


async def still_waiting(world: World) -> None:
    await world.create(make_pod("p", cpu="3", labels={"permit": "wait"}))


async def rejected_by_permit(world: World) -> None:
    await world.create(make_pod("p", cpu="3", labels={"permit": "reject"}))


async def broken(world: World) -> None:
    await world.create(make_pod("p", labels={"break": "it"}))
    await world.delete("p")


async def not_bound(world: World) -> None:
    world.cluster.will_answer("bind", ConflictError("another was faster"))
    await world.create(make_pod("p", cpu="3"))


async def too_large(world: World) -> None:
    await world.create(make_pod("p", cpu="64"))


async def unknown_claim(world: World) -> None:
    await world.create(make_pod("p", claims=["missing"]))


async def gated(world: World) -> None:
    await world.create(make_pod("p", gates=["later"]))


async def room_made(world: World) -> None:
    await world.create(make_pod("victim", cpu="4"))
    await world.create(make_pod("p", cpu="4", priority=9))
    await world.after(30)
    assert (world.names(), world.node_of("p")) == (["p"], "n")


async def things_change(world: World) -> None:
    await world.create(make_pod("p", cpu="3"), make_pod("q", cpu="64"))
    await world.update("p", lambda pod: relabelled(pod, "a"))
    await world.update("q", lambda pod: relabelled(pod, "a"))
    await world.update_node(make_node("n", cpu="5", labels={"a": "b"}))
    await world.delete_node("small")
    await world.delete("p", "q")
    await world.create(make_storage_class("fast"))


def relabelled(pod: Pod, value: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, labels={"value": value}))


S, ERROR, NO, NEVER = "Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable"
BEFORE = {("PreEnqueue", S): 1, ("PreFilter", S): 1, ("Filter", S): 1}
RESERVED = {**BEFORE, ("Reserve", S): 1}
PERMITTED = {**RESERVED, ("Permit", S): 1, ("PreBindPreFlight", "Skip"): 1, ("PreBind", S): 1}
BOUND = {**PERMITTED, ("Bind", S): 1, ("PostBind", S): 1}
HELD = {**RESERVED, ("Permit", "Wait"): 1, ("PreBindPreFlight", "Skip"): 1}

POINTS = "framework_extension_point_duration_seconds"
ALWAYS_MEASURED = ("PreEnqueue", "PostFilter", "Unreserve")

points_by_story = pytest.mark.parametrize(
    ("story", "expected"),
    [
        pytest.param(bound, {**BOUND, ("PreScore", S): 1, ("Score", S): 1}, id="a pod is bound"),
        pytest.param(bound_to_the_only_node, BOUND, id="nothing is scored where one node fits"),
        pytest.param(
            allowed,
            {**HELD, ("PreBind", S): 1, ("Bind", S): 1, ("PostBind", S): 1},
            id="a pod waits for its permit",
        ),
        pytest.param(still_waiting, HELD, id="while it waits, the points before are observed already"),
        pytest.param(kept_waiting, {**HELD, ("Unreserve", S): 1}, id="its wait ends with a rejection"),
        pytest.param(
            rejected_by_permit,
            {**RESERVED, ("Permit", NO): 1, ("Unreserve", S): 1},
            id="Permit rejects it",
        ),
        pytest.param(
            broken, {("PreEnqueue", S): 2, ("PreFilter", S): 1, ("Filter", ERROR): 1}, id="a Filter raises"
        ),
        pytest.param(
            not_bound,
            {**PERMITTED, ("PreEnqueue", S): 2, ("Bind", ERROR): 1, ("Unreserve", S): 1},
            id="it is not bound",
        ),
        pytest.param(too_large, {**BEFORE, ("PostFilter", NO): 1}, id="no node fits"),
        pytest.param(
            unknown_claim,
            {("PreEnqueue", S): 1, ("PreFilter", NEVER): 1, ("PostFilter", ERROR): 1},
            id="no node is evaluated",
        ),
        pytest.param(
            room_made,
            {
                **dict.fromkeys(BOUND, 2.0),
                **{(point, S): 3.0 for point in ("PreEnqueue", "PreFilter", "Filter")},
                ("PostFilter", S): 1,
            },
            id="room is made for it",
        ),
        pytest.param(gated, {("PreEnqueue", S): 1}, id="a gate is closed, which upstream calls a success"),
    ],
)


@points_by_story
def test_a_sampled_attempt_observes_every_point(story: Story, expected: dict[tuple[str, str], float]) -> None:
    assert scraped(story, EveryCycle())[POINTS] == expected


@points_by_story
def test_other_attempts_observe_only_what_is_always_measured(
    story: Story, expected: dict[tuple[str, str], float]
) -> None:
    """No observation is made up. (PreBind is always measured where it has work to do: it has none here.)"""
    always = {key: count for key, count in expected.items() if key[0] in ALWAYS_MEASURED}
    assert scraped(story, NoCycle())[POINTS] == always


FIRST = ("NodeName", "NodeUnschedulable", "TaintToleration", "NodeResourcesFit")
FILTERS = (*FIRST, "Trip")
PRE_FILTERED = {("PreFilter", name): 1.0 for name in FIRST}
FILTERED = {**PRE_FILTERED, **{("Filter", name): 1.0 for name in FILTERS}}
SCORES = ("TaintToleration", "NodeResourcesFit", "VolumeBinding", "NodeResourcesBalancedAllocation")
SCORED = {
    **{(point, name): 1.0 for point in ("PreScore", "Score") for name in SCORES},
    **{("Score", name): 1.0 for name in ("ImageLocality", "DynamicResources")},
}


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        pytest.param(bound, {**FILTERED, **SCORED}, id="those that skip a pod are not counted"),
        pytest.param(bound_to_the_only_node, FILTERED, id="a single node is not scored"),
        pytest.param(too_large, FILTERED, id="all filters, whichever of them rejects"),
        pytest.param(
            unknown_claim,
            {**PRE_FILTERED, ("PreFilter", "VolumeRestrictions"): 1.0},
            id="PreFilter up to the plugin that ended it",
        ),
    ],
)
def test_evaluated_plugins(story: Story, expected: dict[tuple[str, str], float]) -> None:
    assert scraped(story)["plugin_evaluation_total"] == expected


@pytest.mark.parametrize(
    ("story", "family", "expected"),
    [
        pytest.param(bound, "schedule_attempts_total", {("scheduled",): 1}, id="scheduled"),
        pytest.param(too_large, "schedule_attempts_total", {("unschedulable",): 1}, id="no node fits"),
        pytest.param(
            rejected_by_permit, "schedule_attempts_total", {("unschedulable",): 1}, id="rejected by Permit"
        ),
        pytest.param(broken, "schedule_attempts_total", {("error",): 1}, id="a plugin raised"),
        pytest.param(not_bound, "schedule_attempts_total", {("error",): 1}, id="the binding failed"),
        pytest.param(
            not_bound, "scheduling_attempt_duration_seconds", {("error",): 1}, id="and how long that took"
        ),
        pytest.param(too_large, "scheduling_algorithm_duration_seconds", {(): 1}, id="choosing a node"),
        pytest.param(
            room_made, "pod_scheduling_sli_duration_seconds", {("1",): 1, ("2",): 1}, id="attempts it took"
        ),
        pytest.param(room_made, "pod_scheduling_attempts", {(): 2}, id="pods that were scheduled"),
        pytest.param(room_made, "preemption_attempts_total", {(): 1}, id="preemption was tried"),
        pytest.param(too_large, "preemption_attempts_total", {(): 1}, id="without success, too"),
        pytest.param(room_made, "preemption_victims", {(): 1}, id="one victim"),
        pytest.param(
            room_made,
            "preemption_goroutines_execution_total",
            {("success",): 1},
            id="evicted beside the loop",
        ),
        pytest.param(
            room_made,
            "queue_incoming_pods_total",
            {
                ("UnscheduledPodAdd", "active"): 2,
                ("ScheduleAttemptFailure", "unschedulable"): 1,
                ("AssignedPodDelete", "backoff"): 1,
                ("PopFromBackoffQ", "active"): 1,
            },
            id="the preemptor is requeued",
        ),
        pytest.param(
            gated,
            "queue_incoming_pods_total",
            {("UnscheduledPodAdd", "unschedulable"): 1},
            id="a gated pod",
        ),
        pytest.param(gated, "pending_pods", {("gated",): 1}, id="waits as such"),
        pytest.param(gated, "unschedulable_pods", {("SchedulingGates",): 1}, id="because of its gates"),
        pytest.param(too_large, "unschedulable_pods", {("NodeResourcesFit",): 1}, id="because of its size"),
        pytest.param(not_bound, "pending_pods", {("backoff",): 1}, id="backing off"),
        pytest.param(allowed, "permit_wait_duration_seconds", {(S,): 1}, id="waited and was allowed"),
        pytest.param(kept_waiting, "permit_wait_duration_seconds", {(NO,): 1}, id="rejected after waiting"),
        pytest.param(still_waiting, "goroutines", {("binding",): 1}, id="a binding under way"),
        pytest.param(still_waiting, "inflight_events", {("PodPopped",): 1}, id="a pod in flight"),
        pytest.param(
            still_waiting, "cache_size", {("nodes",): 2, ("pods",): 1, ("assumed_pods",): 1}, id="the cache"
        ),
        pytest.param(
            room_made,
            "queueing_hint_execution_duration_seconds",
            {("AssignedPodDelete", "Queue", "NodeResourcesFit"): 1},
            id="the hint that brought the preemptor back",
        ),
        pytest.param(
            things_change,
            "event_handling_duration_seconds",
            {
                ("NodeAdd",): 2,
                ("NodeUpdateNodeAllocatable",): 1,
                ("NodeUpdateNodeLabel",): 1,
                ("NodeDelete",): 1,
                ("UnscheduledPodAdd",): 2,
                # Its own condition, and its label.
                ("UnscheduledPodUpdate",): 2,
                ("UnscheduledPodUpdatePodLabel",): 1,
                # One was bound, one deleted.
                ("UnscheduledPodDelete",): 2,
                ("AssignedPodAdd",): 1,
                ("AssignedPodUpdate",): 1,
                ("AssignedPodUpdatePodLabel",): 1,
                ("AssignedPodDelete",): 1,
                ("storage.k8s.io/StorageClassAdd",): 1,
            },
            id="all that changes",
        ),
    ],
)
def test_what_else_is_reported(story: Story, family: str, expected: dict[tuple[str, ...], float]) -> None:
    assert scraped(story)[family] == expected


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        pytest.param(bound, ("Score", "NodeResourcesFit", S), id="a plugin whose scores are kept"),
        pytest.param(bound, ("PreScore", "InterPodAffinity", "Skip"), id="one that has nothing to score"),
        pytest.param(bound, ("PreEnqueue", "SchedulingGates", S), id="a gate"),
        pytest.param(bound, ("Bind", "DefaultBinder", S), id="the binder"),
        pytest.param(bound, ("PreBindPreFlight", "VolumeBinding", "Skip"), id="no volumes to bind"),
        pytest.param(gated, ("PreEnqueue", "SchedulingGates", NEVER), id="a closed gate"),
        pytest.param(broken, ("Filter", "Trip", ERROR), id="a plugin that raised"),
        pytest.param(not_bound, ("Bind", "DefaultBinder", ERROR), id="a binding that failed"),
        pytest.param(not_bound, ("Unreserve", "VolumeBinding", S), id="what is taken back"),
        pytest.param(still_waiting, ("Permit", "Hold", "Wait"), id="a permit to be waited for"),
        pytest.param(room_made, ("PostFilter", "DefaultPreemption", S), id="preemption"),
        pytest.param(room_made, ("PostFilter", "DynamicResources", NO), id="what was run before it"),
    ],
)
def test_single_plugins_are_timed_in_a_sampled_cycle(story: Story, expected: tuple[str, str, str]) -> None:
    assert scraped(story)["plugin_execution_duration_seconds"][expected] >= 1


def test_single_plugins_are_not_timed_in_the_others() -> None:
    assert "plugin_execution_duration_seconds" not in scraped(bound, NoCycle())
