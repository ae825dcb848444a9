"""Pods of a kind are kept apart: tables of the rule, and a plain version that loops over nodes and pods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.api.meta import LabelSelector
from bayplan.api.pod import TopologySpreadConstraint
from bayplan.plugin import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    Cluster,
    Code,
    Node,
    NodeColumns,
    Object,
    Plugin,
    Pod,
    Resource,
)
from bayplan.plugin.args import PodTopologySpreadArgs
from bayplan.plugin.node_affinity import required_node_affinity
from bayplan.plugin.taints import untolerated_taint
from bayplan.plugins.pod_topology_spread import MISSING_LABEL, SKEWED, PodTopologySpread
from bayplan.testing.builders import (
    make_expression,
    make_node,
    make_node_affinity,
    make_node_term,
    make_owner,
    make_pod,
    make_replica_set,
    make_selector,
    make_service,
    make_spread,
    make_toleration,
)

from .judging import Asked, make_cluster, points, registrations, suppose, wakes

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB = {"app": "web"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)

TOO_MANY = (Code.UNSCHEDULABLE, (SKEWED,))
NO_LABEL = (Code.UNRESOLVABLE, (MISSING_LABEL,))


def zoned(name: str, zone: str | None = None, **labels: str) -> Node:
    """A node that knows its host name, and perhaps its zone."""
    own = {HOST: name, **labels}
    return make_node(name, labels=own if zone is None else {**own, ZONE: zone})


def webs(count: int, prefix: str, *, namespace: str = "default", terminating: bool = False) -> list[Pod]:
    deleted = NOW if terminating else None
    return [
        make_pod(f"{prefix}-{number}", labels=WEB, namespace=namespace, deleted=deleted)
        for number in range(count)
    ]


def hosts(*counts: int) -> Cluster:
    """A node for each count, with this many pods."""
    nodes = [zoned(f"n{number}") for number in range(len(counts))]
    return make_cluster(
        nodes, {f"n{number}": webs(count, f"n{number}") for number, count in enumerate(counts)}
    )


def web(*spread: TopologySpreadConstraint, labels: Mapping[str, str] = WEB) -> Pod:
    return make_pod("web", labels=labels, spread=spread)


def ask(pod: Pod, cluster: Cluster, plugin: Plugin | None = None) -> Asked:
    return Asked(PodTopologySpread() if plugin is None else plugin, pod, cluster)


def test_extension_points() -> None:
    assert points(PodTopologySpread) == {"PreFilter", "Filter", "PreScore", "Score", "NormalizeScore"}


# Filtering


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
        pytest.param((2, 2, 2), {}, WEB, set(), id="all alike"),
        pytest.param((5,), {}, WEB, set(), id="one domain is never skewed"),
    ],
)
def test_how_much_fuller_a_host_may_be(
    counts: tuple[int, ...], constraint: Mapping[str, int], labels: Mapping[str, str], rejected: set[str]
) -> None:
    found = ask(web(make_spread(HOST, WEB, **constraint), labels=labels), hosts(*counts)).rejected()  # type: ignore[arg-type]  # only numbers
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
    found = ask(web(make_spread(ZONE, WEB)), zones_of(**pods)).rejected()
    assert found == {f"{zone}{number}": TOO_MANY for zone in rejected for number in (1, 2)}


@pytest.mark.parametrize(
    ("selector", "rejected"),
    [
        pytest.param(make_selector({}, make_expression("app", "Exists")), {"n0"}, id="by expression"),
        pytest.param(
            make_selector(), set(), id="the empty selector counts nobody, though it matches the pod"
        ),
        pytest.param(None, set(), id="no selector counts nobody and matches nothing"),
    ],
)
def test_selectors(selector: LabelSelector | None, rejected: set[str]) -> None:
    assert set(ask(web(make_spread(HOST, selector)), hosts(1, 0)).rejected()) == rejected


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
    assert set(ask(pod, cluster).rejected()) == {"b"}


def test_a_node_without_the_label_cannot_be_helped() -> None:
    cluster = make_cluster([zoned("a", "z"), zoned("b")])
    assert ask(web(make_spread(ZONE, WEB)), cluster).rejected() == {"b": NO_LABEL}


def test_a_node_without_some_label_counts_for_no_constraint() -> None:
    """Its pods are as good as not there, for all constraints of the pod."""
    cluster = make_cluster(
        [zoned("a", "z"), zoned("b", "z"), zoned("c")], {"c": webs(3, "c"), "a": webs(1, "a")}
    )
    pod = web(make_spread(HOST, WEB), make_spread(ZONE, WEB))
    assert ask(pod, cluster).rejected() == {"a": TOO_MANY, "c": NO_LABEL}


def test_a_node_is_told_about_the_first_constraint_that_it_breaks() -> None:
    cluster = make_cluster([zoned("a"), zoned("b", "z"), zoned("c", "z")], {"b": webs(1, "b")})
    pod = web(make_spread(HOST, WEB), make_spread(ZONE, WEB))
    assert ask(pod, cluster).rejected() == {"a": NO_LABEL, "b": TOO_MANY}


def test_soft_constraints_filter_nothing() -> None:
    assert ask(web(make_spread(HOST, WEB, hard=False)), hosts(9, 0)).pre_filter in (SKIP, SKIP_FOR_SIGNATURE)


@pytest.mark.parametrize(
    ("policy", "rejected"),
    [
        pytest.param(None, {"old"}, id="by default only nodes that the pod asks for count"),
        pytest.param("Honor", {"old"}, id="as said"),
        pytest.param("Ignore", {"new", "old"}, id="unless all are to count"),
    ],
)
def test_node_affinity_policy(policy: str | None, rejected: set[str]) -> None:
    """An empty node that the pod cannot use holds it back only where affinity is to be ignored."""
    nodes = [
        make_node("old", labels={HOST: "old", "disk": "ssd"}),
        make_node("new", labels={HOST: "new", "disk": "ssd"}),
        make_node("other", labels={HOST: "other"}),
    ]
    cluster = make_cluster(nodes, {"old": webs(2, "old"), "new": webs(1, "new")})
    constraint = make_spread(HOST, WEB, node_affinity_policy=policy)
    pod = make_pod("web", labels=WEB, spread=[constraint], node_selector={"disk": "ssd"})
    assert set(ask(pod, cluster).rejected()) == rejected


@pytest.mark.parametrize(
    ("policy", "rejected"),
    [
        pytest.param(None, {"a"}, id="by default tainted nodes count"),
        pytest.param("Ignore", {"a"}, id="as said"),
        pytest.param("Honor", set(), id="unless taints are to be honored"),
    ],
)
def test_node_taints_policy(policy: str | None, rejected: set[str]) -> None:
    nodes = [make_node("a", labels={HOST: "a"}), make_node("b", labels={HOST: "b"}, taints=["no:NoSchedule"])]
    cluster = make_cluster(nodes, {"a": webs(1, "a")})
    pod = web(make_spread(HOST, WEB, node_taints_policy=policy))
    assert set(ask(pod, cluster).rejected()) == rejected


# Scoring


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
    assert ask(pod, hosts(*counts)).normalized() == expected


def test_zones_are_scored_by_their_sum() -> None:
    """Six pods in one zone, on two nodes, and four in another."""
    nodes = [zoned("a", "y"), zoned("b", "y"), zoned("c", "z")]
    cluster = make_cluster(nodes, {"a": webs(4, "a"), "b": webs(2, "b"), "c": webs(4, "c")})
    pod = web(make_spread(ZONE, WEB, hard=False))
    assert ask(pod, cluster).normalized() == [75, 75, 100]


def test_a_node_without_the_label_scores_nothing() -> None:
    cluster = make_cluster([zoned("a", "z"), zoned("b")], {"a": webs(1, "a")})
    pod = web(make_spread(ZONE, WEB, hard=False))
    assert ask(pod, cluster).normalized() == [100, 0]


def test_hard_constraints_score_nothing() -> None:
    assert ask(web(make_spread(HOST, WEB)), hosts(9, 0)).pre_score in (SKIP, SKIP_FOR_SIGNATURE)


# Defaults


class TestDefaults:
    """Pods without constraints of their own are spread by the selector that their owners know them by."""

    def test_by_service_as_the_system_defaults_say(self) -> None:
        cluster = hosts(4, 3, 2, 1)
        cluster.objects.put(make_service("web", WEB))
        asked = ask(web(), cluster)
        assert asked.pre_filter in (SKIP, SKIP_FOR_SIGNATURE)
        assert asked.normalized() == [44, 66, 77, 100]

    @pytest.mark.parametrize(
        "objects",
        [
            pytest.param([], id="nobody"),
            pytest.param([make_service("web")], id="a service without selector"),
            pytest.param([make_service("db", {"app": "db"})], id="a service of other pods"),
            pytest.param([make_service("web", WEB, namespace="other")], id="a service elsewhere"),
            pytest.param([make_replica_set("rs", WEB)], id="a ReplicaSet that does not own the pod"),
        ],
    )
    def test_a_pod_that_nobody_knows_is_not_spread(self, objects: list[Object]) -> None:
        cluster = hosts(4, 3)
        for item in objects:
            cluster.objects.put(item)
        assert ask(web(), cluster).pre_score in (SKIP, SKIP_FOR_SIGNATURE)

    def test_service_and_controller_are_taken_together(self) -> None:
        cluster = hosts(2, 1)
        cluster.objects.put(make_service("web", WEB))
        cluster.objects.put(make_replica_set("rs", {"tier": "front"}))
        pod = make_pod("web", labels={**WEB, "tier": "front"}, owner=make_owner("ReplicaSet", "rs"))
        assert ask(pod, cluster).normalized() == [100, 100]
        cluster.add_pod(make_pod("front", labels={**WEB, "tier": "front"}), "n1")
        assert ask(pod, cluster).normalized() == [100, 66]

    def test_nodes_without_a_zone_are_scored_all_the_same(self) -> None:
        """The system defaults do not ask for every label, unlike a pod's own constraints."""
        cluster = make_cluster([zoned("a", "z"), zoned("b")], {"a": webs(1, "a")})
        cluster.objects.put(make_service("web", WEB))
        assert ask(web(), cluster).normalized()[1] == 100

    def test_pods_on_a_node_without_a_zone_count_for_the_zone_with_the_empty_name(self) -> None:
        """Even where that node does not fit."""
        nodes = [make_node("a", labels={ZONE: "y"}), make_node("b", labels={ZONE: ""}), make_node("c")]
        cluster = make_cluster(nodes, {"c": webs(1, "c")})
        cluster.objects.put(make_service("web", WEB))
        assert asked_about(web(), cluster, nodes[:2]).normalized() == [100, 80]

    def test_a_list_of_ones_own(self) -> None:
        args = PodTopologySpreadArgs(
            defaulting_type="List", default_constraints=(make_spread(HOST, None, max_skew=1),)
        )
        cluster = hosts(1, 0)
        plugin = PodTopologySpread(args)
        assert ask(web(), cluster, plugin).pre_filter in (SKIP, SKIP_FOR_SIGNATURE)
        cluster.objects.put(make_service("web", WEB))
        assert ask(web(), cluster, plugin).rejected() == {"n0": TOO_MANY}

    def test_one_constraint_of_its_own_is_enough_to_do_without(self) -> None:
        cluster = hosts(9, 0)
        cluster.objects.put(make_service("web", WEB))
        assert ask(web(make_spread(HOST, WEB)), cluster).pre_score in (SKIP, SKIP_FOR_SIGNATURE)


