"""The next pod: the order of activeQ, pods that back off, and pods in flight."""

from __future__ import annotations

import logging

import pytest

from bayplan.scheduling_queue.object_events import NODE_ADD
from bayplan.scheduling_queue.waiting import QueueSettings
from bayplan.testing.builders import make_pod

from .queues import Gate, World, make_filter


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        pytest.param(["a 0", "b 0", "c 0"], "a b c", id="first come, first served"),
        pytest.param(["a 0", "b 5", "c 5"], "b c a", id="higher priority first"),
        pytest.param(["a -1", "b None", "c 1"], "c b a", id="no priority counts as zero"),
    ],
)
@pytest.mark.parametrize("apart", [pytest.param(1.0, id="one by one"), pytest.param(0.0, id="all at once")])
def test_order(arrivals: list[str], expected: str, apart: float) -> None:
    world = World()
    for arrival in arrivals:
        name, priority = arrival.split()
        world.add(name, priority=None if priority == "None" else int(priority))
        world.clock.now += apart
    assert world.pop_all() == expected.split()


def test_a_pod_that_comes_back_is_behind_those_that_were_not_tried() -> None:
    world = World(make_filter("Fit"))
    world.add("a")
    world.pop()
    world.clock.now = 1.0
    world.add("b")
    world.clock.now = 20.0
    world.fail("a", pending=["Fit"])
    world.queue.activate([world.latest["default/a"]])
    assert world.pop_all() == ["b", "a"]


def test_pods_that_come_back_at_the_same_time_keep_their_order() -> None:
    world = World(make_filter("Fit"))
    for name in "abc":
        world.add(name)
    world.pop_all()
    for name in "cab":
        world.fail(name, "Fit")
    world.clock.now = 20.0
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.pop_all() == ["c", "a", "b"]


def test_moves_do_not_change_the_order() -> None:
    """Pods that wait since the same time as before are tried in the order in which they failed."""
    world = World(make_filter("Fit"))
    for name in "abc":
        world.reject(name)
        world.clock.now += 20.0
    world.add("d")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.pop_all() == ["a", "b", "c", "d"]


def test_an_empty_queue_has_no_pod() -> None:
    world = World()
    assert (world.queue.has_ready, world.pop()) == (False, None)


def test_a_pod_that_backs_off_is_popped_at_once_when_no_pod_is_active() -> None:
    world = World(make_filter("Fit"))
    world.reject("low")
    world.reject("high", priority=1)
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where("low"), world.where("high")) == ("backoff", "backoff")
    world.add("new")
    assert world.pop_all() == ["new", "high", "low"]
    assert world.counts.incoming_pods["active", "PopFromBackoffQ"] == 2


def test_a_pod_after_an_error_is_never_popped_early() -> None:
    world = World()
    world.add()
    world.pop()
    world.fail("p")
    assert (world.where(), world.queue.has_ready, world.pop()) == ("backoff", False, None)
    world.pass_time(1.9)
    assert world.pop() is None
    world.pass_time(0.1)
    assert (world.queue.has_ready, world.pop()) == (True, "p")


def test_without_the_feature_no_pod_is_popped_early() -> None:
    world = World(make_filter("Fit"), settings=QueueSettings(pop_from_backoff=False))
    world.reject()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where(), world.queue.has_ready, world.pop()) == ("backoff", False, None)


def test_popping_counts_attempts_and_cycles() -> None:
    world = World(make_filter("Fit"))
    world.reject()
    world.queue.activate([world.latest["default/p"]])
    world.pop()
    assert (world.flying["p"].attempts, world.queue.scheduling_cycle) == (2, 2)


def test_the_rejectors_of_a_pod_are_kept_while_it_is_tried() -> None:
    world = World(make_filter("Fit"))
    world.reject()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.pop()
    assert world.flying["p"].rejectors == {"Fit"}
    assert world.counts.unschedulable_pods == {("Fit", "default-scheduler"): 0}


def test_a_pod_that_is_in_flight_already_is_discarded(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.add("p")
    world.pop()
    world.add("p")
    world.add("q")
    with caplog.at_level(logging.ERROR):
        assert world.pop_all() == ["q"]
    assert caplog.messages == ["the same pod is tracked in multiple places in the scheduler: default/p"]
    assert (world.queue.scheduling_cycle, world.queue.find("default/p")) == (2, None)


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    world = World()
    world.add("p", uid="1")
    world.pop()
    world.add("p", uid="2")
    assert world.pop() == "p"
    assert world.queue.in_flight_counts() == {"PodPopped": 2}


def test_done_ends_the_attempt_and_may_be_called_twice() -> None:
    world = World()
    pod = world.add()
    world.pop()
    assert world.queue.is_in_flight(pod.uid)
    world.queue.done(pod.uid)
    world.queue.done(pod.uid)
    assert (world.queue.is_in_flight(pod.uid), world.queue.in_flight_counts()) == (False, {})


def test_a_closed_queue_still_gives_the_pods_that_wait() -> None:
    world = World(make_filter("Fit"))
    world.reject("b")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    for name in "ac":
        world.add(name)
    assert world.pop() == "a"
    world.queue.close()
    assert world.queue.in_flight_counts() == {}
    assert world.pop_all() == ["c", "b"]


@pytest.mark.parametrize(
    ("gated", "expected"),
    [
        pytest.param(False, 5.0, id="the time of addition"),
        pytest.param(True, 9.0, id="when its gates opened"),
    ],
)
def test_the_first_attempt_counts_from(gated: bool, expected: float) -> None:
    """And not from later attempts."""
    gate = Gate({"p"} if gated else ())
    world = World(gate, make_filter("Fit"), start=5.0)
    world.add()
    world.clock.now = 9.0
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.pop()
    world.clock.now = 30.0
    world.fail("p", "Fit")
    world.queue.activate([make_pod()])
    assert world.info().initial_attempt_timestamp == expected
