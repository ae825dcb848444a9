"""What makes cached results stale: objects, images, nodes, and failures of plugins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bayplan.api.devices import ResourceClaim
from bayplan.plugin import (
    SKIP,
    CycleState,
    Dependencies,
    IntColumn,
    NodeColumns,
    Plugin,
    Pod,
    Reject,
    Status,
    failure,
    normalize_default,
    unschedulable,
)
from bayplan.plugin.objects import Service
from bayplan.plugins.image_locality import ImageLocality
from bayplan.plugins.taint_toleration import TaintToleration
from bayplan.runtime.calls import AttemptError
from bayplan.testing.builders import make_node, make_pod, make_resource_claim, make_service
from bayplan.testing.calling import make_plugin

from .profiles import found, make_framework, not_found
from .scripted import FITS, FollowsUsage, Indifferent, Scripted, pods


class ReadsServices(Scripted):
    """Rejects or prefers nodes that a Service is named after."""

    depends_on = Dependencies.of("labels", kinds=(Service,))

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        for service in nodes.cluster.objects.of(Service):
            yield Reject(nodes.is_named(service.name), unschedulable(f"not {service.name}"))


class ReadsServicesWithPreFilter(ReadsServices):
    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return None


class ReadsClaims(Scripted):
    """Rejects nodes that a ResourceClaim is named after."""

    depends_on = Dependencies.of("labels", kinds=(ResourceClaim,))

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        for claim in nodes.cluster.objects.of(ResourceClaim):
            yield Reject(nodes.is_named(claim.name), unschedulable(f"not {claim.name}"))


class ScoresByServices(Plugin):
    """Has nothing to filter, ever, but prefers nodes that a Service is named after."""

    depends_on = Dependencies.of("labels", kinds=(Service,))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return SKIP

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(True, unschedulable("never run"))

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        total = np.zeros(len(nodes), dtype=np.int64)
        for service in nodes.cluster.objects.of(Service):
            total[nodes.is_named(service.name)] = 100
        return total


class ScoresByServicesOnceThereAreAny(ScoresByServices):
    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return None if len(nodes.cluster.objects.of(Service)) else SKIP


class TestWhatMakesResultsNew:
    @pytest.mark.parametrize("plugin", [ReadsServices, ReadsServicesWithPreFilter])
    def test_an_object_of_a_kind_that_a_filter_reads(self, plugin: type[Scripted]) -> None:
        framework = make_framework(plugin(), make_plugin(Indifferent), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 3
        framework.cluster.objects.put(make_service("n0"))
        assert found(framework, next(next_pod)).feasible == 2
        framework.cluster.objects.remove(make_service("n0"))
        assert found(framework, next(next_pod)).feasible == 3

    def test_an_object_that_belongs_to_a_pod(self) -> None:
        """It is no change of `objects`, but plugins may depend on its kind."""
        framework = make_framework(ReadsClaims(), make_plugin(Indifferent), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 3
        framework.cluster.objects.put(make_resource_claim("n0"))
        assert found(framework, next(next_pod)).feasible == 2

    @pytest.mark.parametrize("plugin", [ScoresByServices, ScoresByServicesOnceThereAreAny])
    def test_an_object_of_a_kind_that_a_score_reads(self, plugin: type[Plugin]) -> None:
        """Even where the plugin has nothing to filter, before and after."""
        framework = make_framework(make_plugin(plugin), nodes=3)
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
                yield Reject(bool(nodes.cluster.nodes.images), unschedulable("there are images"))

        framework = make_framework(make_plugin(OnlyWithoutImages), make_plugin(Indifferent), nodes=3)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 3
        framework.cluster.set_node(make_node("n2", images={"some": 1}))
        assert not_found(framework, next(next_pod)).diagnosis.rejecting_plugins == {"OnlyWithoutImages"}

    def test_an_image_that_other_nodes_get(self) -> None:
        """How much an image on one node is worth follows from how many nodes have it."""
        mebi = 2**20
        framework = make_framework(
            make_plugin(ImageLocality),
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
        framework = make_framework(make_plugin(TaintToleration), make_plugin(FITS), nodes=2)
        next_pod = pods()
        assert found(framework, next(next_pod)).feasible == 2
        framework.cluster.remove_node("n1")
        framework.cluster.set_node(make_node("other", taints=["no:NoSchedule"]))
        result = found(framework, next(next_pod))
        assert (result.node_name, result.feasible) == ("n0", 1)

    def test_a_pod_on_an_unknown_node(self) -> None:
        """It makes the table grow by a row that belongs to no node."""
        framework = make_framework(
            make_plugin(TaintToleration), make_plugin(ImageLocality), make_plugin(FITS), nodes=2
        )
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
                yield Reject(nodes.pod_count > 0, unschedulable("taken"))

        framework = make_framework(make_plugin(Raw), Gate(), nodes=4)
        next_pod = pods()
        assert found(framework, next(next_pod)).node_name == "n0"
        framework.cluster.add_pod(make_pod("other"), "n0")
        assert found(framework, next(next_pod)).node_name == "n1"


class TestAfterAnError:
    def test_the_next_attempt_evaluates_again(self) -> None:
        plugin = Scripted(rejected={"n0"})
        framework = make_framework(plugin, make_plugin(Indifferent), nodes=3)
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
                yield Reject(nodes.pod_count > 0, unschedulable("taken"))

        plugin = Fussy()
        framework = make_framework(plugin, make_plugin(Indifferent), nodes=40)
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

        framework = make_framework(make_plugin(Wild), nodes=3)
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
                yield Reject(nodes.is_named("n1"), failure("failed"))

        framework = make_framework(make_plugin(Breaks), make_plugin(Indifferent), nodes=4)
        for pod in (make_pod("a"), make_pod("b")):
            with pytest.raises(AttemptError, match=r'^running "Breaks" filter plugin: failed$'):
                framework.find(pod)
        framework.cluster.remove_node("n1")
        assert found(framework, make_pod("c")).feasible == 3