# What may help


def test_registered_events() -> None:
    pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
    nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
    assert registrations(PodTopologySpread()) == [(Resource.POD, pods), (Resource.NODE, nodes)]


WAITING = make_pod("waiting", labels=WEB, spread=[make_spread(ZONE, WEB)])
HONORING = make_pod("waiting", labels=WEB, spread=[make_spread(ZONE, WEB, node_taints_policy="Honor")])
TOLERANT = make_pod(
    "waiting", labels=WEB, spread=HONORING.spec.topology_spread_constraints, tolerations=[make_toleration()]
)


@pytest.mark.parametrize(
    ("pod", "action", "old", "new", "helps"),
    [
        pytest.param(
            WAITING, Action.ADD, None, make_pod("x", labels=WEB, node="a"), True, id="a pod that counts came"
        ),
        pytest.param(WAITING, Action.ADD, None, make_pod("x", labels=WEB), False, id="one that has no node"),
        pytest.param(
            WAITING,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, nominated_node="a"),
            True,
            id="one that is promised a node",
        ),
        pytest.param(
            WAITING,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, node="a", namespace="other"),
            False,
            id="one of another namespace",
        ),
        pytest.param(WAITING, Action.ADD, None, make_pod("x", node="a"), False, id="one that does not count"),
        pytest.param(
            WAITING,
            Action.DELETE,
            make_pod("x", labels=WEB, node="a"),
            None,
            True,
            id="a pod that counted went",
        ),
        pytest.param(
            WAITING, Action.DELETE, make_pod("x", node="a"), None, False, id="one that did not count went"
        ),
        pytest.param(
            WAITING,
            Action.UPDATE_POD_LABEL,
            make_pod("x", node="a"),
            make_pod("x", labels=WEB, node="a"),
            True,
            id="a pod starts to count",
        ),
        pytest.param(
            WAITING,
            Action.UPDATE_POD_LABEL,
            make_pod("x", labels=WEB, node="a"),
            make_pod("x", labels={**WEB, "more": "x"}, node="a"),
            False,
            id="a pod counts as before",
        ),
        pytest.param(
            WAITING,
            Action.UPDATE_POD_LABEL,
            WAITING,
            make_pod("waiting"),
            True,
            id="the pod itself changes what it matches",
        ),
        pytest.param(
            HONORING,
            Action.UPDATE_POD_TOLERATION,
            HONORING,
            TOLERANT,
            True,
            id="its tolerations matter to a constraint",
        ),
        pytest.param(
            WAITING, Action.UPDATE_POD_TOLERATION, WAITING, TOLERANT, False, id="they matter to none"
        ),
    ],
)
def test_pods_that_help(pod: Pod, action: Action, old: Pod | None, new: Pod | None, helps: bool) -> None:
    assert wakes(PodTopologySpread(), (Resource.POD, action), pod, old, new) is helps


