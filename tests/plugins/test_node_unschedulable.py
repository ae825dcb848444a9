"""NodeUnschedulable: cordoned nodes take only pods that tolerate the cordon."""

from __future__ import annotations

import pytest

from bayplan.plugin import Action, Resource, Toleration
from bayplan.plugins.node_unschedulable import REASON, NodeUnschedulable
from bayplan.testing.builders import make_node, make_pod, make_toleration
from bayplan.testing.calling import make_plugin

from .evaluating import UNRESOLVABLE, Evaluation, make_cluster, points, registrations, requeues

CORDON = "node.kubernetes.io/unschedulable"
NODE_CHANGE = (Resource.NODE, Action.UPDATE_NODE_TAINT)


def test_its_points_are_upstreams() -> None:
    """PreFilter since v1.37."""
    assert points(NodeUnschedulable) == {"PreFilter", "Filter"}


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        pytest.param([], False, id="no toleration"),
        pytest.param([make_toleration(CORDON, effect="NoSchedule")], True, id="tolerates the cordon"),
        pytest.param([make_toleration(CORDON, "", effect="NoSchedule")], True, id="its value is empty"),
        pytest.param([make_toleration()], True, id="tolerates everything"),
        pytest.param([make_toleration(CORDON, effect="NoExecute")], False, id="tolerates another effect"),
        pytest.param([make_toleration("other")], False, id="tolerates another key"),
    ],
)
def test_filter(tolerations: list[Toleration], fits: bool) -> None:
    cluster = make_cluster([make_node("open"), make_node("cordoned", unschedulable=True)])
    evaluation = Evaluation(make_plugin(NodeUnschedulable), make_pod(tolerations=tolerations), cluster)
    assert evaluation.rejected() == ({} if fits else {"cordoned": (UNRESOLVABLE, (REASON,))})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, False, True, id="a node was added"),
        pytest.param(None, True, False, id="a cordoned node was added"),
        pytest.param(True, False, True, id="the cordon was lifted"),
        pytest.param(False, False, False, id="other taints changed"),
        pytest.param(False, True, False, id="it was cordoned"),
    ],
)
def test_hint_on_nodes(old: bool | None, new: bool, expected: bool) -> None:
    before = None if old is None else make_node("n", unschedulable=old)
    event = (Resource.NODE, Action.ADD) if old is None else NODE_CHANGE
    after = make_node("n", unschedulable=new)
    assert requeues(make_plugin(NodeUnschedulable), event, make_pod(), before, after) is expected


@pytest.mark.parametrize(
    ("changed", "toleration", "expected"),
    [
        pytest.param("p", CORDON, True, id="it tolerates the cordon now"),
        pytest.param("p", "other", False, id="it tolerates something else now"),
        pytest.param("other", CORDON, False, id="another pod tolerates it now"),
    ],
)
def test_hint_on_pods(changed: str, toleration: str, expected: bool) -> None:
    event = (Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
    new = make_pod(changed, tolerations=[make_toleration(toleration)])
    assert requeues(make_plugin(NodeUnschedulable), event, make_pod("p"), make_pod(changed), new) is expected


def test_registrations() -> None:
    assert registrations(make_plugin(NodeUnschedulable)) == [
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),
        (Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
    ]
