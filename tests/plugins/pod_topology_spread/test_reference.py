"""PodTopologySpread agrees with a plain implementation for one node at a time, on generated clusters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.api.meta import LabelSelector
from bayplan.api.pod import TopologySpreadConstraint
from bayplan.plugin import Cluster, Code, Node, Pod
from bayplan.plugin.objects import required_node_affinity, untolerated_taint
from bayplan.testing.builders import (
    make_expression,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pod,
    make_selector,
    make_service,
    make_spread,
    make_toleration,
)
from tests.effort import examples

from ..evaluating import make_cluster, suppose
from .clusters import HOST, NO_LABEL, NOW, TOO_MANY, WEB, ZONE, evaluate, evaluate_feasible, labels


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
    """Nodes and their pods, as plain objects."""

    nodes: list[Node]
    assigned: dict[str, list[Pod]] = field(default_factory=dict)

    def cluster(self) -> Cluster:
        return make_cluster(self.nodes, self.assigned)


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
            for other in self.world.assigned.get(node.name, ())
        )

    def change(self, other: Pod, node: Node, by: int) -> None:
        """AddPod and RemovePod: pods being deleted count here, and so does the empty selector."""
        if other.namespace != self.pod.namespace or not self.has_all_keys(node):
            return
        for place, constraint in enumerate(self.constraints):
            if self.accepts(constraint, node) and selects(narrowed(constraint, self.pod), other.labels):
                self.counts[place][node.labels[constraint.topology_key]] += by

    def rejection(self, node: Node) -> tuple[Code, tuple[str, ...]] | None:
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
        world.assigned.setdefault(f"n{draw(st.integers(0, len(nodes) - 1))}", []).append(
            draw(assigned_pods(f"p{number}"))
        )
    return world


@st.composite
def assigned_pods(draw: st.DrawFn, name: str) -> Pod:
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


plainly = settings(
    max_examples=examples(80), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)


@plainly
@given(world=worlds(), pod=spread_pods(hard=True))
def test_filter_agrees_with_the_plain_rule(world: World, pod: Pod) -> None:
    plain = PlainSpread(pod, world, "DoNotSchedule")
    expected = {
        node.name: rejection for node in world.nodes if (rejection := plain.rejection(node)) is not None
    }
    assert evaluate(pod, world.cluster()).rejected() == expected


@plainly
@given(world=worlds(), pod=spread_pods(hard=False), data=st.data())
def test_scores_agree_with_the_plain_rule(world: World, pod: Pod, data: st.DataObject) -> None:
    feasible = data.draw(st.lists(st.sampled_from(world.nodes), min_size=1, unique_by=lambda node: node.name))
    expected = PlainSpread(pod, world, "ScheduleAnyway").scores(feasible)
    assert evaluate_feasible(pod, world.cluster(), feasible).normalized() == expected


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
    assert evaluate_feasible(pod, cluster, feasible).normalized() == PlainDefaults(pod, world).scores(
        feasible
    )


@plainly
@given(world=worlds(), pod=spread_pods(hard=True), data=st.data())
def test_hypotheses_agree_with_the_plain_rule(world: World, pod: Pod, data: st.DataObject) -> None:
    """Pods gone from a node, and others that are nominated there."""
    cluster = world.cluster()
    gone: dict[str, list[Pod]] = {}
    added: dict[str, list[Pod]] = {}
    for node in world.nodes:
        here = world.assigned.get(node.name, [])
        gone[node.name] = (
            data.draw(st.lists(st.sampled_from(here), unique_by=lambda pod: pod.uid)) if here else []
        )
        count = data.draw(st.integers(0, 2))
        added[node.name] = [data.draw(assigned_pods(f"new-{node.name}-{number}")) for number in range(count)]
        for newcomer in added[node.name]:
            cluster.nominate(newcomer, node.name)
    evaluation = evaluate(pod, cluster)
    statuses = evaluation.statuses(suppose(cluster, gone, added))
    for node, status in zip(world.nodes, statuses, strict=True):
        plain = PlainSpread(pod, world, "DoNotSchedule")
        for other in gone[node.name]:
            plain.change(other, node, -1)
        for other in added[node.name]:
            plain.change(other, node, 1)
        assert (None if status is None else (status.code, status.reasons)) == plain.rejection(node), node.name
