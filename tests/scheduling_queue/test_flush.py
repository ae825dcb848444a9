"""What time alone does: pods that are done backing off, and pods that have waited too long."""

from __future__ import annotations

import pytest

from bayplan.scheduling_queue.object_events import NODE_ADD
from bayplan.scheduling_queue.waiting import QueueSettings

from .queues import Gate, World, make_filter


def broken_pod(world: World, name: str = "p") -> None:
    world.add(name)
    assert world.pop() == name
    world.fail(name)


# Backing off


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(100.0, 102.0, id="failed at the beginning of a second"),
        pytest.param(100.25, 102.0, id="failed within a second"),
        pytest.param(100.99, 102.0, id="failed at the end of a second"),
    ],
)
def test_a_pod_is_active_again_when_the_second_of_its_expiration_is_over(
    start: float, expected: float
) -> None:
    world = World(start=start)
    broken_pod(world)
    assert world.queue.next_timer() == expected
    world.clock.now = expected - 0.01
    world.queue.flush()
    assert world.where() == "backoff"
    world.clock.now = expected
    world.queue.flush()
    assert world.where() == "active"
    assert world.counts.incoming_pods["active", "BackoffComplete"] == 1


def test_without_the_feature_ticks_count_from_the_start_and_times_are_exact() -> None:
    world = World(settings=QueueSettings(pop_from_backoff=False), start=100.25)
    assert world.queue.next_timer() is None
    world.clock.now = 100.5
    broken_pod(world)
    assert (world.info().backoff_expiration, world.queue.next_timer()) == (101.5, 102.25)
    world.pass_time(2)
    assert world.where() == "active"


def test_waits_of_six_errors_in_a_row() -> None:
    """1, 2, 4, 8, 10, 10 seconds, to the end of the second."""
    world = World(start=1000.0)
    world.add()
    waits = []
    for _ in range(6):
        world.pop()
        failed_at = world.clock.now
        world.fail("p")
        timer = world.queue.next_timer()
        assert timer is not None
        waits.append(timer - failed_at)
        world.clock.now = timer
        world.queue.flush()
    assert waits == [2, 3, 5, 9, 11, 11]


def test_a_late_flush_moves_all_that_are_done() -> None:
    world = World(make_filter("Fit"))
    broken_pod(world, "c")
    for name in "ab":
        world.reject(name)
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.clock.now = 60.3
    world.queue.flush()
    assert world.queue.counts().active == 3
    assert world.counts.incoming_pods["active", "BackoffComplete"] == 3


def test_flushing_twice_in_a_second_scans_once() -> None:
    world = World()
    world.clock.now = 3.0
    world.queue.flush()
    broken_pod(world)
    world.info().backoff_expiration = 0.0
    world.queue.flush()
    assert (world.where(), world.queue.next_timer()) == ("backoff", 4.0)


# Pods that have waited too long


@pytest.mark.parametrize(
    ("failed_at", "moved_at"),
    [
        pytest.param(0.0, 330.0, id="at exactly five minutes it is not too long yet"),
        pytest.param(1.0, 330.0, id="at the first scan after five minutes"),
        pytest.param(29.9, 330.0, id="just in time for a scan"),
        pytest.param(30.0, 360.0, id="just missed it"),
    ],
)
def test_a_pod_is_flushed_after_five_minutes(failed_at: float, moved_at: float) -> None:
    world = World(make_filter("Fit"))
    world.clock.now = failed_at
    world.reject()
    world.pass_time(moved_at - failed_at - 0.1)
    assert world.where() == "unschedulable"
    assert world.queue.next_timer() == moved_at
    world.pass_time(0.1)
    info = world.info()
    assert (world.where(), info.was_flushed, info.flush_timestamp) == ("active", True, moved_at)
    assert info.timestamp == failed_at
    assert world.counts.incoming_pods["active", "UnschedulableTimeout"] == 1


def test_a_late_scan_uses_the_time_when_it_was_due() -> None:
    """At 300 it is not too long yet, and no scan follows before 330, whatever happens meanwhile."""
    world = World(make_filter("Fit"))
    world.reject()
    world.clock.now = 301.0
    world.queue.flush()
    assert (world.where(), world.queue.next_timer()) == ("unschedulable", 330.0)


def test_without_the_feature_a_late_scan_of_backing_off_pods_uses_the_time_when_it_was_due() -> None:
    world = World(settings=QueueSettings(pop_from_backoff=False))
    world.clock.now = 0.5
    broken_pod(world)
    world.clock.now = 1.9
    world.queue.flush()
    assert (world.where(), world.queue.next_timer()) == ("backoff", 2.0)


def test_how_long_is_too_long_can_be_set() -> None:
    world = World(make_filter("Fit"), settings=QueueSettings(max_in_unschedulable=45))
    world.reject()
    assert world.queue.next_timer() == 60.0


def test_a_pod_that_still_backs_off_is_flushed_into_backing_off() -> None:
    world = World(make_filter("Fit"), settings=QueueSettings(400, 400))
    world.reject()
    world.pass_time(330)
    assert world.where() == "backoff"


def test_a_failure_after_a_flush_begins_again() -> None:
    world = World(make_filter("Fit"))
    world.reject()
    world.pass_time(330)
    world.pop()
    world.fail("p", "Fit")
    info = world.info()
    assert (info.was_flushed, info.flush_timestamp, info.waits_since) == (False, float("-inf"), 330.0)
    assert world.queue.next_timer() == 660.0


def test_gates_are_run_again_for_a_gated_pod_which_waits_for_another_five_minutes() -> None:
    gate = Gate({"p"})
    world = World(gate)
    world.add()
    world.pass_time(330)
    info = world.info()
    assert (world.where(), info.was_flushed, info.flush_timestamp) == ("unschedulable", False, 330.0)
    gate.closed.clear()
    world.pass_time(300)
    assert world.where() == "unschedulable"
    world.pass_time(30)
    assert world.where() == "active"


def test_a_flush_counts_for_pods_in_flight_only_if_there_was_one() -> None:
    world = World(make_filter("Fit"))
    world.add("flying")
    world.pop()
    world.clock.now = 300.0
    world.queue.flush()
    assert world.queue.in_flight_counts() == {"PodPopped": 1}
    world.reject("p")
    world.clock.now = 630.0
    world.queue.flush()
    assert world.queue.in_flight_counts() == {"PodPopped": 1, "UnschedulableTimeout": 1}


def test_an_empty_queue_needs_no_timer() -> None:
    world = World(make_filter("Fit"))
    assert world.queue.next_timer() is None
    world.add("active")
    assert world.queue.next_timer() is None
