"""Rejected nodes in groups, with details that kube-scheduler's texts leave out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.answers.explain.details import detail
from bayplan.answers.explain.rejections import rejections
from bayplan.plugin import Node, Pod
from bayplan.testing.builders import make_node, make_pod

from .evaluating import evaluate

GPU = "example.com/gpu"
A = make_node("a", resources={GPU: 0})
BROKEN = replace(A, status=replace(A.status, capacity={GPU: 2}))
"""A node whose device plugin reports all devices as unhealthy."""


def test_nodes_with_one_reason_are_one_group() -> None:
    nodes = [make_node(f"n{i}", cpu="1") for i in range(3)] + [make_node("cordoned", unschedulable=True)]
    groups = rejections(evaluate(make_pod(cpu="2"), nodes).explanation)
    assert [(group.status.plugin, group.nodes) for group in groups] == [
        ("NodeResourcesFit", ("n0", "n1", "n2")),
        ("NodeUnschedulable", ("cordoned",)),
    ]


@pytest.mark.parametrize(
    ("pod", "nodes", "text"),
    [
        pytest.param(make_pod(), [make_node("n", unschedulable=True)], "", id="nothing to add"),
        pytest.param(
            make_pod(),
            [make_node("a", taints=["dedicated=ml:NoSchedule"]), make_node("b", taints=["gone:NoExecute"])],
            "dedicated=ml:NoSchedule, gone:NoExecute",
            id="which taints",
        ),
        pytest.param(
            make_pod(),
            [make_node(f"n{i}", taints=[f"t{i}:NoSchedule"]) for i in range(5)],
            "t0:NoSchedule, t1:NoSchedule, t2:NoSchedule and 2 more",
            id="many taints",
        ),
        pytest.param(
            make_pod(cpu="2500m"), [make_node("a", cpu="4")], "lacks 500m cpu", id="how much is missing"
        ),
        pytest.param(
            make_pod(cpu="3"),
            [make_node("a", cpu="3500m"), make_node("b", cpu="4")],
            "nearest: b lacks 1 cpu",
            id="where least is missing",
        ),
        pytest.param(
            make_pod(cpu="4", memory="8Gi"),
            [make_node("a", memory="8Gi")],
            "lacks 2 cpu and 1Gi memory",
            id="several resources",
        ),
        pytest.param(
            make_pod(memory="9Gi"),
            [make_node("a", memory="4Gi"), make_node("b", memory="8Gi")],
            "requests 9Gi memory; the largest of these nodes, b, has 8Gi",
            id="larger than all of them",
        ),
        pytest.param(
            make_pod(requests={GPU: 1}), [make_node("a")], f"no {GPU} on this node", id="none of it"
        ),
        pytest.param(
            make_pod(requests={GPU: 1}),
            [BROKEN],
            f"a has a capacity of 2 {GPU}, but none is allocatable",
            id="none of it is allocatable",
        ),
        pytest.param(
            make_pod(requests={GPU: 1}),
            [make_node("a"), make_node("b")],
            f"no {GPU} on these nodes",
            id="none of it on several nodes",
        ),
    ],
)
def test_details(pod: Pod, nodes: list[Node], text: str) -> None:
    """On nodes a and b runs a pod with 2 CPUs and 1 GiB."""
    running = [
        make_pod(f"on-{node.name}", node=node.name, cpu="2", memory="1Gi", priority=9)
        for node in nodes
        if node.name in ("a", "b")
    ]
    evaluated = evaluate(pod, nodes, running)
    (group,) = rejections(evaluated.explanation)
    assert detail(evaluated.framework, evaluated.pod, group).text == text
