"""Pods that are updated, deleted, or activated by name, wherever they are."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.framework.events import Action, Resource, event_with_hint
from bayplan.framework.outcome import Nomination
from bayplan.plugins.scheduling_gates import SchedulingGates
from bayplan.scheduling_queue.object_events import NODE_ADD
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .queues import Gate, OtherGate, World, make_filter


def is_itself(pod: Pod, old: Any, new: Any) -> bool:
    return bool(new.uid == pod.uid)


LABELS = make_filter("Labels", [event_with_hint(Resource.POD, Action.UPDATE_POD_LABEL, is_itself)])
ANY_UPDATE = make_filter("AnyUpdate", [event_with_hint(Resource.POD, Action.UPDATE, is_itself)])
PLUGINS = LABELS, ANY_UPDATE, make_filter("Fit")


def put_into(world: World, part: str) -> None:
    """A pod p waits in this part."""
    if part == "active":
        world.add()
        return
    world.reject()
    if part == "backoff":
        world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == part


# Updates


@pytest.mark.parametrize("part", ["active", "backoff", "unschedulable"])
def test_an_update_replaces_the_pod_where_it_is(part: str) -> None:
    world = World(*PLUGINS)
    put_into(world, part)
    before = world.info()
    new = world.update(annotations={"a": "b"})
    assert (world.where(), world.info(), world.info().pod) == (part, before, new)


@pytest.mark.parametrize("part", ["active", "backoff"])
def test_an_update_may_change_the_order(part: str) -> None:
    world = World(*PLUGINS)
    put_into(world, part)
    if part == "active":
        world.add("q", priority=1)
    else:
        world.reject("q", priority=1)
        world.queue.move_to_active_or_backoff(NODE_ADD)
    world.update("p", priority=2)
    counts = world.queue.counts()
    assert counts.active + counts.backoff == 2
    assert world.pop_all() == ["p", "q"]


@pytest.mark.parametrize("part", ["active", "backoff"])
def test_gates_are_not_run_again_for_pods_that_have_passed_them(part: str) -> None:
    gate = Gate()
    world = World(gate, *PLUGINS)
    put_into(world, part)
    calls = len(gate.calls)
    gate.closed.add("p")
    world.update(labels={"a": "b"})
    assert (world.where(), len(gate.calls)) == (part, calls)


@pytest.mark.parametrize(
    ("rejector", "fields", "expected", "label"),
    [
        pytest.param(
            "Labels", {"labels": {"a": "b"}}, "backoff", "UnschedulablePodUpdatePodLabel", id="it helps"
        ),
        pytest.param("Labels", {"annotations": {"a": "b"}}, "unschedulable", None, id="it is something else"),
        pytest.param("Fit", {"labels": {"a": "b"}}, "unschedulable", None, id="no plugin waits for it"),
        pytest.param(
            "AnyUpdate", {"annotations": {"a": "b"}}, "backoff", "UnschedulablePodUpdate", id="anything helps"
        ),
    ],
)
def test_an_update_may_help_the_pod_itself(
    rejector: str, fields: dict[str, Any], expected: str, label: str | None
) -> None:
    world = World(*PLUGINS)
    world.reject("p", rejector)
    before = dict(world.counts.incoming_pods)
    world.update(**fields)
    assert world.where() == expected
    entered = {} if label is None else {(expected, label): 1}
    assert {key: count for key, count in world.counts.incoming_pods.items() if key not in before} == entered


@pytest.mark.parametrize(("later", "part"), [(0.0, "backoff"), (60.0, "active")])
def test_the_first_event_that_helps_decides(later: float, part: str) -> None:
    """Labels changed and gates were removed: the pod is moved once, for its labels."""
    world = World(*PLUGINS)
    world.reject("p", "Labels", "AnyUpdate", gates=["a"])
    world.clock.now = later
    world.update(labels={"a": "b"})
    entered = world.counts.incoming_pods
    assert entered[part, "UnschedulablePodUpdatePodLabel"] == 1
    assert (part, "UnschedulablePodUpdatePodSchedulingGatesEliminated") not in entered


@pytest.mark.parametrize("later", [pytest.param(0.0, id="backing off"), pytest.param(60.0, id="or not")])
def test_an_event_that_meets_a_closed_gate_leaves_it_to_the_next(later: float) -> None:
    gate = Gate()
    world = World(gate, *PLUGINS)
    world.reject("p", "AnyUpdate", gates=["a"])
    gate.closed.add("p")
    world.clock.now = later
    calls = len(gate.calls)
    world.update(labels={"a": "b"})
    assert len(gate.calls) == calls + 2


def test_other_waiting_pods_never_see_an_update() -> None:
    world = World(make_filter("Labels", [event_with_hint(Resource.POD, Action.UPDATE_POD_LABEL)]))
    world.reject("other", "Labels")
    world.reject("p", "Labels")
    world.update("p", labels={"a": "b"})
    assert (world.where("p"), world.where("other")) == ("backoff", "unschedulable")


def test_removing_the_last_gate_moves_a_gated_pod_to_the_queue() -> None:
    world = World(make_plugin(SchedulingGates))
    world.add(gates=["a", "b"])
    world.update(gates=["a"])
    assert world.where() == "unschedulable"
    world.update()
    assert world.where() == "active"
    assert world.counts.incoming_pods == {
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("active", "UnschedulablePodUpdatePodSchedulingGatesEliminated"): 1,
    }


def test_an_update_is_evaluated_by_all_rejectors_of_a_gated_pod() -> None:
    """A gate that waits for something else does not stop a pod's own update."""
    gate = Gate()
    world = World(gate, *PLUGINS)
    world.add()
    world.pop()
    gate.closed.add("p")
    world.queue.activate([make_pod()])
    world.fail("p", "Labels")
    assert world.info().gating_plugin == "Gate"
    gate.closed.clear()
    world.update(labels={"a": "b"})
    assert world.where() == "backoff"