@pytest.mark.parametrize(
    ("action", "old", "new", "helps"),
    [
        pytest.param(Action.ADD, None, zoned("a", "z"), True, id="a node with the label came"),
        pytest.param(Action.ADD, None, zoned("a"), False, id="one without it"),
        pytest.param(Action.DELETE, zoned("a", "z"), None, True, id="a node with the label went"),
        pytest.param(Action.DELETE, zoned("a"), None, False, id="one without it went"),
        pytest.param(Action.UPDATE_NODE_LABEL, zoned("a"), zoned("a", "z"), True, id="a node got the label"),
        pytest.param(Action.UPDATE_NODE_LABEL, zoned("a", "z"), zoned("a"), True, id="a node lost the label"),
        pytest.param(Action.UPDATE_NODE_LABEL, zoned("a", "y"), zoned("a", "z"), True, id="a node moved"),
        pytest.param(
            Action.UPDATE_NODE_LABEL,
            zoned("a", "z"),
            zoned("a", "z", disk="ssd"),
            False,
            id="another label changed",
        ),
        pytest.param(
            Action.UPDATE_NODE_TAINT,
            zoned("a", "z"),
            make_node("a", labels={ZONE: "z"}, taints=["no:NoSchedule"]),
            True,
            id="its taints changed",
        ),
    ],
)
def test_nodes_that_help(action: Action, old: Node | None, new: Node | None, helps: bool) -> None:
    assert wakes(PodTopologySpread(), (Resource.NODE, action), WAITING, old, new) is helps


