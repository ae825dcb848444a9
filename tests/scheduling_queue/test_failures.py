"""Pods that come back from a failed attempt: their queue, and what is counted."""

from __future__ import annotations

import logging

import pytest

from bayplan.framework.events import Action, ClusterEvent, Resource, event_with_hint
from bayplan.framework.outcome import Nomination
from bayplan.scheduling_queue.object_events import (
    ASSIGNED_POD_ADD,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_TIMEOUT,
)
from bayplan.scheduling_queue.sub_queues import PodHeap
from bayplan.scheduling_queue.waiting import QueueSettings
from bayplan.testing.builders import make_pod

from .queues import Gate, World, make_filter

PLUGINS = make_filter("Fit"), make_filter("Pending", [event_with_hint(Resource.POD, Action.ADD)])


@pytest.mark.parametrize(
    ("rejectors", "pending", "meanwhile", "expected"),
    [
        pytest.param(["Fit"], [], [], "unschedulable", id="rejected, and nothing happened"),
        pytest.param(
            ["Fit"], [], [NODE_DELETE], "unschedulable", id="rejected, and nothing that helps happened"
        ),
        pytest.param(["Fit"], [], [NODE_DELETE, NODE_ADD], "backoff", id="rejected, and something helped"),
        pytest.param(["Fit"], [], [UNSCHEDULABLE_TIMEOUT], "backoff", id="rejected, and others were flushed"),
        pytest.param([], [], [], "backoff", id="an error"),
        pytest.param([], [], [NODE_ADD], "backoff", id="an error, whatever happened"),
        pytest.param([], ["Pending"], [], "unschedulable", id="pending, and nothing happened"),
        pytest.param(
            [], ["Pending"], [ASSIGNED_POD_ADD], "active", id="pending, and what it waits for happened"
        ),
        pytest.param(["Fit"], ["Pending"], [NODE_ADD], "backoff", id="pending, and something else helped"),
        pytest.param(
            ["Fit"], ["Pending"], [NODE_ADD, ASSIGNED_POD_ADD], "active", id="pending, and both happened"
        ),
        pytest.param(
            ["Absent"], [], [NODE_ADD], "unschedulable", id="rejected by a plugin that waits for nothing"
        ),
        pytest.param([""], [], [NODE_ADD], "unschedulable", id="rejected by no plugin"),
    ],
)
def test_where_a_pod_comes_back_to(
    rejectors: list[str], pending: list[str], meanwhile: list[ClusterEvent], expected: str
) -> None:
    world = World(*PLUGINS)
    world.queue.move_to_active_or_backoff(NODE_ADD)  # before it is popped, so not for it
    pod = world.add()
    world.pop()
    for event in meanwhile:
        world.queue.move_to_active_or_backoff(event)
    assert world.fail("p", *rejectors, pending=pending)
    assert (world.where(), world.queue.is_in_flight(pod.uid)) == (expected, False)
    assert world.counts.incoming_pods[expected, "ScheduleAttemptFailure"] == 1


def test_a_pod_that_is_no_longer_in_flight_comes_back_after_a_backoff() -> None:
    """What happened meanwhile is unknown, so something may have helped."""
    world = World(*PLUGINS)
    pod = world.add()
    world.pop()
    world.queue.done(pod.uid)
    world.fail("p", "Fit")
    assert world.where() == "backoff"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(None, "backoff", id="not after an attempt that failed with an error, again and again"),
        pytest.param(NODE_ADD, "active", id="but after an event that may have made the room"),
    ],
)
def test_a_nominated_pod_in_a_capacity_queue_does_not_back_off(
    event: ClusterEvent | None, expected: str
) -> None:
    """Otherwise others would take the place that was freed for it."""
    world = World(*PLUGINS, active=PodHeap("active"))
    pod = world.add()
    world.queue.nominations.add(pod, Nomination("a"))
    world.pop()
    world.fail("p", *(() if event is None else ("Fit",)))
    if event is not None:
        world.queue.move_to_active_or_backoff(event)
    assert world.where() == expected