def test_an_update_that_helps_but_meets_a_closed_gate_changes_nothing() -> None:
    gate = Gate({"p"}, events=[event_with_hint(Resource.POD, Action.UPDATE)])
    world = World(gate)
    world.add()
    world.update(labels={"a": "b"})
    assert (world.where(), world.counts.incoming_pods) == (
        "unschedulable",
        {("unschedulable", "UnschedulablePodAdd"): 1},
    )


def test_a_pod_that_an_update_takes_to_the_next_gate_is_found_by_that_gates_events() -> None:
    first, second = Gate({"p"}, events=[event_with_hint(Resource.POD, Action.UPDATE)]), OtherGate({"p"})
    world = World(first, second)
    world.add()
    first.closed.clear()
    world.update(labels={"a": "b"})
    assert (world.where(), world.info().gating_plugin) == ("unschedulable", "OtherGate")
    second.closed.clear()
    world.queue.move_to_active_or_backoff(NODE_ADD)
    assert world.where() == "active"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"labels": {"a": "b"}}, "backoff", id="the update helps"),
        pytest.param({"annotations": {"a": "b"}}, "unschedulable", id="the update does not help"),
    ],
)
def test_an_update_of_a_pod_in_flight_counts_when_it_comes_back(
    fields: dict[str, Any], expected: str
) -> None:
    world = World(*PLUGINS)
    world.add()
    world.pop()
    world.update(**fields)
    assert world.where() == "in flight"
    world.fail("p", "Labels")
    assert world.where() == expected


def test_others_in_flight_see_the_update_too() -> None:
    """Their hints compare uids; a registration without a hint takes it."""
    world = World(
        make_filter("Labels", [event_with_hint(Resource.POD, Action.UPDATE_POD_LABEL)]), *PLUGINS[1:]
    )
    for name in "pq":
        world.add(name)
        world.pop()
    world.update("p", labels={"a": "b"})
    world.fail("q", "Labels")
    assert world.where("q") == "backoff"


def test_an_update_of_a_pod_that_is_nowhere_adds_it() -> None:
    """As it does for a pod that was skipped when popped because it is being deleted."""
    world = World(*PLUGINS)
    pod = world.add()
    world.pop()
    world.queue.done(pod.uid)
    world.update(labels={"a": "b"})
    assert world.where() == "active"
    assert world.counts.incoming_pods["active", "UnschedulablePodUpdate"] == 1


# Nominations on the way


