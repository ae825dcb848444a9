"""Results that are cached for identical pods: when they are used again, and when they must not be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from bayplan.plugin import (
    SKIP,
    Code,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    NodeInfo,
    NodePlugin,
    Plugin,
    Pod,
    Reject,
    Status,
    normalize_default,
    reject,
)
from bayplan.plugin.objects import Service
from bayplan.plugins.image_locality import ImageLocality
from bayplan.plugins.node_name import NodeName
from bayplan.plugins.node_ports import NodePorts
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.plugins.taint_toleration import TaintToleration
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.framework import Framework
from bayplan.testing.builders import make_node, make_pod, make_service

from .profiles import found, make_framework, not_found

FITS = NodeResourcesFit


class Indifferent(Plugin):
    """Scores all nodes equally, so that all are evaluated."""

    depends_on = Dependencies.of()

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return np.zeros(len(nodes), dtype=np.int64)


class Scripted(Plugin):
    """Returns the given results, and records the rows that it evaluates."""

    depends_on: ClassVar[Dependencies | None] = Dependencies.of("labels")

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.rejected: set[str] = answers.get("rejected", set())
        self.best = answers.get("best", "")
        self.problem: Exception | None = None
        self.evaluated: list[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        self.evaluated.append([name for name in nodes.names if name])
        if self.problem is not None:
            raise self.problem
        for name in sorted(self.rejected):
            yield Reject(nodes.is_named(name), f"not {name}")

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return 100 * nodes.is_named(self.best).astype(np.int64)


class FollowsUsage(Scripted):
    depends_on = Dependencies.of("labels", usage=True)


class ReadsServices(Scripted):
    """Rejects or prefers nodes that a Service is named after."""

    depends_on = Dependencies.of("labels", kinds=(Service,))

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        for service in nodes.cluster.objects.of(Service):
            yield Reject(nodes.is_named(service.name), f"not {service.name}")


class ReadsServicesWithPreFilter(ReadsServices):
    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return None


class ScoresByServices(Plugin):
    """Has nothing to filter, ever, but prefers nodes that a Service is named after."""

    depends_on = Dependencies.of("labels", kinds=(Service,))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return SKIP

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(True, "never run")

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        total = np.zeros(len(nodes), dtype=np.int64)
        for service in nodes.cluster.objects.of(Service):
            total[nodes.is_named(service.name)] = 100
        return total


class ScoresByServicesOnceThereAreAny(ScoresByServices):
    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return None if len(nodes.cluster.objects.of(Service)) else SKIP


def pods() -> Iterator[Pod]:
    """Pods that are identical."""
    number = 0
    while True:
        yield make_pod(f"p{number}", cpu="100m")
        number += 1


def rows_computed(framework: Framework, do: Callable[[], Any]) -> int:
    before = framework.rows_computed
    do()
    return framework.rows_computed - before


def test_a_pod_that_names_its_node_does_not_change_results_of_identical_pods() -> None:
    """Pods of one template may differ in the node they name; each gets its own statuses."""
    framework = make_framework(NodeName(), Indifferent(), nodes=3)
    assert found(framework, make_pod("a", node="n1")).node_name == "n1"
    assert found(framework, make_pod("b")).feasible == 3
    assert found(framework, make_pod("c", node="n2")).node_name == "n2"
    assert found(framework, make_pod("d")).feasible == 3


def test_pods_with_other_annotations_are_not_identical_to_a_plugin_that_reads_them() -> None:
    """Annotations are no part of the template, so such a plugin's results depend on the pod."""

    class ByAnnotation(Scripted):
        depends_on = Dependencies.of("annotations")

        def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
            yield Reject(~nodes.is_named(pod.annotations.get("node", "")), "elsewhere")

    framework = make_framework(ByAnnotation(), nodes=3)
    for name in ("n2", "n0", "n2"):
        assert found(framework, make_pod("p", annotations={"node": name})).node_name == name


