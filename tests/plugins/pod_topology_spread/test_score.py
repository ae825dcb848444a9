"""Score of PodTopologySpread, and its default constraints."""

from __future__ import annotations

import pytest

from bayplan.plugin import SKIP, SKIP_FOR_SIGNATURE, Object
from bayplan.plugin.args import PodTopologySpreadArgs
from bayplan.plugins.pod_topology_spread import PodTopologySpread
from bayplan.testing.builders import (
    make_node,
    make_owner,
    make_pod,
    make_replica_set,
    make_service,
    make_spread,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import make_cluster
from .clusters import HOST, TOO_MANY, WEB, ZONE, evaluate, evaluate_feasible, hosts, web, webs, zoned


@pytest.mark.parametrize(
    ("counts", "max_skew", "expected"),
    [
        ((2, 1, 0, 3), 1, [20, 60, 100, 0]),
        ((2, 1, 0, 3), 2, [33, 66, 100, 16]),
        ((4, 3, 2, 1), 3, [44, 66, 77, 100]),
        ((0, 0, 0), 1, [100, 100, 100]),
        ((1, 1), 1, [100, 100]),
    ],
)
def test_fuller_hosts_score_less(counts: tuple[int, ...], max_skew: int, expected: list[int]) -> None:
    pod = web(make_spread(HOST, WEB, max_skew=max_skew, hard=False))
    assert evaluate(pod, hosts(*counts)).normalized() == expected


def test_zones_are_scored_by_their_sum() -> None:
    """Six pods in one zone, on two nodes, and four in another."""
    nodes = [zoned("a", "y"), zoned("b", "y"), zoned("c", "z")]
    cluster = make_cluster(nodes, {"a": webs(4, "a"), "b": webs(2, "b"), "c": webs(4, "c")})
    pod = web(make_spread(ZONE, WEB, hard=False))
    assert evaluate(pod, cluster).normalized() == [75, 75, 100]


def test_a_node_without_the_label_scores_nothing() -> None:
    cluster = make_cluster([zoned("a", "z"), zoned("b")], {"a": webs(1, "a")})
    pod = web(make_spread(ZONE, WEB, hard=False))
    assert evaluate(pod, cluster).normalized() == [100, 0]


def test_hard_constraints_score_nothing() -> None:
    assert evaluate(web(make_spread(HOST, WEB)), hosts(9, 0)).pre_score in (SKIP, SKIP_FOR_SIGNATURE)


class TestDefaults:
    """Pods without constraints of their own are spread by the selectors of their owners."""

    def test_by_service_with_the_system_defaults(self) -> None:
        cluster = hosts(4, 3, 2, 1)
        cluster.objects.put(make_service("web", WEB))
        evaluation = evaluate(web(), cluster)
        assert evaluation.pre_filter in (SKIP, SKIP_FOR_SIGNATURE)
        assert evaluation.normalized() == [44, 66, 77, 100]

    @pytest.mark.parametrize(
        "objects",
        [
            pytest.param([], id="none"),
            pytest.param([make_service("web")], id="a service without selector"),
            pytest.param([make_service("db", {"app": "db"})], id="a service of other pods"),
            pytest.param([make_service("web", WEB, namespace="other")], id="a service elsewhere"),
            pytest.param([make_replica_set("rs", WEB)], id="a ReplicaSet that does not own the pod"),
        ],
    )
    def test_a_pod_without_owners_is_not_spread(self, objects: list[Object]) -> None:
        cluster = hosts(4, 3)
        for item in objects:
            cluster.objects.put(item)
        assert evaluate(web(), cluster).pre_score in (SKIP, SKIP_FOR_SIGNATURE)

    def test_service_and_controller_are_taken_together(self) -> None:
        cluster = hosts(2, 1)
        cluster.objects.put(make_service("web", WEB))
        cluster.objects.put(make_replica_set("rs", {"tier": "front"}))
        pod = make_pod("web", labels={**WEB, "tier": "front"}, owner=make_owner("ReplicaSet", "rs"))
        assert evaluate(pod, cluster).normalized() == [100, 100]
        cluster.add_pod(make_pod("front", labels={**WEB, "tier": "front"}), "n1")
        assert evaluate(pod, cluster).normalized() == [100, 66]

    def test_nodes_without_a_zone_are_scored_all_the_same(self) -> None:
        """The system defaults do not require every label, unlike a pod's own constraints."""
        cluster = make_cluster([zoned("a", "z"), zoned("b")], {"a": webs(1, "a")})
        cluster.objects.put(make_service("web", WEB))
        assert evaluate(web(), cluster).normalized()[1] == 100

    def test_pods_on_a_node_without_a_zone_count_for_the_zone_with_the_empty_name(self) -> None:
        """Even where that node does not fit."""
        nodes = [make_node("a", labels={ZONE: "y"}), make_node("b", labels={ZONE: ""}), make_node("c")]
        cluster = make_cluster(nodes, {"c": webs(1, "c")})
        cluster.objects.put(make_service("web", WEB))
        assert evaluate_feasible(web(), cluster, nodes[:2]).normalized() == [100, 80]

    def test_a_list_of_ones_own(self) -> None:
        args = PodTopologySpreadArgs(
            defaulting_type="List", default_constraints=(make_spread(HOST, None, max_skew=1),)
        )
        cluster = hosts(1, 0)
        plugin = make_plugin(PodTopologySpread, args)
        assert evaluate(web(), cluster, plugin).pre_filter in (SKIP, SKIP_FOR_SIGNATURE)
        cluster.objects.put(make_service("web", WEB))
        assert evaluate(web(), cluster, plugin).rejected() == {"n0": TOO_MANY}

    def test_one_constraint_of_the_pod_replaces_the_defaults(self) -> None:
        cluster = hosts(9, 0)
        cluster.objects.put(make_service("web", WEB))
        assert evaluate(web(make_spread(HOST, WEB)), cluster).pre_score in (SKIP, SKIP_FOR_SIGNATURE)