@pytest.mark.parametrize(
    ("steps", "nominated"),
    [
        pytest.param("add", True, id="when it is added"),
        pytest.param("gated", False, id="not while it is gated from the start"),
        pytest.param("gated updated", True, id="but at its first update"),
        pytest.param("gated opened", False, id="and not when an event moves it"),
        pytest.param("gated activated", False, id="nor when it is activated"),
    ],
)
def test_a_pod_is_nominated_to_the_node_of_its_status(steps: str, nominated: bool) -> None:
    gate = Gate({"p"} if "gated" in steps else ())
    world = World(gate)
    world.add(nominated_node="n")
    for step in steps.split():
        gate.closed -= {"p"} if step != "gated" else set()
        if step == "updated":
            world.update(nominated_node="n", labels={"a": "b"})
        elif step == "opened":
            world.queue.move_to_active_or_backoff(NODE_ADD)
        elif step == "activated":
            world.queue.activate([make_pod()])
    assert world.columns.nodes() == ({"p": "n"} if nominated else {})


@pytest.mark.parametrize("part", ["active", "backoff", "unschedulable"])
def test_a_nomination_follows_the_status_in_every_part(part: str) -> None:
    world = World(*PLUGINS)
    put_into(world, part)
    world.update(nominated_node="a")
    world.update(nominated_node="b")
    assert world.columns.nodes() == {"p": "b"}
    world.update()
    assert world.columns.nodes() == {}


def test_an_update_in_flight_leaves_the_nomination_alone() -> None:
    world = World(*PLUGINS)
    world.add()
    world.pop()
    world.update(nominated_node="a")
    assert world.columns.nodes() == {}


def test_a_dropped_pod_that_comes_back_gated_counts_with_its_requests() -> None:
    gate = Gate()
    world = World(gate)
    pod = world.add(nominated_node="n", priority=7)
    world.pop()
    world.queue.done(pod.uid)
    assert [nominated.priority for nominated in world.queue.nominations.pods_on("n")] == [0]
    gate.closed.add("p")
    world.update(nominated_node="n", priority=7, labels={"a": "b"})
    assert [nominated.priority for nominated in world.queue.nominations.pods_on("n")] == [7]


# Deletes


@pytest.mark.parametrize("part", ["active", "backoff", "unschedulable"])
def test_a_deleted_pod_is_gone(part: str) -> None:
    world = World(*PLUGINS)
    put_into(world, part)
    world.queue.nominations.add(world.info().pod, Nomination("n"))
    world.delete()
    counts = world.queue.counts()
    assert (world.where(), world.pop(), world.columns.nodes()) == ("nowhere", None, {})
    assert (counts.active, counts.backoff, counts.unschedulable, counts.gated) == (0, 0, 0, 0)


def test_deleting_a_pod_does_not_end_its_attempt() -> None:
    world = World(*PLUGINS)
    pod = world.add()
    world.pop()
    world.delete()
    assert world.queue.is_in_flight(pod.uid)


@pytest.mark.parametrize(
    ("part", "left"),
    [
        pytest.param("unschedulable", 0, id="it is counted off"),
        pytest.param("backoff", 1, id="one that backs off is counted forever, as upstream"),
    ],
)
def test_the_count_of_rejected_pods_after_a_delete(part: str, left: int) -> None:
    world = World(*PLUGINS)
    put_into(world, part)
    world.delete()
    assert world.counts.unschedulable_pods == {("Fit", "default-scheduler"): left}


# Activating


@pytest.mark.parametrize("part", ["backoff", "unschedulable"])
def test_activating_ignores_backing_off(part: str) -> None:
    world = World(*PLUGINS)
    put_into(world, part)
    world.queue.activate([make_pod()])
    assert world.where() == "active"
    assert world.counts.incoming_pods["active", "ForceActivate"] == 1


def test_activating_an_active_pod_changes_nothing() -> None:
    world = World(*PLUGINS)
    put_into(world, "active")
    world.queue.activate([make_pod()])
    assert world.counts.incoming_pods == {("active", "UnschedulablePodAdd"): 1}


def test_activating_a_pod_whose_gate_is_closed_leaves_it_there() -> None:
    world = World(Gate({"p"}))
    world.add()
    world.queue.activate([make_pod()])
    assert (world.where(), world.counts.incoming_pods) == (
        "unschedulable",
        {("unschedulable", "UnschedulablePodAdd"): 1},
    )


def test_a_pod_activated_in_flight_comes_back_after_its_backoff_and_others_do_not() -> None:
    world = World(*PLUGINS)
    for name in "pq":
        world.add(name)
        world.pop()
    world.queue.activate([make_pod("p"), make_pod("unknown")])
    assert world.queue.in_flight_counts() == {"PodPopped": 2, "ForceActivate": 1}
    for name in "pq":
        world.fail(name, "Fit")
    assert (world.where("p"), world.where("q")) == ("backoff", "unschedulable")
