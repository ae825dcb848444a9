"""Events that may help pods which wait."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.framework.events import Action, Resource, event_with_hint
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Status
from bayplan.scheduling_queue.object_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_TIMEOUT,
)
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .queues import World, hint_of, make_filter, make_profile


def test_only_pods_that_the_event_helps_are_moved() -> None:
    hint = hint_of({"a": True, "b": False, "c": True})
    world = World(
        make_filter("Fit", [event_with_hint(Resource.NODE, Action.ADD, hint)]), make_filter("Other", [])
    )
    world.reject("a")
    world.reject("b")
    world.reject("c", "Other")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert [world.where(name) for name in "abc"] == ["backoff", "unschedulable", "unschedulable"]


@pytest.mark.parametrize(
    ("pending", "later", "expected"),
    [
        pytest.param([], 0.0, "backoff", id="it backs off"),
        pytest.param([], 1.9, "backoff", id="it still backs off"),
        pytest.param([], 2.0, "active", id="it is done backing off"),
        pytest.param(["Fit"], 0.0, "active", id="a pending plugin spares it that"),
    ],
)
def test_where_a_pod_is_moved(pending: list[str], later: float, expected: str) -> None:
    world = World(make_filter("Fit"))
    world.reject("p", "Fit", pending=pending)
    world.clock.now += later
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == expected
    assert world.counts.incoming_pods[expected, "NodeAdd"] == 1


def test_a_move_does_not_change_the_record() -> None:
    world = World(make_filter("Fit"))
    world.reject()
    world.clock.now = 60.0
    world.queue.move_to_active_or_backoff(NODE_ADD)
    info = world.info()
    assert (info.timestamp, info.attempts, info.unschedulable_count) == (0.0, 1, 1)


def test_a_precheck_leaves_waiting_pods_out_but_not_those_in_flight() -> None:
    world = World(make_filter("Fit"))
    world.reject("low", priority=1)
    world.reject("high", priority=9)
    world.add("flying", priority=9)
    world.pop()
    world.queue.move_to_active_or_backoff(NODE_ADD, precheck=lambda pod: pod.priority <= 5)
    world.fail("flying", "Fit")
    assert [world.where(name) for name in ("low", "high", "flying")] == [
        "backoff",
        "unschedulable",
        "backoff",
    ]


@pytest.mark.parametrize(
    ("event", "recorded"),
    [
        pytest.param(NODE_ADD, {"PodPopped": 1, "NodeAdd": 1}, id="one with registrations"),
        pytest.param(NODE_DELETE, {"PodPopped": 1}, id="not one without registrations"),
        pytest.param(UNSCHEDULABLE_TIMEOUT, {"PodPopped": 1, "UnschedulableTimeout": 1}, id="a wildcard"),
    ],
)
def test_what_is_recorded_for_pods_in_flight(event: Any, recorded: dict[str, int]) -> None:
    world = World(make_filter("Fit"))
    world.add()
    world.pop()
    world.queue.move_to_active_or_backoff(event)
    assert world.queue.in_flight_counts() == recorded


def test_nothing_is_recorded_while_no_pod_is_in_flight() -> None:
    world = World(make_filter("Fit"))
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.queue.in_flight_counts() == {}


def test_hints_are_called_only_for_pods_that_the_event_may_concern() -> None:
    called: list[str] = []

    def note(pod: Pod, old: Any, new: Any) -> bool:
        called.append(pod.name)
        return False

    deleted = event_with_hint(Resource.POD, Action.DELETE, note)
    world = World(make_filter("Fit", [deleted]), make_filter("Ports", [deleted]), make_filter("Name"))
    for name, plugin in (("a", "Fit"), ("b", "Name"), ("c", "Ports"), ("d", "Fit")):
        world.reject(name, plugin)
    world.queue.move_to_active_or_backoff(ASSIGNED_POD_DELETE)
    assert sorted(called) == ["a", "c", "d"]
    called.clear()
    world.queue.move_to_active_or_backoff(ASSIGNED_POD_ADD)
    assert called == []


def test_pods_rejected_by_extenders_are_moved_by_anything() -> None:
    world = World(extenders=True)
    world.reject("p", "Extender")
    world.queue.move_to_active_or_backoff(ASSIGNED_POD_ADD)
    assert world.where() == "backoff"


def test_each_profile_has_its_own_registrations() -> None:
    ours = make_profile(make_filter("Fit"))
    theirs = make_profile(make_filter("Fit", [event_with_hint(Resource.POD, Action.ADD)]), name="other")
    world = World(profiles=[ours, theirs])
    world.reject("ours")
    world.reject("theirs", scheduler_name="other")
    world.queue.move_to_active_or_backoff(ASSIGNED_POD_ADD)
    assert (world.where("ours"), world.where("theirs")) == ("unschedulable", "backoff")


def test_a_plugin_may_activate_others_while_it_is_run() -> None:
    """As one does that activates a group when its last member has come: no pod is moved twice."""

    class Group(Plugin):
        def pre_enqueue(self, pod: Pod) -> Status | None:
            if pod.name == "a":
                world.queue.activate([make_pod("b")])
            return None

    world = World(make_plugin(Group), make_filter("Fit"))
    for name in "ab":
        world.add(name)
        world.pop()
        world.fail(name, "Fit")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where("a"), world.where("b")) == ("backoff", "active")
    assert world.counts.incoming_pods["backoff", "NodeAdd"] == 1
