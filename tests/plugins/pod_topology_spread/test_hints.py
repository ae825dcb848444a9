"""The queueing hints of PodTopologySpread."""

from __future__ import annotations

import pytest

from bayplan.plugin import Action, Node, Pod, Resource
from bayplan.plugins.pod_topology_spread import PodTopologySpread
from bayplan.testing.builders import (
    make_node,
    make_pod,
    make_spread,
    make_toleration,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import registrations, requeues
from .clusters import WEB, ZONE, zoned


def test_registered_events() -> None:
    pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
    nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
    assert registrations(make_plugin(PodTopologySpread)) == [
        (Resource.POD, pods),
        (Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
        (Resource.NODE, nodes),
    ]


WAITING = make_pod("waiting", labels=WEB, spread=[make_spread(ZONE, WEB)])


HONORING = make_pod("waiting", labels=WEB, spread=[make_spread(ZONE, WEB, node_taints_policy="Honor")])


TOLERANT = make_pod(
    "waiting", labels=WEB, spread=HONORING.spec.topology_spread_constraints, tolerations=[make_toleration()]
)


@pytest.mark.parametrize(
    ("pod", "action", "old", "new", "helps"),
    [
        pytest.param(
            WAITING,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, node="a"),
            True,
            id="a pod that counts was added",
        ),
        pytest.param(WAITING, Action.ADD, None, make_pod("x", labels=WEB), False, id="one that has no node"),
        pytest.param(
            WAITING,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, nominated_node="a"),
            True,
            id="one that is nominated to a node",
        ),
        pytest.param(
            WAITING,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, node="a", namespace="other"),
            False,
            id="one of another namespace",
        ),
        pytest.param(WAITING, Action.ADD, None, make_pod("x", node="a"), False, id="one that does not count"),
        pytest.param(
            WAITING,
            Action.DELETE,
            make_pod("x", labels=WEB, node="a"),
            None,
            True,
            id="a pod that counted was deleted",
        ),
        pytest.param(
            WAITING,
            Action.DELETE,
            make_pod("x", node="a"),
            None,
            False,
            id="one that did not count was deleted",
        ),
        pytest.param(
            WAITING,
            Action.UPDATE_POD_LABEL,
            make_pod("x", node="a"),
            make_pod("x", labels=WEB, node="a"),
            True,
            id="a pod starts to count",
        ),
        pytest.param(
            WAITING,
            Action.UPDATE_POD_LABEL,
            make_pod("x", labels=WEB, node="a"),
            make_pod("x", labels={**WEB, "more": "x"}, node="a"),
            False,
            id="a pod counts as before",
        ),
        pytest.param(
            WAITING,
            Action.UPDATE_POD_LABEL,
            WAITING,
            make_pod("waiting"),
            True,
            id="the pod itself changes what it matches",
        ),
        pytest.param(
            HONORING,
            Action.UPDATE_POD_TOLERATION,
            HONORING,
            TOLERANT,
            True,
            id="its tolerations matter to a constraint",
        ),
        pytest.param(
            WAITING, Action.UPDATE_POD_TOLERATION, WAITING, TOLERANT, False, id="they matter to none"
        ),
    ],
)
def test_pods_that_help(pod: Pod, action: Action, old: Pod | None, new: Pod | None, helps: bool) -> None:
    resource = Resource.TARGET_POD if action == Action.UPDATE_POD_TOLERATION else Resource.POD
    assert requeues(make_plugin(PodTopologySpread), (resource, action), pod, old, new) is helps


@pytest.mark.parametrize(
    ("action", "old", "new", "helps"),
    [
        pytest.param(Action.ADD, None, zoned("a", "z"), True, id="a node with the label was added"),
        pytest.param(Action.ADD, None, zoned("a"), False, id="one without it"),
        pytest.param(Action.DELETE, zoned("a", "z"), None, True, id="a node with the label was deleted"),
        pytest.param(Action.DELETE, zoned("a"), None, False, id="one without it was deleted"),
        pytest.param(Action.UPDATE_NODE_LABEL, zoned("a"), zoned("a", "z"), True, id="a node got the label"),
        pytest.param(Action.UPDATE_NODE_LABEL, zoned("a", "z"), zoned("a"), True, id="a node lost the label"),
        pytest.param(Action.UPDATE_NODE_LABEL, zoned("a", "y"), zoned("a", "z"), True, id="a node moved"),
        pytest.param(
            Action.UPDATE_NODE_LABEL,
            zoned("a", "z"),
            zoned("a", "z", disk="ssd"),
            False,
            id="another label changed",
        ),
        pytest.param(
            Action.UPDATE_NODE_TAINT,
            zoned("a", "z"),
            make_node("a", labels={ZONE: "z"}, taints=["no:NoSchedule"]),
            True,
            id="its taints changed",
        ),
    ],
)
def test_nodes_that_help(action: Action, old: Node | None, new: Node | None, helps: bool) -> None:
    assert requeues(make_plugin(PodTopologySpread), (Resource.NODE, action), WAITING, old, new) is helps
