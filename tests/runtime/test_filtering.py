"""Nominated pods count on their node for pods of lower or equal priority; and hypotheses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bayplan.plugin import (
    SKIP,
    BoolColumn,
    Code,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodeNames,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    Status,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugins.inter_pod_affinity import InterPodAffinity
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import SearchStart
from bayplan.state.hypothesis import Hypothesis
from bayplan.testing.builders import make_node, make_pod, make_pod_affinity, make_pod_term
from bayplan.testing.calling import FakeHandle, make_plugin

from .profiles import found, make_framework, not_found, statuses

HOST = "kubernetes.io/hostname"


class Indifferent(Plugin):
    """Scores all nodes equally, so that all are evaluated."""

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


def tight(nodes: int = 2, **options: Any) -> Framework:
    """Nodes with room for one pod that requests 3 cpus."""
    cluster_nodes = [make_node(f"n{number}", cpu=4, labels={HOST: f"n{number}"}) for number in range(nodes)]
    return make_framework(
        make_plugin(NodeResourcesFit),
        make_plugin(InterPodAffinity),
        make_plugin(Indifferent),
        nodes=cluster_nodes,
        **options,
    )


def big(name: str, **more: Any) -> Pod:
    return make_pod(name, cpu=3, **more)


FULL = Status(Code.UNSCHEDULABLE, ("Insufficient cpu",), "NodeResourcesFit")


class TestNominated:
    @pytest.mark.parametrize(
        ("nominated", "incoming", "feasible"),
        [
            pytest.param(10, 10, 1, id="of equal priority"),
            pytest.param(11, 10, 1, id="of higher priority"),
            pytest.param(9, 10, 2, id="of lower priority: as if it were not there"),
        ],
    )
    def test_a_nominated_pod_takes_its_room(self, nominated: int, incoming: int, feasible: int) -> None:
        framework = tight()
        framework.cluster.nominate(big("first", priority=nominated), "n0")
        assert found(framework, big("next", priority=incoming)).feasible == feasible

    def test_a_pod_does_not_count_against_itself(self) -> None:
        framework = tight()
        pod = big("first", priority=10)
        framework.cluster.nominate(pod, "n0")
        assert found(framework, pod).feasible == 2

    def test_the_node_lacks_what_is_reported(self) -> None:
        framework = tight(nodes=1)
        framework.cluster.nominate(big("first", priority=10), "n0")
        assert statuses(framework, big("next", priority=10)) == {"n0": FULL}

    def test_it_must_fit_without_them_too(self) -> None:
        """A pod with affinity to a nominated pod must wait until that pod is assigned."""
        framework = tight(nodes=1)
        framework.cluster.nominate(make_pod("first", labels={"app": "x"}, priority=10), "n0")
        near = make_pod_affinity(required=[make_pod_term(HOST, {"app": "x"})])
        assert (
            statuses(framework, make_pod("next", affinity=near, priority=10))["n0"].plugin
            == "InterPodAffinity"
        )

    def test_anti_affinity_to_a_nominated_pod(self) -> None:
        framework = tight(nodes=2)
        framework.cluster.nominate(make_pod("first", labels={"app": "x"}, priority=10), "n0")
        away = make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "x"})])
        assert found(framework, make_pod("next", affinity=away, priority=10)).node_name == "n1"

    def test_a_removed_nomination_does_not_count(self) -> None:
        framework = tight()
        framework.cluster.nominate(big("first", priority=10), "n0")
        assert found(framework, big("a", priority=10)).feasible == 1
        framework.cluster.remove_nomination(big("first").uid)
        assert found(framework, big("b", priority=10)).feasible == 2

    def test_a_pod_nominated_to_a_node_that_is_gone_is_no_obstacle(self) -> None:
        framework = tight()
        framework.cluster.nominate(big("first", priority=10), "gone")
        assert found(framework, big("next", priority=10)).feasible == 2


class TestNominatedNodeFirst:
    """A nominated pod gets its node if it fits there, and no other node is evaluated."""

    def test_it_is_taken_though_others_are_better(self) -> None:
        start = SearchStart(1)
        framework = tight(nodes=3, start=start)
        result = found(framework, big("p", nominated_node="n2"))
        assert (result.node_name, result.feasible, result.evaluated, start.index) == ("n2", 1, 1, 1)

    def test_nominated_pods_count_there_too(self) -> None:
        framework = tight(nodes=2)
        framework.cluster.nominate(big("first", priority=10), "n1")
        assert found(framework, big("p", priority=10, nominated_node="n1")).node_name == "n0"

    @pytest.mark.parametrize("name", ["gone", "left"])
    def test_where_that_node_is_deleted_all_are_evaluated(self, name: str) -> None:
        framework = tight(nodes=2)
        framework.cluster.add_pod(make_pod("stays"), "left")
        assert found(framework, big("p", nominated_node=name)).feasible == 2

    def test_where_it_does_not_fit_all_are_evaluated(self) -> None:
        framework = tight(nodes=3)
        framework.cluster.add_pod(big("x"), "n2")
        assert found(framework, big("p", nominated_node="n2")).feasible == 2

    def test_the_node_set_of_prefilter_is_not_used(self) -> None:
        class Names(Plugin):
            def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> NodeNames:
                return NodeNames(frozenset(("n0",)))

        framework = make_framework(make_plugin(Names), make_plugin(Indifferent), nodes=3)
        assert found(framework, make_pod(nominated_node="n2")).node_name == "n2"

    def test_where_it_does_not_fit_it_gets_the_reason_though_it_is_not_among_the_named_nodes(self) -> None:
        """It was evaluated before a plugin restricted the nodes, and counts as evaluated."""

        class Names(Plugin):
            def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> NodeNames:
                return NodeNames(frozenset(("n1",)))

        start = SearchStart()
        framework = make_framework(
            make_plugin(Names), make_plugin(NodeResourcesFit), make_plugin(Indifferent), nodes=4, start=start
        )
        found_statuses = statuses(framework, make_pod(cpu=9, nominated_node="n2"))
        assert {name: status.message for name, status in found_statuses.items()} == {
            "n0": "node(s) didn't satisfy plugin(s) [Names]",
            "n1": "Insufficient cpu",
            "n2": "Insufficient cpu",
            "n3": "node(s) didn't satisfy plugin(s) [Names]",
        }
        assert start.index == 2

    def test_an_exception_there_does_not_fail_the_attempt(self) -> None:
        class Breaks(Plugin):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                if len(nodes) == 1:
                    raise RuntimeError("not this one")
                yield Reject(False, unschedulable("no"))

        assert (
            found(
                make_framework(make_plugin(Breaks), make_plugin(Indifferent), nodes=3),
                make_pod(nominated_node="n1"),
            ).feasible
            == 3
        )


class Adjusts(Plugin):
    """Counts pods in its state, the classic way: PreFilter sums up, AddPod and RemovePod adjust."""

    class Count:
        def __init__(self, count: int) -> None:
            self.count = count

        def clone(self) -> Adjusts.Count:
            return Adjusts.Count(self.count)

    def __init__(self, most: int = 1, answer: Status | None = None) -> None:
        super().__init__(None, FakeHandle())
        self.most = most
        self.answer = answer

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        state.write(self.name, Adjusts.Count(int(nodes.pod_count.sum())))
        return None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status | None:
        state.read(self.name).count += 1
        return self.answer

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status | None:
        state.read(self.name).count -= 1
        return self.answer

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(state.read(self.name).count > self.most, unschedulable("too many pods in the cluster"))


class CachedAdjusts(Adjusts):
    depends_on = Dependencies.of(usage=True)


class TestAddPodAndRemovePod:
    @pytest.mark.parametrize("kind", [Adjusts, CachedAdjusts], ids=["uncached", "cached"])
    def test_each_node_is_evaluated_with_its_own_state(self, kind: type[Adjusts]) -> None:
        framework = make_framework(kind(most=1), make_plugin(Indifferent), nodes=3)
        framework.cluster.nominate(make_pod("a", priority=5), "n0")
        framework.cluster.nominate(make_pod("b", priority=5), "n1")
        framework.cluster.nominate(make_pod("c", priority=5), "n1")
        assert found(framework, make_pod("next", priority=5)).feasible == 2

    def test_removed_pods_are_taken_back(self) -> None:
        framework = make_framework(Adjusts(most=0), make_plugin(Indifferent), nodes=2)
        framework.cluster.add_pod(make_pod("x"), "n0")
        pod = make_pod("next")
        result = not_found(framework, pod)
        gone = Hypothesis.on_few_rows(framework.cluster, [0, 1], [[(0, -1)], []])
        assert framework.filtering.filter_hypothesis(result.search, gone).passing.tolist() == [True, False]

    @pytest.mark.parametrize("answer", [failure("lost count"), Status(Code.UNSCHEDULABLE, ("lost count",))])
    def test_an_answer_that_is_no_success_fails_the_attempt(self, answer: Status) -> None:
        framework = make_framework(Adjusts(answer=answer), make_plugin(Indifferent), nodes=2)
        framework.cluster.nominate(make_pod("a", priority=5), "n0")
        with pytest.raises(AttemptError) as raised:
            framework.find(make_pod("next", priority=5))
        assert str(raised.value) == 'running AddPod on PreFilter plugin "Adjusts": lost count'

    def test_so_does_an_exception(self) -> None:
        class Raises(Adjusts):
            def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status | None:
                raise RuntimeError("oops")

        framework = make_framework(Raises(), make_plugin(Indifferent), nodes=2)
        framework.cluster.nominate(make_pod("a", priority=5), "n0")
        with pytest.raises(
            AttemptError, match=r'^running AddPod on PreFilter plugin "Raises": RuntimeError: oops \('
        ):
            framework.find(make_pod("next", priority=5))

    def test_a_plugin_that_skipped_is_not_adjusted(self) -> None:
        class Skips(Adjusts):
            def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
                return SKIP

        framework = make_framework(Skips(), make_plugin(Indifferent), nodes=2)
        framework.cluster.nominate(make_pod("a", priority=5), "n0")
        assert found(framework, make_pod("next", priority=5)).feasible == 2


class TestOneNodeAtATime:
    """NodePlugin: ordinary Python for one node."""

    class Picky(NodePlugin):
        def __init__(self) -> None:
            super().__init__(None, FakeHandle())
            self.shown: list[str] = []

        def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
            self.shown.append(node.name)
            if len(node.pods) > 1:
                return unschedulable("crowded")
            return unresolvable("wrong") if node.name == "n2" else None

        def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
            return 100 if node.name == "n3" else len(node.pods)

    class Before(Plugin):
        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
            yield Reject(nodes.is_named("n0"), unschedulable("before"))

    class After(Before):
        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
            yield Reject(nodes.is_named("n1"), unschedulable("after"))

    def test_only_nodes_that_those_before_it_accepted_are_shown(self) -> None:
        picky = self.Picky()
        framework = make_framework(make_plugin(self.Before), picky, make_plugin(self.After), nodes=5)
        framework.cluster.add_pod(make_pod("early"), "unseen")
        result = found(framework, make_pod())
        assert sorted(picky.shown) == ["n1", "n2", "n3", "n4"]
        assert (result.node_name, result.feasible) == ("n3", 2)

    def test_its_statuses_count_like_others(self) -> None:
        framework = make_framework(self.Picky(), nodes=[make_node("n2"), make_node("n5")])
        for name in ("a", "b"):
            framework.cluster.add_pod(make_pod(name), "n5")
        assert statuses(framework, make_pod()) == {
            "n2": Status(Code.UNRESOLVABLE, ("wrong",), "Picky"),
            "n5": Status(Code.UNSCHEDULABLE, ("crowded",), "Picky"),
        }

    def test_it_sees_the_pods_that_would_be_there(self) -> None:
        framework = make_framework(
            self.Picky(), make_plugin(Indifferent), nodes=[make_node("n0"), make_node("n1")]
        )
        for name in ("a", "b"):
            framework.cluster.nominate(make_pod(name, priority=9), "n0")
        assert found(framework, make_pod("next", priority=1)).node_name == "n1"

    def test_a_plugin_with_only_one_of_the_methods_takes_part_in_one_point(self) -> None:
        class OnlyScores(NodePlugin):
            def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
                return 100 if node.name == "n1" else 0

        framework = make_framework(make_plugin(OnlyScores), nodes=3)
        assert (len(framework.profile.filters), len(framework.profile.scores)) == (0, 1)
        assert found(framework, make_pod()).node_name == "n1"

    def test_what_it_raises_names_it(self) -> None:
        class Raises(NodePlugin):
            def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Any:
                return node.labels["missing"]

        with pytest.raises(AttemptError, match="running \"Raises\" filter plugin: KeyError: 'missing'"):
            make_framework(make_plugin(Raises), nodes=2).find(make_pod())


class TestWhereFiltersAreIndifferent:
    """On rows that they accept whichever pods are there, the other filters decide."""

    def rows(self, plugin: type[Plugin]) -> list[bool]:
        framework = make_framework(
            make_plugin(plugin), make_plugin(NodeResourcesFit), make_plugin(Indifferent), nodes=3
        )
        framework.cluster.nominate(make_pod("expected", priority=5), "n2")
        return list(framework.filtering.locally_decided(framework.begin(make_pod("p"))))

    def test_a_plugin_without_nodes_affected_by_pods(self) -> None:
        class Undeclared(Plugin):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(nodes.is_named("n0"), unschedulable("not this one"))

        assert self.rows(Undeclared) == [False, False, False]

    def test_a_plugin_with_nodes_affected_by_pods(self) -> None:
        class Declares(Plugin):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(nodes.is_named("n0"), unschedulable("not this one"))

            def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
                return np.zeros(len(nodes), dtype=np.bool_)

        assert self.rows(Declares) == [False, True, True]

    def test_a_plugin_that_depends_on_nominated_pods(self) -> None:
        class DependsOnPods(Plugin):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(nodes.pod_count > 0, unschedulable("it has pods"))

            def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
                return nodes.pod_count > 0

        assert self.rows(DependsOnPods) == [True, True, False]

    @pytest.mark.parametrize("answer", [np.zeros(2, dtype=np.bool_), np.zeros(3), None])
    def test_an_invalid_result_is_an_error(self, answer: Any) -> None:
        class Invalid(Plugin):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(False, unschedulable("no"))

            def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
                return answer

        with pytest.raises(
            AttemptError, match=r'^running "Invalid" filter plugin: nodes_affected_by_pods returned '
        ):
            self.rows(Invalid)
