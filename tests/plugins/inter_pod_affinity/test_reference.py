"""InterPodAffinity agrees with a plain implementation for one node at a time, on generated clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.api.meta import LabelSelector
from bayplan.api.pod import Affinity, PodAffinityTerm
from bayplan.api.selectors import Selector
from bayplan.plugin import SKIP, SKIP_FOR_SIGNATURE, Cluster, Namespace, Node, NodeColumns, Pod
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import (
    make_expression,
    make_namespace,
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_selector,
)
from tests.effort import examples

from ..evaluating import make_cluster, suppose
from .clusters import HOST, KEPT_AWAY, NOW, TOO_FAR, TOO_NEAR, ZONE, Rejection, evaluate, labels, terms


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for expression in selector.match_expressions:
        value = labels.get(expression.key)
        holds = {
            "In": value in expression.values,
            "NotIn": value not in expression.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[expression.operator]:
            return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items())


@dataclass
class World:
    """Nodes, their pods, and namespaces, as plain objects."""

    nodes: list[Node]
    assigned: dict[str, list[Pod]] = field(default_factory=dict)
    namespaces: list[Namespace] = field(default_factory=list)

    def cluster(self) -> Cluster:
        cluster = make_cluster(self.nodes, self.assigned)
        for namespace in self.namespaces:
            cluster.objects.put(namespace)
        return cluster

    def all_pods(self) -> Iterator[tuple[Pod, Node]]:
        for node in self.nodes:
            for pod in self.assigned.get(node.name, ()):
                yield pod, node


def means(term: PodAffinityTerm, owner: Pod, pod: Pod, world: World, *, incoming: bool) -> bool:
    """Whether a term of `owner` matches `pod`; `incoming`: the owner is the incoming pod."""
    namespaces = set(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = {owner.namespace}
    if incoming and term.namespace_selector != LabelSelector():
        namespaces |= {ns.name for ns in world.namespaces if selects(term.namespace_selector, ns.labels)}
        there = pod.namespace in namespaces
    else:
        labels = next((ns.labels for ns in world.namespaces if ns.name == pod.namespace), {})
        there = pod.namespace in namespaces or selects(term.namespace_selector, labels)
    return there and selects(term.label_selector, pod.labels)


def terms_of(pod: Pod, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if part is None else part.required


def preferred_of(pod: Pod, *, anti: bool) -> list[tuple[int, PodAffinityTerm]]:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return [] if part is None else [(term.weight, term.pod_affinity_term) for term in part.preferred]


Pair = tuple[str, str]


class PlainAffinity:
    """The rule as the specification has it: three maps from a label to how many pods it holds."""

    def __init__(self, pod: Pod, world: World) -> None:
        self.pod = pod
        self.world = world
        self.existing: dict[Pair, int] = {}
        self.affinity: dict[Pair, int] = {}
        self.anti_affinity: dict[Pair, int] = {}
        for other, node in world.all_pods():
            self.change(other, node, 1)

    @property
    def skips(self) -> bool:
        own = terms_of(self.pod, anti=False) or terms_of(self.pod, anti=True)
        return not self.existing and not own

    def change(self, other: Pod, node: Node, by: int) -> None:
        """AddPod and RemovePod. A map drops what has become zero."""
        repelling = [
            term
            for term in terms_of(other, anti=True)
            if means(term, other, self.pod, self.world, incoming=False)
        ]
        own = terms_of(self.pod, anti=False)
        near = (
            own
            if own and all(means(term, self.pod, other, self.world, incoming=True) for term in own)
            else ()
        )
        away = [
            term
            for term in terms_of(self.pod, anti=True)
            if means(term, self.pod, other, self.world, incoming=True)
        ]
        for found, counts in ((repelling, self.existing), (near, self.affinity), (away, self.anti_affinity)):
            for term in found:
                if term.topology_key in node.labels:
                    pair = (term.topology_key, node.labels[term.topology_key])
                    counts[pair] = counts.get(pair, 0) + by
                    if not counts[pair]:
                        del counts[pair]

    def rejection(self, node: Node) -> Rejection | None:
        own = terms_of(self.pod, anti=False)
        unmet = False
        for term in own:
            if term.topology_key not in node.labels:
                return TOO_FAR
            unmet = unmet or self.affinity.get((term.topology_key, node.labels[term.topology_key]), 0) <= 0
        if unmet:
            first = not self.affinity and all(
                means(term, self.pod, self.pod, self.world, incoming=True) for term in own
            )
            if not first:
                return TOO_FAR
        for term in terms_of(self.pod, anti=True):
            value = node.labels.get(term.topology_key)
            if value is not None and self.anti_affinity.get((term.topology_key, value), 0) > 0:
                return TOO_NEAR
        if any(self.existing.get(pair, 0) > 0 for pair in node.labels.items()):
            return KEPT_AWAY
        return None

    def scores(self, feasible: list[Node], hard_weight: int) -> list[int] | None:
        """Normalised scores of the nodes that fit; None if there is nothing to score."""
        worth: dict[Pair, int] = {}
        for other, node in self.world.all_pods():
            for term, weight in self._pulls(other, hard_weight):
                if term.topology_key in node.labels:
                    pair = (term.topology_key, node.labels[term.topology_key])
                    worth[pair] = worth.get(pair, 0) + weight
        if not worth:
            return None
        raw = [sum(worth.get(pair, 0) for pair in node.labels.items()) for node in feasible]
        least, difference = min(raw), max(raw) - min(raw)
        return [int(100.0 * ((score - least) / difference)) if difference else 0 for score in raw]

    def _pulls(self, other: Pod, hard_weight: int) -> Iterator[tuple[PodAffinityTerm, int]]:
        for anti, sign in ((False, 1), (True, -1)):
            for weight, term in preferred_of(self.pod, anti=anti):
                if means(term, self.pod, other, self.world, incoming=True):
                    yield term, sign * weight
            for weight, term in preferred_of(other, anti=anti):
                if means(term, other, self.pod, self.world, incoming=False):
                    yield term, sign * weight
        if hard_weight > 0:
            for term in terms_of(other, anti=False):
                if means(term, other, self.pod, self.world, incoming=False):
                    yield term, hard_weight


namespaces = st.sampled_from(("default", "default", "other"))


weighted = st.tuples(st.sampled_from((1, 7, 100)), terms)


@st.composite
def affinities(draw: st.DrawFn) -> Affinity | None:
    if not draw(st.booleans()):
        return None
    required, preferred = st.lists(terms, max_size=2), st.lists(weighted, max_size=2)
    return make_pod_affinity(
        required=draw(required),
        anti_required=draw(required),
        preferred=draw(preferred),
        anti_preferred=draw(preferred),
    )


@st.composite
def some_pods(draw: st.DrawFn, name: str) -> Pod:
    return make_pod(
        name,
        namespace=draw(namespaces),
        labels=draw(labels),
        affinity=draw(affinities()),
        deleted=draw(st.sampled_from((None, None, NOW))),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        optional = {
            ZONE: st.sampled_from(("y", "z")),
            "rack": st.sampled_from(("", "r")),
            HOST: st.just(f"n{number}"),
        }
        nodes.append(make_node(f"n{number}", labels=draw(st.fixed_dictionaries({}, optional=optional))))
    world = World(nodes)
    for number in range(draw(st.integers(0, 7))):
        name = f"n{draw(st.integers(0, len(nodes) - 1))}"
        world.assigned.setdefault(name, []).append(draw(some_pods(f"p{number}")))
    for name in draw(st.lists(st.sampled_from(("default", "other")), unique=True)):
        team = draw(st.sampled_from(({}, {"team": "a"}, {"team": "b"})))
        world.namespaces.append(make_namespace(name, labels=team))
    return world


plainly = settings(
    max_examples=examples(100), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)


@plainly
@given(world=worlds(), pod=some_pods("incoming"))
def test_filter_agrees_with_the_plain_rule(world: World, pod: Pod) -> None:
    plain = PlainAffinity(pod, world)
    evaluation = evaluate(pod, world.cluster())
    assert (evaluation.pre_filter in (SKIP, SKIP_FOR_SIGNATURE)) is plain.skips
    expected = {
        node.name: rejection for node in world.nodes if (rejection := plain.rejection(node)) is not None
    }
    assert evaluation.rejected() == expected


@plainly
@given(world=worlds(), pod=some_pods("incoming"), weight=st.sampled_from((0, 1, 50)), data=st.data())
def test_scores_agree_with_the_plain_rule(world: World, pod: Pod, weight: int, data: st.DataObject) -> None:
    feasible = data.draw(st.lists(st.sampled_from(world.nodes), min_size=1, unique_by=lambda node: node.name))
    expected = PlainAffinity(pod, world).scores(feasible, weight)
    cluster = world.cluster()
    evaluation = evaluate(pod, cluster, hard_pod_affinity_weight=weight)
    rows = np.array([cluster.nodes.row_of[node.name] for node in feasible], dtype=np.intp)
    evaluation.nodes = NodeColumns(cluster, rows)
    skipped = evaluation.plugin.pre_score(evaluation.state, pod, evaluation.nodes) in (
        SKIP,
        SKIP_FOR_SIGNATURE,
    )
    assert (None if skipped else evaluation.normalized()) == expected


@plainly
@given(world=worlds(), pod=some_pods("incoming"), data=st.data())
def test_hypotheses_agree_with_the_plain_rule(world: World, pod: Pod, data: st.DataObject) -> None:
    """Pods gone from a node, and others that are nominated there."""
    if PlainAffinity(pod, world).skips:
        return  # What was left out stays out.
    cluster = world.cluster()
    gone: dict[str, list[Pod]] = {}
    added: dict[str, list[Pod]] = {}
    for node in world.nodes:
        here = world.assigned.get(node.name, [])
        gone[node.name] = (
            data.draw(st.lists(st.sampled_from(here), unique_by=lambda pod: pod.uid)) if here else []
        )
        count = data.draw(st.integers(0, 2))
        added[node.name] = [data.draw(some_pods(f"new-{node.name}-{number}")) for number in range(count)]
        for newcomer in added[node.name]:
            cluster.nominate(newcomer, node.name)
    statuses = evaluate(pod, cluster).statuses(suppose(cluster, gone, added))
    for node, status in zip(world.nodes, statuses, strict=True):
        plain = PlainAffinity(pod, world)
        for other in gone[node.name]:
            plain.change(other, node, -1)
        for other in added[node.name]:
            plain.change(other, node, 1)
        assert (None if status is None else (status.code, status.reasons)) == plain.rejection(node), node.name


def test_the_cost_of_terms_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Required terms with a topology key each: all keys match the same pods, by one query of all terms."""
    hashed = 0

    def counted(selector: Selector) -> int:
        nonlocal hashed
        hashed += 1
        return selector._hash

    monkeypatch.setattr(Selector, "__hash__", counted)
    terms = [
        make_pod_term(f"k{i}", make_selector({}, make_expression("app", "In", "a", f"x{i}")))
        for i in range(200)
    ]
    core = SchedulingCore()
    core.load(
        [
            make_node("n", labels={f"k{i}": "v" for i in range(200)}),
            make_pod("there", labels={"app": "a"}, node="n"),
        ]
    )
    for name in ("p", "q"):
        pod = make_pod(name, labels={"name": name}, affinity=make_pod_affinity(required=terms))
        assert core.decide(pod).node_name == "n"
    assert hashed < 20 * len(terms)
