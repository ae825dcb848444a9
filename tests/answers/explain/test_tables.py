"""Tables of `bayplan decide`: the result, the scores, the reasons, and what preemption would do."""

from __future__ import annotations

import io
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from bayplan.answers.explain.tables import EvaluatedPod, make_table, print_tables
from bayplan.plugin import Node, Pod
from bayplan.testing.builders import make_node, make_pdb, make_pod

from .evaluating import evaluate


def shown(evaluated: Sequence[EvaluatedPod], *, width: int = 120, details: int = 10) -> str:
    out = io.StringIO()
    print_tables(Console(file=out, width=width), "cluster", evaluated, details)
    return out.getvalue()


def test_a_pod_with_a_node() -> None:
    """Its node, the scores of the other feasible nodes, and why some were rejected."""
    nodes = [make_node("a"), make_node("b", cpu="8"), make_node("c", unschedulable=True)]
    assert shown([evaluate(make_pod("web", cpu="1"), nodes)]) == (
        "cluster\n"
        "\n"
        "default/web goes to b · 2 of 3 nodes fit\n"
        "\n"
        "  node  score  weighted, by plugin\n"
        "  b       464  TaintToleration 300, NodeResourcesFit 93, NodeResourcesBalancedAllocation 71\n"
        "  a       455  NodeResourcesFit −6, NodeResourcesBalancedAllocation −3\n"
        "\n"
        "  nodes     rejected by        reason\n"
        "      1  c  NodeUnschedulable  node(s) were unschedulable\n"
    )


def test_a_pod_that_would_preempt() -> None:
    nodes = [make_node("a"), make_node("b"), make_node("c", taints=["gone:NoExecute"])]
    running = [
        make_pod("dear", node="a", cpu="3", priority=5, labels={"app": "dear"}),
        make_pod("cheap", node="b", cpu="3", priority=1),
    ]
    pod = make_pod("web", cpu="2", priority=10)
    assert shown([evaluate(pod, nodes, running, make_pdb("pdb", {"app": "dear"}))]) == (
        "cluster\n"
        "\n"
        "default/web is unschedulable; would preempt default/cheap on b · 0 of 3 nodes fit\n"
        "\n"
        "  nodes       rejected by       reason                                             "
        "preemption helps?\n"
        "      2  a b  NodeResourcesFit  Insufficient cpu (nearest: a lacks 1 cpu)          yes\n"
        "      1  c    TaintToleration   node(s) had untolerated taint(s) (gone:NoExecute)  no\n"
        "\n"
        "  node  victims (priority below 10)\n"
        "  b     default/cheap (1)            cheapest; would be chosen\n"
        "  a     default/dear (5)             violates a PodDisruptionBudget for 1 pod\n"
        "\n"
        "  0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "preemption: found a potential\n"
        "  placement for pod on node b, preempting 1 victims\n"
    )


@pytest.mark.parametrize(
    ("pod", "verdict"),
    [
        pytest.param(make_pod(cpu="9"), "is unschedulable; preemption would not help", id="too large"),
        pytest.param(
            make_pod(cpu="2", priority=9, preemption_policy="Never"),
            "is unschedulable; not eligible for preemption",
            id="preemptionPolicy Never",
        ),
    ],
)
def test_a_pod_that_preemption_does_not_help(pod: Pod, verdict: str) -> None:
    text = shown([evaluate(pod, make_node("a"), make_pod("running", node="a", cpu="3"))])
    assert f"default/p {verdict} · 0 of 1 node fit\n" in text
    assert "preemption: " in text


def test_the_message_of_post_filter_is_shown() -> None:
    pod = make_pod(cpu="2", priority=9, preemption_policy="Never")
    text = shown([evaluate(pod, make_node("a"), make_pod("running", node="a", cpu="3"))])
    assert "preemption: not eligible due to preemptionPolicy=Never." in " ".join(text.split())
    assert "not eligible\n" in text


def test_no_nodes() -> None:
    assert shown([evaluate(make_pod("web"))]) == (
        "cluster\n\ndefault/web cannot be scheduled: no nodes available to schedule pods\n"
    )


def test_several_pods_begin_with_a_line_each() -> None:
    nodes, running = [make_node("a"), make_node("b")], make_pod("cheap", node="a", cpu="3", priority=-1)
    pods = (
        make_pod("equal", namespace="x"),
        make_pod("large", cpu="4"),
        make_pod("huge", cpu="40"),
        make_pod("nominated", nominated_node="a"),
    )
    text = shown([evaluate(pod, nodes, [running] if pod.name != "equal" else []) for pod in pods], details=0)
    assert text == (
        "cluster\n"
        "\n"
        "  pod                node  reason\n"
        "  x/equal            a     best of 2 feasible nodes, tied with 1 other\n"
        "  default/large      b     the only feasible node\n"
        "  default/huge       –     2 Insufficient cpu.\n"
        "  default/nominated  a     the pod's nominated node, which fits\n"
        "\n"
        "… and 4 more pods; --pod NAMESPACE/NAME shows one in full\n"
    )


def wide(count: int) -> list[Node]:
    sizes = ("2", "4", "8")
    return [make_node(f"node-{i:04}.example.internal", cpu=sizes[i % 3]) for i in range(count)]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("cpu", ["1", "3", "100"])
def test_a_wide_cluster_stays_readable(cpu: str, width: int) -> None:
    """With hundreds of nodes the output has few lines, and none is longer than the terminal is wide."""
    lines = shown([evaluate(make_pod("web", cpu=cpu), wide(600))], width=width).splitlines()
    assert len(lines) < 50
    assert all(len(line) <= width for line in lines)


def test_equally_good_nodes_are_counted() -> None:
    lines = shown([evaluate(make_pod("web", cpu="1"), wide(600))]).splitlines()
    assert any(line.endswith("199 nodes with the same score, later in the node order") for line in lines)
    assert sum("NodeResourcesFit −" in line for line in lines) == 4
    assert any("396 more, down to node-" in line for line in lines)


def test_names_are_not_markup() -> None:
    """A PreFilter's text has brackets, which rich would take for a style."""
    affinity = {"kubernetes.io/hostname": "[bold]"}
    text = shown([evaluate(make_pod("web", node_selector=affinity), make_node("a"))])
    assert "node(s) didn't match Pod's node affinity/selector" in text
    taint = make_node("[red]x", taints=["[blink]:NoSchedule"])
    assert "[red]x" in shown([evaluate(make_pod("web"), taint)])


def test_rare_reasons_are_summed_up() -> None:
    """Twelve nodes, and each lacks another resource."""
    wanted = {f"example.com/r{i}": 1 for i in range(12)}
    nodes = [make_node(f"n{i}", resources=wanted | {f"example.com/r{i}": 0}) for i in range(12)]
    assert "4 rarer reasons" in shown([evaluate(make_pod("web", requests=wanted), nodes)])


@pytest.mark.parametrize(("width", "stacked"), [(40, True), (80, False)])
def test_words_are_not_broken(width: int, stacked: bool) -> None:
    """Where the words of a row do not fit beside each other, its cells are below each other."""
    table = make_table(">nodes", "", "rejected by", "reason")
    table.add_row("1", "a-node-with-a-long-name", "TaintToleration", Text("node(s) had untolerated taint(s)"))
    console = Console(file=StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    if stacked:
        assert lines == [
            "nodes: 1  a-node-with-a-long-name",
            "  rejected by: TaintToleration",
            "  reason: node(s) had untolerated",
            "  taint(s)",
        ]
    else:
        assert lines[0].split() == ["nodes", "rejected", "by", "reason"]
