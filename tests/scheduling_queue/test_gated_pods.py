"""Pods that PreEnqueue rejects: when gates are run, and which events run them again."""

from __future__ import annotations

import pytest

from bayplan.api.groups import PodGroup
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.framework.events import Action, ClusterEvent, Resource, event_with_hint
from bayplan.scheduling_queue.object_events import ASSIGNED_POD_ADD, NODE_ADD, UNSCHEDULABLE_TIMEOUT
from bayplan.scheduling_queue.sub_queues import PendingPods
from bayplan.scheduling_queue.waiting import QueueSettings
from bayplan.state.groups import GroupKey, GroupStates
from bayplan.state.objects import Objects
from bayplan.testing.builders import make_pod

from .queues import Gate, OtherGate, World, make_filter

NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


def test_a_gated_pod_waits_and_is_counted_as_gated() -> None:
    world = World(Gate({"p"}), make_filter("Fit"))
    world.add("p")
    world.reject("q")
    assert world.queue.counts() == PendingPods(active=0, backoff=0, unschedulable=1, gated=1)
    assert world.counts.incoming_pods["unschedulable", "UnschedulablePodAdd"] == 1


@pytest.mark.parametrize(
    ("event", "opened"),
    [
        pytest.param(NODE_ADD, True, id="the gate's own event"),
        pytest.param(NODE_TAINT, True, id="the event that comes with it"),
        pytest.param(UNSCHEDULABLE_TIMEOUT, True, id="a wildcard"),
        pytest.param(ASSIGNED_POD_ADD, False, id="not an event of another rejector"),
    ],
)
def test_what_opens_a_gate(event: ClusterEvent, opened: bool) -> None:
    gate = Gate()
    world = World(gate, make_filter("Fit", None))
    world.add()
    world.pop()
    gate.closed.add("p")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.fail("p", "Fit")
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(event)
    assert (world.where() == "backoff") is opened


def test_hints_of_all_rejectors_are_called_once_the_event_is_the_gates() -> None:
    """The gate's hint returns False, but the event also helps the plugin that rejected the pod before."""
    gate = Gate(events=[event_with_hint(Resource.NODE, Action.ADD, lambda pod, old, new: False)])
    world = World(gate, make_filter("Fit"))
    world.add()
    world.pop()
    gate.closed.add("p")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    world.fail("p", "Fit")
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == "backoff"


def test_a_gate_that_stays_closed_keeps_the_pod() -> None:
    gate = Gate({"p"})
    world = World(gate)
    world.add()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where(), gate.calls) == ("unschedulable", ["p", "p"])
    assert world.counts.incoming_pods == {
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("unschedulable", "NodeAdd"): 1,
    }


def test_another_gate_may_close_when_the_first_opens() -> None:
    first, second = Gate({"p"}), OtherGate({"p"}, events=[event_with_hint(Resource.POD, Action.ADD)])
    world = World(first, second)
    world.add()
    first.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where(), world.info().gating_plugin) == ("unschedulable", "OtherGate")
    second.closed.clear()
    world.queue.move_to_active_or_backoff(ASSIGNED_POD_ADD)
    assert world.where() == "active"


def test_a_gate_that_has_opened_still_requeues_the_pod_and_counts_as_a_rejector() -> None:
    gate = Gate({"p"})
    world = World(gate)
    world.add()
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where(), set(world.info().rejectors)) == ("active", {"Gate"})


@pytest.mark.parametrize("part", ["active", "backoff"])
def test_a_queued_pod_that_is_added_again_stays_after_its_gate_has_closed(part: str) -> None:
    """The same pod is added again after its gate has closed."""
    gate = Gate()
    world = World(gate, make_filter("Fit"))
    if part == "active":
        world.add()
    else:
        world.reject()
        world.queue.move_to_active_or_backoff(NODE_ADD)
    before = world.info()
    gate.closed.add("p")
    world.add()
    assert (world.where(), world.info()) == (part, before)


def test_a_pod_added_again_takes_its_own_place() -> None:
    gate = Gate({"p"})
    world = World(gate)
    world.add()
    first = world.info()
    world.add()
    second = world.info()
    assert (first is second, world.where(), world.queue.counts().gated) == (False, "unschedulable", 1)
    gate.closed.clear()
    world.add()
    assert world.pop_all() == ["p"]
    assert world.counts.incoming_pods["unschedulable", "UnschedulablePodAdd"] == 1