class TestRows:
    """Only rows that changed are evaluated again."""

    def test_nothing_is_evaluated_while_nothing_changes(self) -> None:
        plugin = Scripted()
        framework = make_framework(plugin, Indifferent(), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 0
        assert len(plugin.evaluated) == 1

    @pytest.mark.parametrize("count", [1, 3, 20], ids=lambda count: f"{count} placements")
    def test_after_placements_the_rows_where_pods_were_added(self, count: int) -> None:
        framework = make_framework(FITS(), nodes=50)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(count):
            framework.cluster.add_pod(make_pod(f"other-{number}", cpu="1"), f"n{number}")
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == count

    def test_several_pods_on_one_row_make_one_row(self) -> None:
        framework = make_framework(FITS(), nodes=50)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(5):
            framework.cluster.add_pod(make_pod(f"other-{number}"), "n7")
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 1

    def test_a_node_that_changed_is_one_row(self) -> None:
        plugin = Scripted()
        framework = make_framework(plugin, FITS(), nodes=50)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.set_node(make_node("n3", cpu="8"))
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 1
        assert plugin.evaluated[1:] == [["n3"]]

    def test_a_node_that_stayed_the_same_is_none(self) -> None:
        framework = make_framework(FITS(), nodes=5)
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
        monkeypatch.setattr("bayplan.snapshot.changes.MAX_HISTORY", 8)
        framework = make_framework(FITS(), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(30):
            framework.cluster.add_pod(make_pod(f"other-{number}", cpu="10m"), "n2")
        assert rows_computed(framework, lambda: found(framework, next(next_pod))) == 5

    def test_a_plugin_that_declares_nothing_is_run_every_time(self) -> None:
        class Undeclared(Scripted):
            depends_on = None

        plugin = Undeclared()
        framework = make_framework(plugin, Indifferent(), nodes=5)
        next_pod = pods()
        for _ in range(3):
            found(framework, next(next_pod))
        assert len(plugin.evaluated) == 3

    def test_pods_with_other_signatures_share_the_results_of_equal_fragments(self) -> None:
        plugin = Scripted()
        framework = make_framework(plugin, Indifferent(), nodes=5)
        for cpu in ("100m", "200m", "300m"):
            found(framework, make_pod("p", cpu=cpu))
        assert len(plugin.evaluated) == 1


class TestWhatMakesResultsNew:
    @pytest.mark.parametrize("plugin", [ReadsServices, ReadsServicesWithPreFilter])
    def test_an_object_of_a_kind_that_a_filter_reads(self, plugin: type[Plugin]) -> None:
        framework = make_framework(plugin(), Indifferent(), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 3
        framework.cluster.objects.put(make_service("n0"))
        assert found(framework, next(next_pod)).feasible == 2
        framework.cluster.objects.remove(make_service("n0"))
        assert found(framework, next(next_pod)).feasible == 3

    @pytest.mark.parametrize("plugin", [ScoresByServices, ScoresByServicesOnceThereAreAny])
    def test_an_object_of_a_kind_that_a_score_reads(self, plugin: type[Plugin]) -> None:
        """Even where the plugin has nothing to filter, before and after."""
        framework = make_framework(plugin(), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).node_name == "n0"
        framework.cluster.objects.put(make_service("n2"))
        assert found(framework, next(next_pod)).node_name == "n2"
        framework.cluster.objects.put(make_service("n1"))
        framework.cluster.objects.remove(make_service("n2"))
        assert found(framework, next(next_pod)).node_name == "n1"

    def test_an_image_for_a_plugin_that_reads_which_nodes_have_which(self) -> None:
        class OnlyWithoutImages(Plugin):
            depends_on = Dependencies.of(images=True)

            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(bool(nodes.cluster.nodes.images), "there are images")

        framework = make_framework(OnlyWithoutImages(), Indifferent(), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 3
        framework.cluster.set_node(make_node("n2", images={"some": 1}))
        assert not_found(framework, next(next_pod)).diagnosis.rejecting_plugins == {"OnlyWithoutImages"}

    def test_an_image_that_other_nodes_get(self) -> None:
        """How much an image on one node is worth follows from how many nodes have it."""
        mebi = 2**20
        framework = make_framework(
            ImageLocality(),
            nodes=[
                make_node("n0", images={"one:v1": 500 * mebi}),
                make_node("n1", images={"two:v1": 400 * mebi}),
            ],
        )

        def wanted(name: str) -> Pod:
            containers = (
                make_pod(image="one:v1").spec.containers[0],
                make_pod(image="two:v1").spec.containers[0],
            )
            return make_pod(name, containers=containers)

        assert found(framework, wanted("a")).node_name == "n0"
        framework.cluster.set_node(make_node("n2", images={"two:v1": 400 * mebi}))
        assert found(framework, wanted("b")).node_name == "n1"

    def test_a_node_that_takes_the_row_of_another(self) -> None:
        framework = make_framework(TaintToleration(), FITS(), nodes=2)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 2
        framework.cluster.remove_node("n1")
        framework.cluster.set_node(make_node("other", taints=["no:NoSchedule"]))
        result = found(framework, next(next_pod))
        assert (result.node_name, result.feasible) == ("n0", 1)

    def test_a_pod_on_an_unknown_node(self) -> None:
        """It makes the table grow by a row that belongs to no node."""
        framework = make_framework(TaintToleration(), ImageLocality(), FITS(), nodes=2)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("early"), "n2")
        assert found(framework, next(next_pod)).feasible == 2
        framework.cluster.set_node(make_node("n2"))
        assert found(framework, next(next_pod)).feasible == 3

    def test_scores_of_a_cached_plugin_that_normalises_depend_on_the_feasible_nodes(self) -> None:
        """Raw scores are kept; what they come to depends on the best of the nodes that fit."""

        class Raw(Plugin):
            depends_on = Dependencies.of()

            def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
                return np.array([int(name[1:] or 0) for name in nodes.names], dtype=np.int64)

            def normalize(
                self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
            ) -> IntColumn:
                return normalize_default(scores, reverse=True)

        class Gate(FollowsUsage):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(nodes.pod_count > 0, "taken")

        framework = make_framework(Raw(), Gate(), nodes=4)
        next_pod = pods()
        assert found(framework, next(next_pod)).node_name == "n0"
        framework.cluster.add_pod(make_pod("other"), "n0")
        assert found(framework, next(next_pod)).node_name == "n1"


class TestAfterSomethingBroke:
    def test_the_next_attempt_evaluates_again(self) -> None:
        plugin = Scripted(rejected={"n0"})
        framework = make_framework(plugin, Indifferent(), nodes=3)
        next_pod = pods()
        plugin.problem = RuntimeError("no luck")
        with pytest.raises(AttemptError, match='running "Scripted" filter plugin: RuntimeError: no luck'):
            framework.find(next(next_pod))
        plugin.problem = None
        assert found(framework, next(next_pod)).feasible == 2

    @pytest.mark.parametrize("changed", [1, 30], ids=["one row", "many rows"])
    def test_rows_that_could_not_be_evaluated_are_evaluated_later(self, changed: int) -> None:
        class Fussy(FollowsUsage):
            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                if self.problem is not None:
                    raise self.problem
                yield Reject(nodes.pod_count > 0, "taken")

        plugin = Fussy()
        framework = make_framework(plugin, Indifferent(), nodes=40)
        next_pod = pods()
        found(framework, next(next_pod))
        for number in range(changed):
            framework.cluster.add_pod(make_pod(f"other-{number}"), f"n{number}")
        plugin.problem = RuntimeError("no luck")
        with pytest.raises(AttemptError):
            framework.find(next(next_pod))
        plugin.problem = None
        assert found(framework, next(next_pod)).feasible == 40 - changed

    def test_a_score_out_of_range_fails_every_attempt_until_it_is_not(self) -> None:
        class Wild(Plugin):
            depends_on = Dependencies.of(usage=True)
            elementwise = True

            def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
                return 99 + nodes.pod_count

        framework = make_framework(Wild(), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).node_name == "n0"
        for name in ("a", "b"):
            framework.cluster.add_pod(make_pod(name), "n1")
        for _ in range(2):
            with pytest.raises(AttemptError, match=r'plugin "Wild" returns an invalid score 101, it should'):
                framework.find(next(next_pod))
        framework.cluster.remove_pod(make_pod("a").uid)
        assert found(framework, next(next_pod)).node_name == "n1"

    def test_an_error_on_one_node_fails_the_attempt_though_others_fit(self) -> None:
        class Breaks(Plugin):
            depends_on = Dependencies.of()

            def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
                yield Reject(nodes.is_named("n1"), "broke", error=True)

        framework = make_framework(Breaks(), Indifferent(), nodes=4)
        for pod in (make_pod("a"), make_pod("b")):
            with pytest.raises(AttemptError, match=r'^running "Breaks" filter plugin: broke$'):
                framework.find(pod)
        framework.cluster.remove_node("n1")
        assert found(framework, make_pod("c")).feasible == 3


class Shortcut(Plugin):
    """Rejects nodes with pods, and prefers those of a low number; single rows by its shortcuts."""

    depends_on = Dependencies.of(usage=True)
    elementwise = True

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int]] = []
        self.problem: dict[str, Exception] = {}

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(nodes.pod_count > 0, "taken")

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        return nodes.maximum(100 - nodes.pod_count, 0)

    def row_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], bool]:
        return lambda row: bool(self._number("filter", row, nodes) > 0)

    def row_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int]:
        return lambda row: max(100 - self._number("score", row, nodes), 0)

    def _number(self, point: str, row: int, nodes: NodeColumns) -> int:
        self.rows.append((point, row))
        if point in self.problem:
            raise self.problem[point]
        return int(nodes.cluster.nodes.pod_count.cell[row])


