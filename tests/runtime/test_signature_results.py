"""Results that are cached for identical pods: which rows are evaluated again, and the best node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from bayplan.plugin import (
    CycleState,
    Dependencies,
    NodeColumns,
    NodeInfo,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    unschedulable,
)
from bayplan.plugins.node_name import NodeName
from bayplan.plugins.node_ports import NodePorts
from bayplan.plugins.taint_toleration import TaintToleration
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin

from .profiles import found, make_framework
from .scripted import FITS, FollowsUsage, Indifferent, Scripted, pods, rows_computed


def test_a_pod_that_names_its_node_does_not_change_results_of_identical_pods() -> None:
    """Pods of one template may differ in the node they name; each gets its own statuses."""
    framework = make_framework(make_plugin(NodeName), make_plugin(Indifferent), nodes=3)
    assert found(framework, make_pod("a", node="n1")).node_name == "n1"
    assert found(framework, make_pod("b")).feasible == 3
    assert found(framework, make_pod("c", node="n2")).node_name == "n2"
    assert found(framework, make_pod("d")).feasible == 3


def test_pods_with_other_annotations_are_not_identical_to_a_plugin_that_reads_them() -> None:
    """Annotations are no part of the template, so such a plugin's results depend on the pod."""

    class ByAnnotation(Scripted):
        depends_on = Dependencies.of("annotations")

        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
            yield Reject(~nodes.is_named(pod.annotations.get("node", "")), unschedulable("elsewhere"))

    framework = make_framework(ByAnnotation(), nodes=3)
    for name in ("n2", "n0", "n2"):
        assert found(framework, make_pod("p", annotations={"node": name})).node_name == name


class TestRows:
    """Only rows that changed are evaluated again."""

    def test_nothing_is_evaluated_while_nothing_changes(self) -> None:
        plugin = Scripted()
        framework = make_framework(plugin, make_plugin(Indifferent), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 0
        assert len(plugin.evaluated) == 1

    @pytest.mark.parametrize("count", [1, 3, 20], ids=lambda count: f"{count} placements")
    def test_after_placements_the_rows_where_pods_were_added(self, count: int) -> None:
        framework = make_framework(make_plugin(FITS), nodes=50)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(count):
            framework.cluster.add_pod(make_pod(f"other-{number}", cpu="1"), f"n{number}")
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == count

    def test_several_pods_on_one_row_make_one_row(self) -> None:
        framework = make_framework(make_plugin(FITS), nodes=50)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(5):
            framework.cluster.add_pod(make_pod(f"other-{number}"), "n7")
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 1

    def test_a_node_that_changed_is_one_row(self) -> None:
        plugin = Scripted()
        framework = make_framework(plugin, make_plugin(FITS), nodes=50)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.set_node(make_node("n3", cpu="8"))
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 1
        assert plugin.evaluated[1:] == [["n3"]]

    def test_a_node_that_stayed_the_same_is_none(self) -> None:
        framework = make_framework(make_plugin(FITS), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.set_node(make_node("n3"))
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 0

    def test_assigned_pods_do_not_affect_a_plugin_that_does_not_depend_on_them(self) -> None:
        static, usage = Scripted(), FollowsUsage()
        framework = make_framework(static, usage, nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        found(framework, next(next_pod))
        assert (static.evaluated[1:], usage.evaluated[1:]) == ([], [["n2"]])

    def test_a_reader_that_slept_too_long_starts_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bayplan.clock.MAX_HISTORY", 8)
        framework = make_framework(make_plugin(FITS), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(30):
            framework.cluster.add_pod(make_pod(f"other-{number}", cpu="10m"), "n2")
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 5

    def test_a_plugin_that_declares_nothing_is_run_every_time(self) -> None:
        class Undeclared(Scripted):
            depends_on = None

        plugin = Undeclared()
        framework = make_framework(plugin, make_plugin(Indifferent), nodes=5)
        next_pod = pods()
        for _ in range(3):
            found(framework, next(next_pod))
        assert len(plugin.evaluated) == 3

    def test_pods_with_other_signatures_share_the_results_of_equal_fragments(self) -> None:
        plugin = Scripted()
        framework = make_framework(plugin, make_plugin(Indifferent), nodes=5)
        for cpu in ("100m", "200m", "300m"):
            found(framework, make_pod("p", cpu=cpu))
        assert len(plugin.evaluated) == 1


class TestOneNodeAtATime:
    """Results of a plugin that evaluates single nodes are cached, too."""

    class Cached(NodePlugin):
        depends_on = Dependencies.of("labels")

        def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
            return unschedulable(f"not {node.name}") if node.name == "n0" else None

        def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
            return 100 if node.name == "n2" else 0

    def test_it_never_meets_a_row_without_a_node(self) -> None:
        framework = make_framework(make_plugin(self.Cached), nodes=3)
        framework.cluster.add_pod(make_pod("early"), "unseen")
        result = found(framework, make_pod())
        assert (result.node_name, result.feasible) == ("n2", 2)

    def test_it_follows_nodes_that_come_and_go(self) -> None:
        framework = make_framework(make_plugin(self.Cached), nodes=4)
        assert found(framework, make_pod("a")).node_name == "n2"
        framework.cluster.add_pod(make_pod("stays"), "n2")
        framework.cluster.remove_node("n2")
        result = found(framework, make_pod("b"))
        assert (result.node_name, result.feasible) == ("n1", 2)


def test_the_heaviest_weights_do_not_confuse_the_choice() -> None:
    """Σ weight·100 may be as large as an int64; total and tie-break no longer fit into one then."""
    framework = make_framework(Scripted(best="n2"), make_plugin(FITS), nodes=4, weights={"Scripted": 2**56})
    next_pod = pods()
    for _ in range(3):
        pod = next(next_pod)
        assert found(framework, pod).node_name == "n2"
        framework.cluster.add_pod(pod, "n2")


@pytest.mark.parametrize("plugins", [(FITS,), (FITS, NodePorts), (TaintToleration, FITS)])
def test_the_best_node_is_the_best_after_every_placement(plugins: Iterable[type[Plugin]]) -> None:
    """The cached ranking picks the same node as scoring everything again, over a long run of equal pods."""
    cached, uncached = (
        make_framework(*(make_plugin(plugin) for plugin in plugins), nodes=9, cache=cache)
        for cache in (True, False)
    )
    for number in range(60):
        pod = make_pod(f"p{number}", cpu="130m", memory="1Gi")
        one, other = found(cached, pod), found(uncached, pod)
        assert (one.node_name, one.feasible) == (other.node_name, other.feasible)
        for framework in (cached, uncached):
            framework.cluster.add_pod(pod, one.node_name)
