"""Filter of PodTopologySpread: which nodes would exceed the skew."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bayplan.api.meta import LabelSelector
from bayplan.plugin import SKIP, SKIP_FOR_SIGNATURE, Cluster, Pod
from bayplan.plugins.pod_topology_spread import PodTopologySpread
from bayplan.testing.builders import (
    make_expression,
    make_node,
    make_pod,
    make_selector,
    make_spread,
)

from ..evaluating import make_cluster, points
from .clusters import HOST, NO_LABEL, TOO_MANY, WEB, ZONE, evaluate, hosts, web, webs, zoned


def test_extension_points() -> None:
    assert points(PodTopologySpread) == {"PreFilter", "Filter", "PreScore", "Score", "NormalizeScore"}


@pytest.mark.parametrize(
    ("counts", "constraint", "labels", "rejected"),
    [
        pytest.param(
            (2, 1, 0, 3), {}, WEB, {"n0", "n1", "n3"}, id="one more than the emptiest, itself counted"
        ),
        pytest.param((2, 1, 0, 3), {}, {"app": "db"}, {"n0", "n3"}, id="a pod that does not match itself"),
        pytest.param(
            (2, 2, 1),
            {"max_skew": 2, "min_domains": 4},
            WEB,
            {"n0", "n1"},
            id="too few domains: as if one were empty",
        ),
        pytest.param((2, 2, 1), {"max_skew": 2, "min_domains": 3}, WEB, set(), id="enough domains"),
        pytest.param((2, 2, 2), {}, WEB, set(), id="all equal"),
        pytest.param((5,), {}, WEB, set(), id="one domain is never skewed"),
    ],
)
def test_how_much_fuller_a_host_may_be(
    counts: tuple[int, ...], constraint: Mapping[str, int], labels: Mapping[str, str], rejected: set[str]
) -> None:
    found = evaluate(web(make_spread(HOST, WEB, **constraint), labels=labels), hosts(*counts)).rejected()  # type: ignore[arg-type]  # only numbers
    assert found == dict.fromkeys(rejected, TOO_MANY)


def zones_of(**pods: list[Pod]) -> Cluster:
    """Three zones of two nodes, a1 to c2, with these pods on them."""
    nodes = [zoned(f"{zone}{number}", zone) for zone in "abc" for number in (1, 2)]
    return make_cluster(nodes, pods)


@pytest.mark.parametrize(
    ("pods", "rejected"),
    [
        pytest.param(
            {"a1": webs(1, "x"), "b2": webs(1, "y")}, "ab", id="both nodes of a zone share its count"
        ),
        pytest.param({"a1": webs(1, "x", namespace="other")}, "", id="pods of other namespaces do not count"),
        pytest.param({"a1": webs(1, "x", terminating=True)}, "", id="pods being deleted do not count"),
        pytest.param(
            {"a1": [make_pod("db", labels={"app": "db"})]}, "", id="pods with other labels do not count"
        ),
    ],
)
def test_what_counts(pods: dict[str, list[Pod]], rejected: str) -> None:
    found = evaluate(web(make_spread(ZONE, WEB)), zones_of(**pods)).rejected()
    assert found == {f"{zone}{number}": TOO_MANY for zone in rejected for number in (1, 2)}


@pytest.mark.parametrize(
    ("selector", "rejected"),
    [
        pytest.param(make_selector({}, make_expression("app", "Exists")), {"n0"}, id="by expression"),
        pytest.param(
            make_selector(), set(), id="the empty selector counts no pod, though it matches the pod"
        ),
        pytest.param(None, set(), id="no selector counts no pod and matches nothing"),
    ],
)
def test_selectors(selector: LabelSelector | None, rejected: set[str]) -> None:
    assert set(evaluate(web(make_spread(HOST, selector)), hosts(1, 0)).rejected()) == rejected


def test_match_label_keys_narrow_the_selector_to_the_pods_own_values() -> None:
    """A new revision of a Deployment is spread on its own."""
    cluster = make_cluster(
        [zoned("a"), zoned("b")],
        {
            "a": [make_pod("old", labels={**WEB, "revision": "1"})],
            "b": [make_pod("new", labels={**WEB, "revision": "2"})],
        },
    )
    pod = web(
        make_spread(HOST, WEB, match_label_keys=["revision", "absent"]), labels={**WEB, "revision": "2"}
    )
    assert set(evaluate(pod, cluster).rejected()) == {"b"}


def test_a_node_without_the_label_cannot_be_helped() -> None:
    cluster = make_cluster([zoned("a", "z"), zoned("b")])
    assert evaluate(web(make_spread(ZONE, WEB)), cluster).rejected() == {"b": NO_LABEL}


def test_a_node_without_some_label_counts_for_no_constraint() -> None:
    """Its pods do not count, for all constraints of the pod."""
    cluster = make_cluster(
        [zoned("a", "z"), zoned("b", "z"), zoned("c")], {"c": webs(3, "c"), "a": webs(1, "a")}
    )
    pod = web(make_spread(HOST, WEB), make_spread(ZONE, WEB))
    assert evaluate(pod, cluster).rejected() == {"a": TOO_MANY, "c": NO_LABEL}


def test_a_node_has_the_first_constraint_that_it_breaks() -> None:
    cluster = make_cluster([zoned("a"), zoned("b", "z"), zoned("c", "z")], {"b": webs(1, "b")})
    pod = web(make_spread(HOST, WEB), make_spread(ZONE, WEB))
    assert evaluate(pod, cluster).rejected() == {"a": NO_LABEL, "b": TOO_MANY}


def test_soft_constraints_filter_nothing() -> None:
    assert evaluate(web(make_spread(HOST, WEB, hard=False)), hosts(9, 0)).pre_filter in (
        SKIP,
        SKIP_FOR_SIGNATURE,
    )


@pytest.mark.parametrize(
    ("policy", "rejected"),
    [
        pytest.param(None, {"old"}, id="by default only nodes that the pod requires count"),
        pytest.param("Honor", {"old"}, id="explicitly"),
        pytest.param("Ignore", {"new", "old"}, id="unless all are to count"),
    ],
)
def test_node_affinity_policy(policy: str | None, rejected: set[str]) -> None:
    """An empty node that the pod cannot use counts only where affinity is to be ignored."""
    nodes = [
        make_node("old", labels={HOST: "old", "disk": "ssd"}),
        make_node("new", labels={HOST: "new", "disk": "ssd"}),
        make_node("other", labels={HOST: "other"}),
    ]
    cluster = make_cluster(nodes, {"old": webs(2, "old"), "new": webs(1, "new")})
    constraint = make_spread(HOST, WEB, node_affinity_policy=policy)
    pod = make_pod("web", labels=WEB, spread=[constraint], node_selector={"disk": "ssd"})
    assert set(evaluate(pod, cluster).rejected()) == rejected


@pytest.mark.parametrize(
    ("policy", "rejected"),
    [
        pytest.param(None, {"a"}, id="by default tainted nodes count"),
        pytest.param("Ignore", {"a"}, id="explicitly"),
        pytest.param("Honor", set(), id="unless taints are to be honored"),
    ],
)
def test_node_taints_policy(policy: str | None, rejected: set[str]) -> None:
    nodes = [make_node("a", labels={HOST: "a"}), make_node("b", labels={HOST: "b"}, taints=["no:NoSchedule"])]
    cluster = make_cluster(nodes, {"a": webs(1, "a")})
    pod = web(make_spread(HOST, WEB, node_taints_policy=policy))
    assert set(evaluate(pod, cluster).rejected()) == rejected
