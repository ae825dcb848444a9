"""The queueing hints of InterPodAffinity."""

from __future__ import annotations

import pytest

from bayplan.plugin import Action, Node, Pod, Resource
from bayplan.plugins.inter_pod_affinity import (
    InterPodAffinity,
)
from bayplan.testing.builders import (
    make_node,
    make_pod,
    make_pod_term,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import registrations, requeues
from .clusters import DB, REPELS_WEB, WEB, ZONE, away, near


def test_registered_events() -> None:
    pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
    assert registrations(make_plugin(InterPodAffinity)) == [
        (Resource.POD, pods),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
    ]


NEAR_WEB = near(make_pod_term(ZONE, WEB), make_pod_term(ZONE, {"tier": "front"}))


AWAY_WEB = away(make_pod_term(ZONE, WEB))


FRONT = {**WEB, "tier": "front"}


@pytest.mark.parametrize(
    ("pod", "action", "old", "new", "helps"),
    [
        pytest.param(
            NEAR_WEB, Action.ADD, None, make_pod("x", labels=FRONT, node="a"), True, id="a pod to be near to"
        ),
        pytest.param(
            NEAR_WEB,
            Action.ADD,
            None,
            make_pod("x", labels=FRONT, nominated_node="a"),
            True,
            id="one that is expected",
        ),
        pytest.param(NEAR_WEB, Action.ADD, None, make_pod("x", labels=FRONT), False, id="one without a node"),
        pytest.param(
            NEAR_WEB,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, node="a"),
            False,
            id="one that matches only some terms",
        ),
        pytest.param(
            AWAY_WEB,
            Action.ADD,
            None,
            make_pod("x", labels=DB, node="a"),
            False,
            id="a pod never helps against others",
        ),
        pytest.param(
            AWAY_WEB,
            Action.DELETE,
            make_pod("x", labels=WEB, node="a"),
            None,
            True,
            id="a pod that the anti-affinity matches was deleted",
        ),
        pytest.param(
            AWAY_WEB, Action.DELETE, make_pod("x", labels=DB, node="a"), None, False, id="another was deleted"
        ),
        pytest.param(
            make_pod("w", labels=WEB),
            Action.DELETE,
            make_pod("x", affinity=REPELS_WEB, node="a"),
            None,
            True,
            id="a pod whose anti-affinity matches was deleted",
        ),
        pytest.param(
            NEAR_WEB, Action.UPDATE_POD_LABEL, NEAR_WEB, NEAR_WEB, True, id="the pod itself changed"
        ),
        pytest.param(
            NEAR_WEB,
            Action.UPDATE_POD_LABEL,
            make_pod("x", node="a"),
            make_pod("x", labels=FRONT, node="a"),
            True,
            id="a pod starts to match",
        ),
        pytest.param(
            AWAY_WEB,
            Action.UPDATE_POD_LABEL,
            make_pod("x", labels=WEB, node="a"),
            make_pod("x", node="a"),
            True,
            id="a pod stops to repel",
        ),
        pytest.param(
            AWAY_WEB,
            Action.UPDATE_POD_LABEL,
            make_pod("x", node="a"),
            make_pod("x", labels=WEB, node="a"),
            False,
            id="a pod starts to repel",
        ),
    ],
)
def test_pods_that_help(pod: Pod, action: Action, old: Pod | None, new: Pod | None, helps: bool) -> None:
    assert requeues(make_plugin(InterPodAffinity), (Resource.POD, action), pod, old, new) is helps


def labelled(zone: str | None = None) -> Node:
    return make_node("a", labels={} if zone is None else {ZONE: zone})


@pytest.mark.parametrize(
    ("pod", "action", "old", "new", "helps"),
    [
        pytest.param(NEAR_WEB, Action.ADD, None, labelled("z"), True, id="a node with a label to be near by"),
        pytest.param(NEAR_WEB, Action.ADD, None, labelled(), False, id="one without"),
        pytest.param(AWAY_WEB, Action.ADD, None, labelled(), True, id="any node to get away to"),
        pytest.param(
            NEAR_WEB, Action.UPDATE_NODE_LABEL, labelled(), labelled("z"), True, id="the label appeared"
        ),
        pytest.param(
            NEAR_WEB, Action.UPDATE_NODE_LABEL, labelled("z"), labelled(), False, id="the label vanished"
        ),
        pytest.param(
            AWAY_WEB,
            Action.UPDATE_NODE_LABEL,
            labelled("z"),
            labelled(),
            True,
            id="a label to keep away by vanished",
        ),
        pytest.param(AWAY_WEB, Action.UPDATE_NODE_LABEL, labelled(), labelled("z"), False, id="or appeared"),
        pytest.param(AWAY_WEB, Action.UPDATE_NODE_LABEL, labelled("y"), labelled("z"), True, id="or changed"),
    ],
)
def test_nodes_that_help(pod: Pod, action: Action, old: Node | None, new: Node, helps: bool) -> None:
    assert requeues(make_plugin(InterPodAffinity), (Resource.NODE, action), pod, old, new) is helps
