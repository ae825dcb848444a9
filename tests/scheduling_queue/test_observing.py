"""What can be seen from outside: gauges, counters, and lines for a log."""

from __future__ import annotations

from bayplan.scheduling_queue.object_events import NODE_ADD
from bayplan.scheduling_queue.queue import SchedulingQueue
from bayplan.scheduling_queue.sub_queues import PendingPods

from .queues import PROFILE, Clock, Columns, Gate, World, make_filter, make_profile, single


def busy_world() -> World:
    """One pod in each part, two unschedulable, one in flight."""
    world = World(Gate({"gated"}), make_filter("Fit"), make_filter("Ports", []))
    world.add("gated")
    world.reject("backing off")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.reject("a", "Fit", "Ports", priority=1)
    world.reject("b", "Ports", priority=1)
    world.add("flying")
    assert world.pop() == "flying"
    world.add("broken", priority=1)
    assert world.pop() == "broken"
    world.fail("broken")
    world.add("active")
    return world


def test_pending_pods() -> None:
    assert busy_world().queue.counts() == PendingPods(active=1, backoff=2, unschedulable=2, gated=1)


def test_the_dump_for_a_log() -> None:
    assert busy_world().queue.dump() == "activeQ:1; backoffQ:2; unschedulablePods:3"


def test_all_waiting_pods_are_listed_those_that_are_next_first() -> None:
    names = [pod.name for pod in busy_world().queue.pending_pods()]
    assert names == ["active", "backing off", "broken", "gated", "a", "b"]


def test_rejected_pods_are_counted_by_plugin() -> None:
    """A pod with two rejectors counts for each, one whose attempt ended with an error for none."""
    world = busy_world()
    assert world.counts.unschedulable_pods == {
        ("Gate", PROFILE): 1,
        ("Fit", PROFILE): 2,
        ("Ports", PROFILE): 2,
    }


def test_entries_are_counted_by_part_and_event() -> None:
    assert busy_world().counts.incoming_pods == {
        ("active", "UnschedulablePodAdd"): 6,
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 3,
        ("unschedulable", "NodeAdd"): 1,
        ("backoff", "NodeAdd"): 1,
        ("backoff", "ScheduleAttemptFailure"): 1,
    }


def test_a_queue_without_an_observer_works_the_same() -> None:
    pods = busy_world().queue.pending_pods()
    queue = SchedulingQueue(
        [make_profile(make_filter("Fit"))], now=Clock(), columns=Columns(), pod_lister=lambda pod: pod
    )
    for pod in pods:
        queue.add(pod)
    popped = []
    while (info := single(queue.pop())) is not None:
        popped.append(info.pod.name)
        queue.add_unschedulable_if_not_present(info, info.pod, ["Fit"])
    queue.move_to_active_or_backoff(NODE_ADD)
    assert queue.hints.registered(PROFILE, "Extender") == ()
    assert popped == ["broken", "a", "b", "active", "backing off", "gated"]
    assert queue.counts() == PendingPods(active=0, backoff=6, unschedulable=0, gated=0)
