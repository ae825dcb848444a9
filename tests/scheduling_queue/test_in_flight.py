"""InFlight: events are kept for exactly as long as a pod that missed them is in flight."""

from __future__ import annotations

import pytest

from bayplan.framework.events import ClusterEvent
from bayplan.scheduling_queue.object_events import ASSIGNED_POD_ADD, NODE_ADD, NODE_DELETE
from bayplan.scheduling_queue.queue import InFlight

EVENTS = {"add": NODE_ADD, "delete": NODE_DELETE, "pod": ASSIGNED_POD_ADD}


def played(steps: str) -> InFlight:
    """`+a` pops a pod, `-a` ends its attempt, and other words are events."""
    in_flight = InFlight()
    for step in steps.split():
        if step[0] == "+":
            in_flight.begin(step[1:])
        elif step[0] == "-":
            in_flight.end(step[1:])
        else:
            in_flight.record(EVENTS[step], None, None)
    return in_flight


@pytest.mark.parametrize(
    ("steps", "uid", "expected"),
    [
        pytest.param("add +a", "a", [], id="events before it was popped are not for it"),
        pytest.param("+a add delete", "a", [NODE_ADD, NODE_DELETE], id="events come in order"),
        pytest.param("+a add +b delete", "b", [NODE_DELETE], id="each pod has its own beginning"),
        pytest.param(
            "+a add +b delete -a pod", "b", [NODE_DELETE, ASSIGNED_POD_ADD], id="after another is done"
        ),
        pytest.param("+a add -a +a delete", "a", [NODE_DELETE], id="a second attempt begins again"),
        pytest.param("+a add", "b", None, id="nothing is known of a pod that is not in flight"),
    ],
)
def test_since(steps: str, uid: str, expected: list[ClusterEvent] | None) -> None:
    recorded = played(steps).since(uid)
    assert (None if recorded is None else [each.event for each in recorded]) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param("add", {}, id="without pods in flight nothing is kept"),
        pytest.param(
            "+a add add pod", {"PodPopped": 1, "NodeAdd": 2, "AssignedPodAdd": 1}, id="all since the first"
        ),
        pytest.param(
            "+a add +b pod -a", {"PodPopped": 1, "AssignedPodAdd": 1}, id="leading events are dropped"
        ),
        pytest.param(
            "+a add +b pod -b", {"PodPopped": 1, "NodeAdd": 1, "AssignedPodAdd": 1}, id="later ones are not"
        ),
        pytest.param(
            "+a add +b pod +c add -b -a", {"PodPopped": 1, "NodeAdd": 1}, id="up to the first that is left"
        ),
        pytest.param("+a add +b pod -a -b", {}, id="with the last pod all events are dropped"),
        pytest.param("+a add -x -a -a", {}, id="done twice is done once"),
    ],
)
def test_what_is_kept(steps: str, expected: dict[str, int]) -> None:
    assert played(steps).counts() == expected


def test_a_pod_is_in_flight_once() -> None:
    in_flight = played("+a add")
    assert not in_flight.begin("a")
    assert in_flight.counts() == {"PodPopped": 1, "NodeAdd": 1}


def test_clearing_ends_all_attempts() -> None:
    in_flight = played("+a add +b pod")
    in_flight.clear()
    assert (len(in_flight), in_flight.counts()) == (0, {})
