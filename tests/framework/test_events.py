"""Which registrations an event reaches."""

from __future__ import annotations

import pytest

from bayplan.framework.events import Action, ClusterEvent, Resource, event_with_hint

POD, NODE, ANY = Resource.POD, Resource.NODE, Resource.ANY
ASSIGNED, WAITING = Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD


@pytest.mark.parametrize(
    ("registered", "incoming", "matches"),
    [
        pytest.param((NODE, Action.ADD), (NODE, Action.ADD), True, id="the very event"),
        pytest.param((NODE, Action.ADD), (NODE, Action.DELETE), False, id="another action"),
        pytest.param((NODE, Action.ADD), (POD, Action.ADD), False, id="another resource"),
        pytest.param((NODE, Action.ADD | Action.DELETE), (NODE, Action.DELETE), True, id="one of several"),
        pytest.param((POD, Action.DELETE), (ASSIGNED, Action.DELETE), True, id="a pod on a node is a pod"),
        pytest.param((POD, Action.DELETE), (WAITING, Action.DELETE), True, id="so is one that waits"),
        pytest.param((ASSIGNED, Action.DELETE), (POD, Action.DELETE), False, id="not every pod is on a node"),
        pytest.param(
            (POD, Action.UPDATE_POD_LABEL),
            (ASSIGNED, Action.UPDATE),
            False,
            id="a general update reaches none of the special ones",
        ),
        pytest.param(
            (POD, Action.UPDATE),
            (ASSIGNED, Action.UPDATE),
            True,
            id="but a registration for all updates matches",
        ),
        pytest.param(
            (POD, Action.UPDATE), (ASSIGNED, Action.UPDATE_POD_LABEL), True, id="special ones match it, too"
        ),
        pytest.param((ANY, Action.ALL), (NODE, Action.DELETE), True, id="anything"),
        pytest.param((ANY, Action.ADD), (NODE, Action.ADD), True, id="any resource"),
        pytest.param((ANY, Action.ADD), (NODE, Action.DELETE), False, id="any resource, another action"),
    ],
)
def test_matching(
    registered: tuple[Resource, Action], incoming: tuple[Resource, Action], matches: bool
) -> None:
    assert ClusterEvent(*registered).matches(ClusterEvent(*incoming)) is matches


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(ASSIGNED, Action.DELETE), "AssignedPodDelete"),
        (ClusterEvent(NODE, Action.UPDATE_NODE_TAINT), "NodeUpdateNodeTaint"),
        (ClusterEvent(Resource.CSI_NODE, Action.ADD), "storage.k8s.io/CSINodeAdd"),
        (ClusterEvent(ANY, Action.ALL, "UnschedulableTimeout"), "UnschedulableTimeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels_are_upstreams(event: ClusterEvent, label: str) -> None:
    assert event.label == label


def test_bits_are_upstreams() -> None:
    assert (Action.UPDATE, Action.ALL) == (32764, 32767)
    updates = [action for action in Action if action not in (Action.ADD, Action.DELETE)]
    assert sum(updates) == Action.UPDATE


def test_a_event_without_a_hint_always_requeues() -> None:
    assert event_with_hint(NODE, Action.ADD).hint is None