# A plain version of the rule


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for expression in selector.match_expressions:
        value = labels.get(expression.key)
        if {
            "In": value in expression.values,
            "NotIn": value not in expression.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[expression.operator] is False:
            return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items())


def narrowed(constraint: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    selector = constraint.label_selector
    if selector is None:
        return None
    more = {key: pod.labels[key] for key in constraint.match_label_keys if key in pod.labels}
    expressions = [make_expression(key, "In", value) for key, value in more.items()]
    return make_selector(selector.match_labels, *selector.match_expressions, *expressions)


def is_empty(selector: LabelSelector | None) -> bool:
    return selector is not None and not selector.match_labels and not selector.match_expressions


@dataclass
class World:
    """Nodes and who is on them, as plain objects."""

    nodes: list[Node]
    placed: dict[str, list[Pod]] = field(default_factory=dict)

    def cluster(self) -> Cluster:
        return make_cluster(self.nodes, self.placed)


class PlainSpread:
    """The rule as the specification has it, one node and one pod at a time."""

    def __init__(self, pod: Pod, world: World, action: str) -> None:
        self.pod = pod
        self.world = world
        self.constraints = [
            constraint
            for constraint in pod.spec.topology_spread_constraints
            if constraint.when_unsatisfiable == action
        ]
        self.counts: list[dict[str, int]] = [{} for _ in self.constraints]
        for node in world.nodes:
            if not self.has_all_keys(node):
                continue
            for place, constraint in enumerate(self.constraints):
                if self.accepts(constraint, node):
                    value = node.labels[constraint.topology_key]
                    self.counts[place].setdefault(value, 0)
                    self.counts[place][value] += self.matching(constraint, node)

    def has_all_keys(self, node: Node) -> bool:
        return all(constraint.topology_key in node.labels for constraint in self.constraints)

    def accepts(self, constraint: TopologySpreadConstraint, node: Node) -> bool:
        if (constraint.node_affinity_policy or "Honor") == "Honor" and not required_node_affinity(
            self.pod
        ).matches(node.labels, node.name):
            return False
        honors = constraint.node_taints_policy == "Honor"
        return not honors or untolerated_taint(node.spec.taints, self.pod.spec.tolerations) is None

    def matching(self, constraint: TopologySpreadConstraint, node: Node) -> int:
        selector = narrowed(constraint, self.pod)
        if is_empty(selector):
            return 0
        return sum(
            other.namespace == self.pod.namespace
            and not other.is_terminating
            and selects(selector, other.labels)
            for other in self.world.placed.get(node.name, ())
        )

    def change(self, other: Pod, node: Node, by: int) -> None:
        """AddPod and RemovePod: pods being deleted count here, and so does the empty selector."""
        if other.namespace != self.pod.namespace or not self.has_all_keys(node):
            return
        for place, constraint in enumerate(self.constraints):
            if self.accepts(constraint, node) and selects(narrowed(constraint, self.pod), other.labels):
                self.counts[place][node.labels[constraint.topology_key]] += by

    def verdict(self, node: Node) -> tuple[Code, tuple[str, ...]] | None:
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            value = node.labels.get(constraint.topology_key)
            if value is None:
                return NO_LABEL
            itself = selects(narrowed(constraint, self.pod), self.pod.labels)
            least = min(counts.values(), default=0)
            if len(counts) < (constraint.min_domains or 1):
                least = 0
            if counts.get(value, 0) + itself - least > constraint.max_skew:
                return TOO_MANY
        return None

    def scores(self, feasible: list[Node]) -> list[int]:
        """Normalised scores of the nodes that fit."""
        return normalized(feasible, [node for node in feasible if not self.has_all_keys(node)], self.raw)

    def raw(self, node: Node, considered: list[Node]) -> int:
        total = 0.0
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            if constraint.topology_key == HOST:
                size, count = len(considered), self.matching(constraint, node)
            else:
                size = len({other.labels[constraint.topology_key] for other in considered})
                count = counts.get(node.labels[constraint.topology_key], 0)
            total += count * math.log(size + 2) + (constraint.max_skew - 1)
        return math.floor(total + 0.5)


class PlainDefaults(PlainSpread):
    """The system defaults, for pods that a Service selects: a node need not have every label."""

    def __init__(self, pod: Pod, world: World) -> None:
        super().__init__(pod, world, "none of its own")
        self.constraints = [make_spread(HOST, WEB, max_skew=3), make_spread(ZONE, WEB, max_skew=5)]

    def scores(self, feasible: list[Node]) -> list[int]:
        return normalized(feasible, [], self.raw)

    def raw(self, node: Node, considered: list[Node]) -> int:
        hosts, zones = self.constraints
        total = 0.0
        if HOST in node.labels:
            total += self.matching(hosts, node) * math.log(len(considered) + 2) + 2
        if ZONE in node.labels:
            # A node without a zone counts as one in the zone with the empty name.
            size = len({other.labels.get(ZONE, "") for other in considered})
            count = sum(
                self.matching(zones, other)
                for other in self.world.nodes
                if self.accepts(zones, other) and other.labels.get(ZONE, "") == node.labels[ZONE]
            )
            total += count * math.log(size + 2) + 4
        return math.floor(total + 0.5)


def normalized(
    feasible: list[Node], ignored: list[Node], raw: Callable[[Node, list[Node]], int]
) -> list[int]:
    considered = [node for node in feasible if node not in ignored]
    scores = {node.name: raw(node, considered) for node in considered}
    least, most = min(scores.values(), default=0), max(scores.values(), default=0)
    return [
        0 if node in ignored else 100 if most == 0 else 100 * (most + least - scores[node.name]) // most
        for node in feasible
    ]


labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(("web", "db")), "rev": st.sampled_from("12")}
)
selectors = st.sampled_from(
    (
        make_selector(WEB),
        make_selector(WEB),
        make_selector({}, make_expression("app", "In", "web", "db")),
        make_selector({}, make_expression("rev", "NotIn", "1")),
        make_selector({}, make_expression("rev", "Exists")),
        make_selector(WEB, make_expression("rev", "DoesNotExist")),
        make_selector(),
        None,
    )
)
policies = st.sampled_from((None, "Honor", "Ignore"))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        own = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    ZONE: st.sampled_from(("y", "z", "")),
                    "rack": st.sampled_from(("", "r", "s")),
                    "disk": st.just("ssd"),
                },
            )
        )
        if draw(st.integers(0, 9)):
            own[HOST] = f"n{number}"
        taints = draw(st.sampled_from(((), (), ("no:NoSchedule",))))
        nodes.append(make_node(f"n{number}", labels=own, taints=taints))
    world = World(nodes)
    for number in range(draw(st.integers(0, 10))):
        world.placed.setdefault(f"n{draw(st.integers(0, len(nodes) - 1))}", []).append(
            draw(placed_pods(f"p{number}"))
        )
    return world


