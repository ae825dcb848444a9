"""NodeName: a pod that names its node fits on no other."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.plugin import Action, NodeColumns, Resource
from bayplan.plugins.node_name import REASON, NodeName
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin

from .evaluating import UNRESOLVABLE, Evaluation, make_cluster, points, registrations, requeues

REJECTED = (UNRESOLVABLE, (REASON,))


def test_its_points_are_upstreams() -> None:
    """PreFilter since v1.37."""
    assert points(NodeName) == {"PreFilter", "Filter"}


@pytest.mark.parametrize(
    ("node_name", "rejected"),
    [
        pytest.param("", [], id="no name, any node"),
        pytest.param("a", ["b"], id="the node is there"),
        pytest.param("c", ["a", "b"], id="the node is not there"),
    ],
)
def test_filter(node_name: str, rejected: list[str]) -> None:
    evaluation = Evaluation(
        make_plugin(NodeName), make_pod(node=node_name), make_cluster([make_node("a"), make_node("b")])
    )
    assert evaluation.rejected() == dict.fromkeys(rejected, REJECTED)


def test_some_rows_are_evaluated_like_all() -> None:
    cluster = make_cluster([make_node(name) for name in "abcd"])
    evaluation = Evaluation(make_plugin(NodeName), make_pod(node="c"), cluster)
    few = evaluation.statuses(NodeColumns(cluster, np.array([2, 0])))
    assert [status is None for status in few] == [True, False]


def test_any_new_node_requeues() -> None:
    assert requeues(
        make_plugin(NodeName), (Resource.NODE, Action.ADD), make_pod(node="a"), None, make_node("b")
    )


def test_registrations() -> None:
    assert registrations(make_plugin(NodeName)) == [(Resource.NODE, Action.ADD)]