class HalfSeconds:
    """A timer whose clock advances by half a second whenever it is read."""

    def __init__(self) -> None:
        self.observed: list[tuple[str, float]] = []
        self._now = 0.0

    def clock(self) -> float:
        self._now += 0.5
        return self._now

    def start(self) -> None:
        pass

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        pass

    def took(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        self.observed.append((point, seconds))


class TestShortcuts:
    def test_a_row_that_changed_is_computed_by_them(self) -> None:
        plugin = Shortcut()
        framework = make_framework(plugin, nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        assert found(framework, next(next_pod)).feasible == 4
        assert plugin.rows == [("filter", 2), ("score", 2)]

    def test_the_reasons_are_those_of_filter(self) -> None:
        framework = make_framework(Shortcut(), nodes=2)
        next_pod = pods()
        found(framework, next(next_pod))
        for name in ("n0", "n1"):
            framework.cluster.add_pod(make_pod(f"other-{name}"), name)
        statuses = not_found(framework, next(next_pod)).diagnosis.statuses()
        assert [(status.reasons, len(rows)) for status, rows in statuses] == [(("taken",), 2)]

    @pytest.mark.parametrize(
        ("taken", "observed"),
        [
            pytest.param("", [("Filter", 0.5), ("Score", 0.5)], id="by the shortcut"),
            pytest.param("n2", [("Filter", 0.5), ("Score", 0.5)], id="by Filter, which has the reason"),
        ],
    )
    def test_a_sampled_attempt_observes_each_plugin_once(
        self, taken: str, observed: list[tuple[str, float]]
    ) -> None:
        framework = make_framework(Shortcut(), nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        if not taken:
            found(framework, next(next_pod))
            framework.cluster.remove_pod(make_pod("other").uid)
        timer = HalfSeconds()
        framework.caller.use(timer)
        found(framework, next(next_pod))
        assert timer.observed == observed

    @pytest.mark.parametrize(
        ("point", "text"),
        [
            ("filter", 'running "Shortcut" filter plugin: RuntimeError: no luck'),
            ("score", 'running Score plugins: plugin "Shortcut" failed with: RuntimeError: no luck'),
        ],
    )
    def test_an_exception_fails_the_attempt_and_names_the_plugin(self, point: str, text: str) -> None:
        plugin = Shortcut()
        framework = make_framework(plugin, nodes=5)
        next_pod = pods()
        found(framework, next(next_pod))
        framework.cluster.add_pod(make_pod("other"), "n2")
        plugin.problem[point] = RuntimeError("no luck")
        with pytest.raises(AttemptError, match=re.escape(text)):
            framework.find(next(next_pod))
        plugin.problem.clear()
        assert found(framework, next(next_pod)).feasible == 4


class TestOneNodeAtATime:
    """Results of a plugin that evaluates single nodes are cached, too."""

    class Cached(NodePlugin):
        depends_on = Dependencies.of("labels")

        def filter_node(self, pod: Pod, node: NodeInfo) -> Any:
            return reject(f"not {node.name}") if node.name == "n0" else None

        def score_node(self, pod: Pod, node: NodeInfo) -> int:
            return 100 if node.name == "n2" else 0

    def test_it_never_meets_a_row_without_a_node(self) -> None:
        framework = make_framework(self.Cached(), nodes=3)
        framework.cluster.add_pod(make_pod("early"), "unseen")
        result = found(framework, make_pod())
        assert (result.node_name, result.feasible) == ("n2", 2)

    def test_it_follows_nodes_that_come_and_go(self) -> None:
        framework = make_framework(self.Cached(), nodes=4)
        assert found(framework, make_pod("a")).node_name == "n2"
        framework.cluster.add_pod(make_pod("stays"), "n2")
        framework.cluster.remove_node("n2")
        result = found(framework, make_pod("b"))
        assert (result.node_name, result.feasible) == ("n1", 2)


def test_the_heaviest_weights_do_not_confuse_the_choice() -> None:
    """Σ weight·100 may be as large as an int64; total and tie-break no longer fit into one then."""
    framework = make_framework(Scripted(best="n2"), FITS(), nodes=4, weights={"Scripted": 2**56})
    next_pod = pods()
    for _ in range(3):
        pod = next(next_pod)
        assert found(framework, pod).node_name == "n2"
        framework.cluster.add_pod(pod, "n2")


@pytest.mark.parametrize("plugins", [(FITS,), (FITS, NodePorts), (TaintToleration, FITS)])
def test_the_best_node_is_the_best_after_every_placement(plugins: Iterable[type[Plugin]]) -> None:
    """The cached ranking picks the same node as scoring everything again, over a long run of equal pods."""
    cached, uncached = (
        make_framework(*(plugin() for plugin in plugins), nodes=9, cache=cache) for cache in (True, False)
    )
    for number in range(60):
        pod = make_pod(f"p{number}", cpu="130m", memory="1Gi")
        one, other = found(cached, pod), found(uncached, pod)
        assert (one.node_name, one.feasible) == (other.node_name, other.feasible)
        for framework in (cached, uncached):
            framework.cluster.add_pod(pod, one.node_name)