@st.composite
def placed_pods(draw: st.DrawFn, name: str) -> Pod:
    return make_pod(
        name,
        namespace=draw(st.sampled_from(("default", "default", "default", "other"))),
        labels=draw(labels),
        deleted=draw(st.sampled_from((None, None, None, NOW))),
    )


@st.composite
def spread_pods(draw: st.DrawFn, *, hard: bool) -> Pod:
    constraints = [
        make_spread(
            draw(st.sampled_from((HOST, ZONE, "rack"))),
            draw(selectors),
            max_skew=draw(st.integers(1, 3)),
            hard=hard,
            min_domains=draw(st.sampled_from((None, 2, 4))) if hard else None,
            node_affinity_policy=draw(policies),
            node_taints_policy=draw(policies),
            match_label_keys=draw(st.sampled_from(((), ("rev",)))),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    term = make_node_term(make_expression("disk", "Exists"))
    return make_pod(
        "incoming",
        labels=draw(labels),
        spread=constraints,
        affinity=draw(st.sampled_from((None, None, make_node_affinity(term)))),
        tolerations=draw(st.sampled_from(((), (make_toleration(),)))),
    )


def asked_about(pod: Pod, cluster: Cluster, feasible: list[Node]) -> Asked:
    """The plugin after PreScore saw these nodes."""
    asked = ask(pod, cluster)
    rows = np.array([cluster.nodes.row_of[node.name] for node in feasible], dtype=np.intp)
    asked.nodes = NodeColumns(cluster, rows)
    assert asked.plugin.pre_score(asked.state, pod, asked.nodes) is None
    return asked


plainly = settings(max_examples=80, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@plainly
@given(world=worlds(), pod=spread_pods(hard=True))
def test_filter_agrees_with_the_plain_rule(world: World, pod: Pod) -> None:
    plain = PlainSpread(pod, world, "DoNotSchedule")
    expected = {node.name: verdict for node in world.nodes if (verdict := plain.verdict(node)) is not None}
    assert ask(pod, world.cluster()).rejected() == expected


@plainly
@given(world=worlds(), pod=spread_pods(hard=False), data=st.data())
def test_scores_agree_with_the_plain_rule(world: World, pod: Pod, data: st.DataObject) -> None:
    feasible = data.draw(st.lists(st.sampled_from(world.nodes), min_size=1, unique_by=lambda node: node.name))
    expected = PlainSpread(pod, world, "ScheduleAnyway").scores(feasible)
    assert asked_about(pod, world.cluster(), feasible).normalized() == expected


@plainly
@given(world=worlds(), own=labels, data=st.data())
def test_default_scores_agree_with_the_plain_rule(
    world: World, own: dict[str, str], data: st.DataObject
) -> None:
    feasible = data.draw(st.lists(st.sampled_from(world.nodes), min_size=1, unique_by=lambda node: node.name))
    cluster = world.cluster()
    cluster.objects.put(make_service("web", WEB))
    pod = make_pod(
        "incoming", labels={**own, **WEB}, node_selector=data.draw(st.sampled_from((None, {"disk": "ssd"})))
    )
    assert asked_about(pod, cluster, feasible).normalized() == PlainDefaults(pod, world).scores(feasible)


@plainly
@given(world=worlds(), pod=spread_pods(hard=True), data=st.data())
def test_hypotheses_agree_with_the_plain_rule(world: World, pod: Pod, data: st.DataObject) -> None:
    """Pods gone from a node, and others that are only expected there."""
    cluster = world.cluster()
    gone: dict[str, list[Pod]] = {}
    added: dict[str, list[Pod]] = {}
    for node in world.nodes:
        here = world.placed.get(node.name, [])
        gone[node.name] = (
            data.draw(st.lists(st.sampled_from(here), unique_by=lambda pod: pod.uid)) if here else []
        )
        count = data.draw(st.integers(0, 2))
        added[node.name] = [data.draw(placed_pods(f"new-{node.name}-{number}")) for number in range(count)]
        for newcomer in added[node.name]:
            cluster.nominate(newcomer, node.name)
    asked = ask(pod, cluster)
    statuses = asked.statuses(suppose(cluster, gone, added))
    for node, status in zip(world.nodes, statuses, strict=True):
        plain = PlainSpread(pod, world, "DoNotSchedule")
        for other in gone[node.name]:
            plain.change(other, node, -1)
        for other in added[node.name]:
            plain.change(other, node, 1)
        assert (None if status is None else (status.code, status.reasons)) == plain.verdict(node), node.name
