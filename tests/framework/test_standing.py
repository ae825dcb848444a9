"""Results that are kept for pods that are alike: when they are used again, and when they must not be."""

from __future__ import annotations

from bayplan.plugins.node_name import NodeName
from bayplan.testing.builders import make_pod

from .profiles import found, make_framework


def test_a_pod_that_names_its_node_spoils_nothing_for_its_kind() -> None:
    """Pods of one template may differ in the node they name; each gets the verdicts of its own."""
    framework = make_framework(NodeName(), nodes=3)
    assert found(framework, make_pod("a", node="n1")).node_name == "n1"
    assert found(framework, make_pod("b")).evaluated == 1
    assert found(framework, make_pod("c", node="n2")).node_name == "n2"