@pytest.mark.parametrize(
    ("pop_from_backoff", "calls_on_entry", "expected"),
    [
        pytest.param(True, 2, "active", id="gates are run before backing off, and not after it"),
        pytest.param(False, 1, "unschedulable", id="without the feature it is the other way round"),
    ],
)
def test_gates_and_backing_off(pop_from_backoff: bool, calls_on_entry: int, expected: str) -> None:
    gate = Gate()
    world = World(gate, make_filter("Fit"), settings=QueueSettings(pop_from_backoff=pop_from_backoff))
    world.reject()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where(), len(gate.calls)) == ("backoff", calls_on_entry)
    gate.closed.add("p")
    world.pass_time(10)
    assert world.where() == expected


@pytest.mark.parametrize("pop_from_backoff", [True, False])
def test_gates_and_activating(pop_from_backoff: bool) -> None:
    """A pod that backs off has passed the gates already, but with the feature only."""
    gate = Gate()
    world = World(gate, make_filter("Fit"), settings=QueueSettings(pop_from_backoff=pop_from_backoff))
    world.reject()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    gate.closed.add("p")
    world.queue.activate([make_pod()])
    assert world.where() == ("active" if pop_from_backoff else "unschedulable")


def test_when_a_gate_opens_a_pod_may_still_have_to_back_off() -> None:
    gate = Gate()
    world = World(gate, make_filter("Fit"))
    world.reject()
    gate.closed.add("p")
    world.queue.move_to_active_or_backoff(NODE_ADD)
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == "backoff"


# Held


def held(gate: str = "Gate") -> tuple[World, Gate]:
    """A pod that is pinned by a gate."""
    closed = Gate({"p"})
    world = World(closed, OtherGate())
    world.queue.pin(world.add(), gate)
    for _ in range(10):
        world.queue.move_to_active_or_backoff(NODE_ADD)
    return world, closed


def test_gates_are_not_run_for_a_pinned_pod_at_every_event() -> None:
    world, gate = held()
    assert (world.where(), gate.calls) == ("unschedulable", ["p"] * 2)
    assert world.queue.counts() == PendingPods(active=0, backoff=0, unschedulable=0, gated=1)


def test_gates_and_hints_are_not_run_for_a_pinned_group_at_every_event() -> None:
    hinted: list[str] = []

    def hint(pod: Pod, old: object, new: object) -> bool:
        hinted.append(pod.name)
        return pod.name == "b"

    objects = Objects()
    objects.put(PodGroup(metadata=ObjectMeta(name="g", namespace="default", uid="of-g")))
    states = GroupStates(objects)
    gate = Gate({"a", "b"}, events=(event_with_hint(Resource.NODE, Action.ADD, hint),))
    world = World(gate, groups=states)
    for name in ("a", "b"):
        world.add(name, scheduling_group=PodSchedulingGroup(pod_group_name="g"))
    group = states.group(GroupKey("default", "g"))
    assert group is not None
    world.queue.pin(group, "Gate")
    for _ in range(10):
        world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (gate.calls, hinted) == (["a", "b"], ["a"])
    world.queue.unpin(group)
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.queue.counts() == PendingPods(active=2, backoff=0, unschedulable=0, gated=0)


def test_gates_are_run_for_a_pod_that_another_plugin_gates() -> None:
    world, gate = held("OtherGate")
    assert (world.where(), gate.calls) == ("unschedulable", ["p"] * 11)


def test_once_it_is_released_events_concern_it_again() -> None:
    world, gate = held()
    world.queue.unpin(world.latest["default/p"])
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert (world.where(), gate.calls) == ("unschedulable", ["p"] * 3)
    gate.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == "active"


def test_it_is_released_though_it_has_changed_meanwhile() -> None:
    world, gate = held()
    world.update(labels={"a": "b"})
    gate.closed.clear()
    world.queue.unpin(world.latest["default/p"])
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == "active"


@pytest.mark.parametrize("come_back", [False, True], ids=["gone", "another of that name"])
def test_unpinning_a_deleted_pod_does_nothing(come_back: bool) -> None:
    world, _ = held()
    gone = world.latest["default/p"]
    world.delete()
    if come_back:
        world.add(uid="another")
    world.queue.unpin(gone)
    assert world.where() == ("unschedulable" if come_back else "nowhere")


@pytest.mark.parametrize("how", ["activated", "left over"])
def test_time_and_activation_run_the_gate_all_the_same(how: str) -> None:
    """It may have opened without an event: the pod must not wait forever."""
    world, gate = held()
    gate.closed.clear()
    if how == "activated":
        world.queue.activate([world.latest["default/p"]])
    else:
        world.pass_time(360)
    assert world.where() == "active"