def test_a_pod_that_is_done_backing_off_comes_back_active() -> None:
    """Which is so only where backing off is switched off: the time of the failure is what counts."""
    world = World(settings=QueueSettings(max_backoff=0))
    world.add()
    world.pop()
    world.fail("p")
    assert world.where() == "active"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param("R", (1, 0, 1), id="a rejection"),
        pytest.param("RR", (2, 0, 2), id="rejections add up"),
        pytest.param("E", (0, 1, 1), id="an error"),
        pytest.param("EEE", (0, 3, 4), id="errors in a row add up"),
        pytest.param("RRRE", (3, 1, 1), id="an error begins again"),
        pytest.param("EEEER", (1, 0, 1), id="a rejection ends the errors"),
        pytest.param("REREE", (2, 2, 2), id="only errors in a row count"),
        pytest.param("RRRRRRRR", (8, 0, 10), id="up to the limit"),
    ],
)
def test_counts_and_backoff(outcomes: str, expected: tuple[int, int, float]) -> None:
    """Rejections and errors in a row, and for how long the pod backs off after the last of them."""
    world = World(*PLUGINS, start=1000.0)
    world.add()
    for outcome in outcomes:
        world.queue.activate([make_pod()])
        world.pop()
        world.clock.now += 0.25
        world.queue.move_to_active_or_backoff(NODE_ADD)
        world.fail("p", *(["Fit"] if outcome == "R" else []))
    info = world.info()
    assert info.backoff_expiration is not None
    waits = info.backoff_expiration - int(info.timestamp)
    assert (info.unschedulable_count, info.consecutive_errors_count, waits) == expected


def test_a_failure_clears_the_earlier_rejectors_and_gates() -> None:
    gate = Gate({"p"})
    world = World(gate, *PLUGINS)
    world.add()
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.pop()
    world.fail("p", "Fit", pending=["Pending"])
    info = world.info()
    assert set(info.unschedulable_plugins) == {"Fit", "Pending"}
    assert (set(info.pending_plugins), info.gating_plugin) == ({"Pending"}, "")


def test_the_pod_comes_back_in_its_latest_version() -> None:
    world = World(*PLUGINS)
    world.add()
    world.pop()
    new = world.update(labels={"a": "b"})
    world.fail("p", "Fit")
    assert world.info().pod is new


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("unschedulable", "Pod default/p is already present in unschedulable queue"),
        ("active", "Pod default/p is already present in the active queue"),
        ("backoff", "Pod default/p is already present in the backoff queue"),
    ],
)
def test_a_pod_that_is_in_the_queue_already(
    part: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another of the same name was added meanwhile. The attempt is over all the same."""
    world = World(*PLUGINS)
    old = world.add("p", uid="old")
    world.pop()
    stale = world.flying.pop("p")
    if part == "active":
        world.add("p", uid="new")
    else:
        world.reject("p", "Fit", uid="new")
        if part == "backoff":
            world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == part
    present = world.info()
    with caplog.at_level(logging.ERROR):
        assert not world.queue.add_unschedulable_if_not_present(stale, old, {"Fit"})
    assert caplog.messages == [message]
    assert (world.info(), world.queue.is_in_flight("old")) == (present, False)


@pytest.mark.parametrize(
    ("rejectors", "meanwhile"),
    [
        pytest.param(["Fit"], [NODE_ADD], id="on the way to backing off"),
        pytest.param([], [], id="after an error"),
        pytest.param([], [ASSIGNED_POD_ADD], id="after an error, with events"),
    ],
)
def test_a_gate_may_close_meanwhile(rejectors: list[str], meanwhile: list[ClusterEvent]) -> None:
    """As it does for a pod whose victims are being evicted."""
    gate = Gate()
    world = World(gate, *PLUGINS)
    world.add()
    world.pop()
    gate.closed.add("p")
    for event in meanwhile:
        world.queue.move_to_active_or_backoff(event)
    world.fail("p", *rejectors)
    info = world.info()
    assert (world.where(), info.gating_plugin) == ("unschedulable", "Gate")
    assert info.rejectors == {*rejectors, "Gate"}
    assert world.counts.incoming_pods["unschedulable", "ScheduleAttemptFailure"] == 1


def test_gates_are_not_run_where_nothing_helped() -> None:
    gate = Gate()
    world = World(gate, *PLUGINS)
    world.add()
    world.pop()
    gate.closed.add("p")
    world.fail("p", "Fit")
    assert (world.where(), world.info().gating_plugin, gate.calls) == ("unschedulable", "", ["p"])


def test_a_nominated_pod_counts_as_itself_only_while_it_waits() -> None:
    world = World(*PLUGINS)
    pod = world.add("p", cpu="1", priority=7)
    world.queue.nominations.add(pod, Nomination("n"))
    world.pop()
    assert [nominated.priority for nominated in world.queue.nominations.pods_on("n")] == [0]
    world.fail("p", "Fit")
    assert [nominated.priority for nominated in world.queue.nominations.pods_on("n")] == [7]
