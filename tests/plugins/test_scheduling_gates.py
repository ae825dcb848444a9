"""SchedulingGates: gated pods stay out of the queue."""

from __future__ import annotations

import pytest

from bayplan.framework.points import Point
from bayplan.plugin import Action, Pod, Resource, Status, unresolvable
from bayplan.plugins.scheduling_gates import SchedulingGates
from bayplan.runtime.extension_points import POINTS
from bayplan.runtime.profile import Profile
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .evaluating import points, registrations, requeues

GATES_GONE = (Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


def test_its_points_are_upstreams() -> None:
    assert points(SchedulingGates) == {"PreEnqueue"}


def test_a_pod_without_gates_passes() -> None:
    assert make_plugin(SchedulingGates).pre_enqueue(make_pod()) is None


@pytest.mark.parametrize(
    ("gates", "reason"),
    [
        pytest.param(["a"], "waiting for scheduling gates: [a]", id="one gate is named"),
        pytest.param(
            ["b", "a"], "waiting for scheduling gates: [b a]", id="several are named in their order"
        ),
    ],
)
def test_a_gated_pod_waits(gates: list[str], reason: str) -> None:
    assert make_plugin(SchedulingGates).pre_enqueue(make_pod(gates=gates)) == unresolvable(reason)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param("p", True, id="its own gates were removed"),
        pytest.param("other", False, id="another pod's gates were removed"),
    ],
)
def test_hint(changed: str, expected: bool) -> None:
    old, new = make_pod(changed, gates=["a"]), make_pod(changed)
    assert (
        requeues(make_plugin(SchedulingGates), GATES_GONE, make_pod("p", gates=["a"]), old, new) is expected
    )


def test_it_registers_for_nothing_else() -> None:
    assert registrations(make_plugin(SchedulingGates)) == [GATES_GONE]


class OwnGates(SchedulingGates):
    def pre_enqueue(self, pod: Pod) -> Status | None:
        return unresolvable("not today")


@pytest.mark.parametrize(
    ("plugin", "gated"),
    [
        pytest.param(SchedulingGates, False, id="the built-in plugin need not be called without gates"),
        pytest.param(OwnGates, True, id="a plugin derived from it is always called"),
    ],
)
def test_pods_without_gates(plugin: type[SchedulingGates], gated: bool) -> None:
    profile = Profile("p", {Point.PRE_ENQUEUE: [make_plugin(plugin)]}, {})
    assert (POINTS.pre_enqueue(profile, profile.pre_enqueues, make_pod()) is not None) is gated
