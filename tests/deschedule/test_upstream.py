"""Evictions of `decision: upstream` that the recordings do not have; each is as descheduler v0.36 does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bayplan.api.meta import Object
from bayplan.api.pod import ResourceRequirements
from bayplan.deschedule.planner import evict_by_rules, make_table
from bayplan.deschedule.table import PodColumns
from bayplan.testing.builders import (
    make_expression,
    make_node,
    make_pod_affinity,
    make_pod_term,
    make_selector,
    make_spread,
)
from tests.deschedule.situations import NOW, descheduler, replica

HOSTNAME = "kubernetes.io/hostname"


def evicted(objects: Sequence[Object], plugins: Mapping[str, Any], **settings: Any) -> list[str]:
    """The names of the evicted pods, in order."""
    table = make_table(PodColumns(), objects)
    requests, _ = evict_by_rules(table, descheduler(plugins, **settings), NOW)
    return [one.pod.name for one in requests]


def test_pods_of_the_same_age_are_evicted_node_by_node() -> None:
    """Upstream lists the pods of one node after the other, so a limit is used up by the first nodes."""
    created = datetime.fromtimestamp(NOW - 3600, UTC)
    pods = [replica(name, node, created=created) for name, node in (("p", "b"), ("q", "a"), ("r", "a"))]
    policy = {"PodLifeTime": {"maxPodLifeTimeSeconds": 60}}
    nodes = [make_node("a"), make_node("b")]
    assert evicted([*nodes, *pods], policy, maxNoOfPodsToEvictTotal=2) == ["q", "r"]


def test_pods_of_one_domain_are_in_the_order_of_their_nodes() -> None:
    """Of equal pods the last leaves the domain: the last one of its last node."""
    spread = [make_spread("zone", {"app": "web"})]
    nodes = [make_node(name, labels={"zone": zone}) for name, zone in (("a", "1"), ("b", "1"), ("c", "2"))]
    pods = [replica(name, node, spread=spread) for name, node in (("p", "b"), ("q", "a"), ("r", "a"))]
    policy: dict[str, Any] = {"RemovePodsViolatingTopologySpreadConstraint": {}}
    assert evicted([*nodes, *pods], policy) == ["p"]


def test_a_pod_whose_anti_affinity_does_not_parse_fits_no_node() -> None:
    """An API server does not accept such a selector, but nodeFit sees it as an error on each node."""
    broken = make_pod_term(HOSTNAME, make_selector(None, make_expression("app", "Bogus")))
    objects = [
        make_node("a", taints=["maintenance=true:NoSchedule"]),
        make_node("b"),
        replica("p", "a", affinity=make_pod_affinity(anti_required=[broken])),
        replica("q", "a"),
    ]
    policy = {"RemovePodsViolatingNodeTaints": {}, "DefaultEvictor": {"nodeFit": True}}
    assert evicted(objects, policy) == ["q"]


def test_requests_of_the_pod_do_not_count_for_its_quality_of_service() -> None:
    """Without status.qosClass upstream computes the class from the containers only."""
    excludes = make_pod_affinity(anti_required=[make_pod_term(HOSTNAME, {"app": "web"})])
    of_pod = ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"})
    objects = [
        make_node("a", labels={HOSTNAME: "a"}),
        make_node("b", labels={HOSTNAME: "b"}),
        replica("p", "a", affinity=excludes, cpu="1"),
        replica("q", "a", affinity=excludes, resources=of_pod),
    ]
    assert evicted(objects, {"RemovePodsViolatingInterPodAntiAffinity": {}}) == ["q"]


def test_a_request_of_nothing_fits_where_a_resource_is_overused_that_the_node_does_not_state() -> None:
    """Of a resource that a node does not state, 0 is left, whatever its pods request."""
    objects = [
        make_node("a", taints=["maintenance=true:NoSchedule"]),
        make_node("b"),
        replica("p", "a", requests={"example.com/gpu": "0"}),
        replica("q", "a", requests={"example.com/gpu": "1"}),
        replica("r", "b", requests={"example.com/gpu": "1"}),
    ]
    policy = {"RemovePodsViolatingNodeTaints": {}, "DefaultEvictor": {"nodeFit": True}}
    assert evicted(objects, policy) == ["p"]
