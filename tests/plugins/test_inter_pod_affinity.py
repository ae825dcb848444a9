"""Pods near to and away from others: tables of the rule, and a plain version that asks every pod there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.api.meta import LabelSelector
from bayplan.api.pod import Affinity, PodAffinityTerm
from bayplan.api.selectors import Selector
from bayplan.plugin import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    Cluster,
    Code,
    CycleState,
    Namespace,
    Node,
    NodeColumns,
    Pod,
    Resource,
    Status,
)
from bayplan.plugin.args import InterPodAffinityArgs
from bayplan.plugins.inter_pod_affinity import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    InterPodAffinity,
)
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

from .judging import Asked, make_cluster, points, registrations, suppose, wakes

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB, DB = {"app": "web"}, {"app": "db"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)

TOO_FAR = (Code.UNRESOLVABLE, (AFFINITY,))
TOO_NEAR = (Code.UNSCHEDULABLE, (ANTI_AFFINITY,))
KEPT_AWAY = (Code.UNSCHEDULABLE, (EXISTING_ANTI_AFFINITY,))

Verdict = tuple[Code, tuple[str, ...]]


def zones(placed: Mapping[str, Iterable[Pod]] | None = None) -> Cluster:
    """Two zones of two nodes, a1 to b2, and a node without a zone, with these pods on them."""
    nodes = [
        make_node(f"{zone}{number}", labels={ZONE: zone, HOST: f"{zone}{number}"})
        for zone in "ab"
        for number in (1, 2)
    ]
    nodes.append(make_node("lost", labels={HOST: "lost"}))
    return make_cluster(nodes, {name: list(pods) for name, pods in (placed or {}).items()})


def ask(pod: Pod, cluster: Cluster, **args: int | bool) -> Asked:
    return Asked(InterPodAffinity(InterPodAffinityArgs(**args)), pod, cluster)  # type: ignore[arg-type]  # by name


def near(*terms: PodAffinityTerm, labels: Mapping[str, str] | None = None) -> Pod:
    return make_pod("incoming", labels=labels, affinity=make_pod_affinity(required=terms))


def away(*terms: PodAffinityTerm, labels: Mapping[str, str] | None = None) -> Pod:
    return make_pod("incoming", labels=labels, affinity=make_pod_affinity(anti_required=terms))


def test_extension_points() -> None:
    assert points(InterPodAffinity) == {"PreFilter", "Filter", "PreScore", "Score", "NormalizeScore"}


# Filtering


@pytest.mark.parametrize(
    ("pod", "placed", "rejected"),
    [
        pytest.param(
            near(make_pod_term(ZONE, WEB)),
            {"a1": [make_pod("w", labels=WEB)]},
            {"b1", "b2", "lost"},
            id="near a pod means in its zone",
        ),
        pytest.param(
            near(make_pod_term(HOST, WEB)),
            {"a1": [make_pod("w", labels=WEB)]},
            {"a2", "b1", "b2", "lost"},
            id="or on its host",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB)),
            {},
            {"a1", "a2", "b1", "b2", "lost"},
            id="nobody there: nowhere to go",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB), labels=WEB),
            {},
            {"lost"},
            id="the first of its kind goes anywhere with the label",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB), labels=WEB),
            {"lost": [make_pod("w", labels=WEB)]},
            {"lost"},
            id="a pod on a node without the label is nowhere",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB), labels=WEB),
            {"a1": [make_pod("w", labels=WEB)]},
            {"b1", "b2", "lost"},
            id="the second of its kind goes to the first",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB), make_pod_term(ZONE, {"tier": "front"})),
            {"a1": [make_pod("w", labels=WEB)], "a2": [make_pod("f", labels={"tier": "front"})]},
            {"a1", "a2", "b1", "b2", "lost"},
            id="one pod has to match all terms",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB), make_pod_term(HOST, {"tier": "front"})),
            {"b2": [make_pod("wf", labels={**WEB, "tier": "front"})]},
            {"a1", "a2", "b1", "lost"},
            id="in the domain of each",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB)),
            {"a1": [make_pod("w", labels=WEB, deleted=NOW)]},
            {"b1", "b2", "lost"},
            id="pods being deleted count",
        ),
        pytest.param(
            near(make_pod_term(ZONE)),
            {"a1": [make_pod("w")]},
            {"a1", "a2", "b1", "b2", "lost"},
            id="no selector matches nobody",
        ),
    ],
)
def test_affinity(pod: Pod, placed: Mapping[str, list[Pod]], rejected: set[str]) -> None:
    assert ask(pod, zones(placed)).rejected() == dict.fromkeys(rejected, TOO_FAR)


@pytest.mark.parametrize(
    ("pod", "placed", "rejected"),
    [
        pytest.param(
            away(make_pod_term(ZONE, WEB)),
            {"a1": [make_pod("w", labels=WEB)]},
            {"a1", "a2"},
            id="away from its zone",
        ),
        pytest.param(
            away(make_pod_term(HOST, WEB)),
            {"a1": [make_pod("w", labels=WEB)]},
            {"a1"},
            id="away from its host",
        ),
        pytest.param(
            away(make_pod_term(ZONE, WEB)),
            {"lost": [make_pod("w", labels=WEB)]},
            set(),
            id="a pod that is nowhere repels nobody",
        ),
        pytest.param(
            away(make_pod_term(HOST, WEB), make_pod_term(HOST, DB)),
            {"a1": [make_pod("w", labels=WEB)], "b1": [make_pod("d", labels=DB)]},
            {"a1", "b1"},
            id="each term counts alone",
        ),
    ],
)
def test_anti_affinity(pod: Pod, placed: Mapping[str, list[Pod]], rejected: set[str]) -> None:
    assert ask(pod, zones(placed)).rejected() == dict.fromkeys(rejected, TOO_NEAR)


REPELS_WEB = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB)])


@pytest.mark.parametrize(
    ("pod", "placed", "rejected"),
    [
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("r", affinity=REPELS_WEB)]},
            {"a1", "a2"},
            id="a pod that is there repels this one",
        ),
        pytest.param(
            make_pod("incoming", labels=DB),
            {"a1": [make_pod("r", affinity=REPELS_WEB)]},
            set(),
            id="or another",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB, namespace="other"),
            {"a1": [make_pod("r", affinity=REPELS_WEB)]},
            set(),
            id="only in its own namespace",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"lost": [make_pod("r", affinity=REPELS_WEB)]},
            set(),
            id="and only where it has a zone",
        ),
    ],
)
def test_anti_affinity_of_pods_already_there(
    pod: Pod, placed: Mapping[str, list[Pod]], rejected: set[str]
) -> None:
    asked = ask(pod, zones(placed))
    assert asked.rejected() == dict.fromkeys(rejected, KEPT_AWAY)
    assert (asked.pre_filter in (SKIP, SKIP_FOR_SIGNATURE)) is not bool(rejected)


def test_a_node_is_told_the_first_of_three_reasons() -> None:
    """Affinity first, then the pod's own anti-affinity, then that of others."""
    pod = make_pod(
        "incoming",
        labels=WEB,
        affinity=make_pod_affinity(
            required=[make_pod_term(ZONE, DB)], anti_required=[make_pod_term(HOST, DB)]
        ),
    )
    cluster = zones({"a1": [make_pod("d", labels=DB)], "a2": [make_pod("r", affinity=REPELS_WEB)]})
    assert ask(pod, cluster).rejected() == {
        "a1": TOO_NEAR,
        "a2": KEPT_AWAY,
        "b1": TOO_FAR,
        "b2": TOO_FAR,
        "lost": TOO_FAR,
    }


@pytest.mark.parametrize(
    ("term", "placed_in", "matches"),
    [
        pytest.param(make_pod_term(ZONE, WEB), "default", True, id="nothing said: the pod's own namespace"),
        pytest.param(make_pod_term(ZONE, WEB), "red", False, id="and no other"),
        pytest.param(make_pod_term(ZONE, WEB, namespaces=["red"]), "red", True, id="listed"),
        pytest.param(
            make_pod_term(ZONE, WEB, namespaces=["red"]), "default", False, id="then not the own one"
        ),
        pytest.param(
            make_pod_term(ZONE, WEB, namespace_selector=make_selector({"team": "a"})),
            "red",
            True,
            id="selected by label",
        ),
        pytest.param(
            make_pod_term(ZONE, WEB, namespace_selector=make_selector({"team": "a"})),
            "blue",
            False,
            id="not selected",
        ),
        pytest.param(
            make_pod_term(ZONE, WEB, namespaces=["blue"], namespace_selector=make_selector({"team": "a"})),
            "blue",
            True,
            id="listed or selected",
        ),
        pytest.param(
            make_pod_term(ZONE, WEB, namespace_selector=make_selector()),
            "unknown",
            True,
            id="the empty selector means all",
        ),
        pytest.param(
            make_pod_term(
                ZONE, WEB, namespace_selector=make_selector({}, make_expression("team", "DoesNotExist"))
            ),
            "red",
            True,
            id="one that no labels satisfy means all, as upstream",
        ),
    ],
)
def test_namespaces_of_the_pods_own_terms(term: PodAffinityTerm, placed_in: str, matches: bool) -> None:
    cluster = zones({"a1": [make_pod("w", labels=WEB, namespace=placed_in)]})
    for item in (make_namespace("red", labels={"team": "a"}), make_namespace("blue", labels={"team": "b"})):
        cluster.objects.put(item)
    assert bool(ask(away(term), cluster).rejected()) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(make_selector({"team": "a"}), True, id="its labels match"),
        pytest.param(make_selector({"team": "b"}), False, id="they do not"),
        pytest.param(
            make_selector({}, make_expression("team", "DoesNotExist")), False, id="they are looked at, here"
        ),
    ],
)
def test_namespaces_of_terms_that_are_there(selector: LabelSelector, matches: bool) -> None:
    """Terms of pods that run are held against the labels of the incoming pod's namespace."""
    repelling = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB, namespace_selector=selector)])
    cluster = zones({"a1": [make_pod("r", namespace="other", affinity=repelling)]})
    cluster.objects.put(make_namespace("default", labels={"team": "a"}))
    assert bool(ask(make_pod("incoming", labels=WEB), cluster).rejected()) is matches


def test_a_namespace_that_changes_its_labels_is_seen() -> None:
    """Both by the pod's own terms and by those of pods that run."""
    cluster = zones({"a1": [make_pod("w", labels=WEB, namespace="red")]})
    asked = Asked(
        InterPodAffinity(),
        away(make_pod_term(ZONE, WEB, namespace_selector=make_selector({"team": "a"}))),
        cluster,
    )
    assert not asked.rejected()
    for labels, rejected in (({"team": "a"}, {"a1", "a2"}), ({"team": "b"}, set())):
        cluster.objects.put(make_namespace("red", labels=labels))
        asked.pre_filter = asked.plugin.pre_filter(asked.state, asked.pod, asked.nodes)
        assert asked.rejected().keys() == rejected


BAD = make_selector({}, make_expression("app", "In"))
EMPTY_IN = "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"


@pytest.mark.parametrize(
    ("affinity", "message"),
    [
        (make_pod_affinity(required=[make_pod_term(ZONE, BAD)]), f"requiredAffinityTerms: {EMPTY_IN}"),
        (
            make_pod_affinity(anti_required=[make_pod_term(ZONE, BAD)]),
            f"requiredAntiAffinityTerms: {EMPTY_IN}",
        ),
        (make_pod_affinity(preferred=[(1, make_pod_term(ZONE, BAD))]), f"preferredAffinityTerms: {EMPTY_IN}"),
        (
            make_pod_affinity(anti_preferred=[(1, make_pod_term(ZONE, BAD))]),
            f"preferredAntiAffinityTerms: {EMPTY_IN}",
        ),
        (
            make_pod_affinity(required=[make_pod_term(ZONE, BAD)], anti_required=[make_pod_term(ZONE, BAD)]),
            f"[requiredAffinityTerms: {EMPTY_IN}, requiredAntiAffinityTerms: {EMPTY_IN}]",
        ),
    ],
)
def test_a_malformed_term_is_told(affinity: Affinity, message: str) -> None:
    pod = make_pod("incoming", affinity=affinity)
    answer = InterPodAffinity().pre_filter(CycleState(), pod, NodeColumns(zones()))
    assert answer == Status(Code.UNRESOLVABLE, (f"parsing pod: {message}",))


def test_a_malformed_term_of_a_pod_that_runs_is_ignored() -> None:
    broken = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB), make_pod_term(ZONE, BAD)])
    cluster = zones({"a1": [make_pod("r", affinity=broken)]})
    assert ask(make_pod("incoming", labels=WEB), cluster).pre_filter in (SKIP, SKIP_FOR_SIGNATURE)


# Scoring


def prefers(weight: int, term: PodAffinityTerm) -> Affinity:
    return make_pod_affinity(preferred=[(weight, term)])


def avoids(weight: int, term: PodAffinityTerm) -> Affinity:
    return make_pod_affinity(anti_preferred=[(weight, term)])


@pytest.mark.parametrize(
    ("pod", "placed", "raw", "normal"),
    [
        pytest.param(
            make_pod("incoming", affinity=prefers(5, make_pod_term(ZONE, WEB))),
            {"a1": [make_pod("w", labels=WEB), make_pod("v", labels=WEB)]},
            [10, 10, 0, 0, 0],
            [100, 100, 0, 0, 0],
            id="each pod that it likes counts",
        ),
        pytest.param(
            make_pod("incoming", affinity=avoids(5, make_pod_term(HOST, WEB))),
            {"a1": [make_pod("w", labels=WEB)], "b1": [make_pod("x", labels=WEB), make_pod("y", labels=WEB)]},
            [-5, 0, -10, 0, 0],
            [50, 100, 0, 100, 100],
            id="each that it dislikes counts against",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {
                "a1": [make_pod("w", affinity=prefers(7, make_pod_term(HOST, WEB)))],
                "b1": [make_pod("x", affinity=avoids(7, make_pod_term(HOST, WEB)))],
            },
            [7, 0, -7, 0, 0],
            [100, 50, 0, 50, 50],
            id="pods that run have preferences, too",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("w", affinity=make_pod_affinity(required=[make_pod_term(ZONE, WEB)]))]},
            [1, 1, 0, 0, 0],
            [100, 100, 0, 0, 0],
            id="and those that needed this kind draw it a little",
        ),
        pytest.param(
            make_pod("incoming", affinity=prefers(3, make_pod_term(ZONE, WEB))),
            {
                "a1": [make_pod("w", labels=WEB)],
                "b1": [make_pod("x", labels=WEB)],
                "lost": [make_pod("z", labels=WEB)],
            },
            [3, 3, 3, 3, 0],
            [100, 100, 100, 100, 0],
            id="a node without the label gets nothing",
        ),
    ],
)
def test_scores(pod: Pod, placed: Mapping[str, list[Pod]], raw: list[int], normal: list[int]) -> None:
    asked = ask(pod, zones(placed))
    assert (asked.scores(), asked.normalized()) == (raw, normal)


def test_scores_that_are_all_alike_come_to_nothing() -> None:
    placed = {name: [make_pod(name, labels=WEB)] for name in ("a1", "b1")}
    cluster = make_cluster([make_node(name, labels={HOST: name}) for name in placed], placed)
    pod = make_pod("incoming", affinity=prefers(9, make_pod_term(HOST, WEB)))
    assert ask(pod, cluster).normalized() == [0, 0]


@pytest.mark.parametrize(
    ("pod", "placed", "args"),
    [
        pytest.param(make_pod("incoming", labels=WEB), {}, {}, id="nobody there"),
        pytest.param(
            make_pod("incoming", labels=WEB), {"a1": [make_pod("w", labels=WEB)]}, {}, id="nobody with wishes"
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"lost": [make_pod("w", affinity=prefers(7, make_pod_term(ZONE, WEB)))]},
            {},
            id="wishes of a pod that is nowhere",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("w", affinity=prefers(7, make_pod_term(ZONE, WEB)))]},
            {"ignore_preferred_terms_of_existing_pods": True},
            id="wishes of others that are to be ignored",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("w", affinity=make_pod_affinity(required=[make_pod_term(ZONE, WEB)]))]},
            {"hard_pod_affinity_weight": 0},
            id="needs of others that are worth nothing",
        ),
    ],
)
def test_nothing_to_score(pod: Pod, placed: Mapping[str, list[Pod]], args: dict[str, int | bool]) -> None:
    assert ask(pod, zones(placed), **args).pre_score in (SKIP, SKIP_FOR_SIGNATURE)


def test_wishes_of_others_count_where_the_pod_has_some_of_its_own() -> None:
    """They are ignored only for pods without preferences."""
    pod = make_pod("incoming", labels=WEB, affinity=prefers(1, make_pod_term(ZONE, DB)))
    placed = {"a1": [make_pod("w", affinity=prefers(7, make_pod_term(ZONE, WEB)))]}
    asked = ask(pod, zones(placed), ignore_preferred_terms_of_existing_pods=True)
    assert asked.scores() == [7, 7, 0, 0, 0]


def test_what_a_need_of_others_is_worth() -> None:
    placed = {"a1": [make_pod("w", affinity=make_pod_affinity(required=[make_pod_term(HOST, WEB)]))]}
    assert ask(make_pod("incoming", labels=WEB), zones(placed), hard_pod_affinity_weight=30).scores()[0] == 30


# What may help


def test_registered_events() -> None:
    pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
    assert registrations(InterPodAffinity()) == [
        (Resource.POD, pods),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
    ]


NEAR_WEB = near(make_pod_term(ZONE, WEB), make_pod_term(ZONE, {"tier": "front"}))
AWAY_WEB = away(make_pod_term(ZONE, WEB))
FRONT = {**WEB, "tier": "front"}


@pytest.mark.parametrize(
    ("pod", "action", "old", "new", "helps"),
    [
        pytest.param(
            NEAR_WEB, Action.ADD, None, make_pod("x", labels=FRONT, node="a"), True, id="a pod to be near to"
        ),
        pytest.param(
            NEAR_WEB,
            Action.ADD,
            None,
            make_pod("x", labels=FRONT, nominated_node="a"),
            True,
            id="one that is expected",
        ),
        pytest.param(NEAR_WEB, Action.ADD, None, make_pod("x", labels=FRONT), False, id="one without a node"),
        pytest.param(
            NEAR_WEB,
            Action.ADD,
            None,
            make_pod("x", labels=WEB, node="a"),
            False,
            id="one that matches only some terms",
        ),
        pytest.param(
            AWAY_WEB,
            Action.ADD,
            None,
            make_pod("x", labels=DB, node="a"),
            False,
            id="a pod never helps against others",
        ),
        pytest.param(
            AWAY_WEB,
            Action.DELETE,
            make_pod("x", labels=WEB, node="a"),
            None,
            True,
            id="a pod to keep away from went",
        ),
        pytest.param(
            AWAY_WEB, Action.DELETE, make_pod("x", labels=DB, node="a"), None, False, id="another went"
        ),
        pytest.param(
            make_pod("w", labels=WEB),
            Action.DELETE,
            make_pod("x", affinity=REPELS_WEB, node="a"),
            None,
            True,
            id="a pod went that kept this one away",
        ),
        pytest.param(
            NEAR_WEB, Action.UPDATE_POD_LABEL, NEAR_WEB, NEAR_WEB, True, id="the pod itself changed"
        ),
        pytest.param(
            NEAR_WEB,
            Action.UPDATE_POD_LABEL,
            make_pod("x", node="a"),
            make_pod("x", labels=FRONT, node="a"),
            True,
            id="a pod starts to match",
        ),
        pytest.param(
            AWAY_WEB,
            Action.UPDATE_POD_LABEL,
            make_pod("x", labels=WEB, node="a"),
            make_pod("x", node="a"),
            True,
            id="a pod stops to repel",
        ),
        pytest.param(
            AWAY_WEB,
            Action.UPDATE_POD_LABEL,
            make_pod("x", node="a"),
            make_pod("x", labels=WEB, node="a"),
            False,
            id="a pod starts to repel",
        ),
    ],
)
def test_pods_that_help(pod: Pod, action: Action, old: Pod | None, new: Pod | None, helps: bool) -> None:
    assert wakes(InterPodAffinity(), (Resource.POD, action), pod, old, new) is helps


def labelled(zone: str | None = None) -> Node:
    return make_node("a", labels={} if zone is None else {ZONE: zone})


@pytest.mark.parametrize(
    ("pod", "action", "old", "new", "helps"),
    [
        pytest.param(NEAR_WEB, Action.ADD, None, labelled("z"), True, id="a node with a label to be near by"),
        pytest.param(NEAR_WEB, Action.ADD, None, labelled(), False, id="one without"),
        pytest.param(AWAY_WEB, Action.ADD, None, labelled(), True, id="any node to get away to"),
        pytest.param(
            NEAR_WEB, Action.UPDATE_NODE_LABEL, labelled(), labelled("z"), True, id="the label appeared"
        ),
        pytest.param(
            NEAR_WEB, Action.UPDATE_NODE_LABEL, labelled("z"), labelled(), False, id="the label vanished"
        ),
        pytest.param(
            AWAY_WEB,
            Action.UPDATE_NODE_LABEL,
            labelled("z"),
            labelled(),
            True,
            id="a label to keep away by vanished",
        ),
        pytest.param(AWAY_WEB, Action.UPDATE_NODE_LABEL, labelled(), labelled("z"), False, id="or appeared"),
        pytest.param(AWAY_WEB, Action.UPDATE_NODE_LABEL, labelled("y"), labelled("z"), True, id="or changed"),
    ],
)
def test_nodes_that_help(pod: Pod, action: Action, old: Node | None, new: Node, helps: bool) -> None:
    assert wakes(InterPodAffinity(), (Resource.NODE, action), pod, old, new) is helps


# A plain version of the rule


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
    """Nodes, who is on them, and namespaces, as plain objects."""

    nodes: list[Node]
    placed: dict[str, list[Pod]] = field(default_factory=dict)
    namespaces: list[Namespace] = field(default_factory=list)

    def cluster(self) -> Cluster:
        cluster = make_cluster(self.nodes, self.placed)
        for namespace in self.namespaces:
            cluster.objects.put(namespace)
        return cluster

    def everybody(self) -> Iterator[tuple[Pod, Node]]:
        for node in self.nodes:
            for pod in self.placed.get(node.name, ()):
                yield pod, node


def means(term: PodAffinityTerm, owner: Pod, pod: Pod, world: World, *, incoming: bool) -> bool:
    """Whether a term of `owner` means `pod`; `incoming` says whether the owner is the incoming pod."""
    namespaces = set(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = {owner.namespace}
    labels: Mapping[str, str] = {}
    if incoming:
        namespaces |= {ns.name for ns in world.namespaces if selects(term.namespace_selector, ns.labels)}
    else:
        labels = next((ns.labels for ns in world.namespaces if ns.name == pod.namespace), {})
    there = pod.namespace in namespaces or selects(term.namespace_selector, labels)
    return there and selects(term.label_selector, pod.labels)


def terms_of(pod: Pod, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if part is None else part.required


def wishes_of(pod: Pod, *, anti: bool) -> list[tuple[int, PodAffinityTerm]]:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return [] if part is None else [(wish.weight, wish.pod_affinity_term) for wish in part.preferred]


Pair = tuple[str, str]


class PlainAffinity:
    """The rule as the specification has it: three maps from a label to how many pods it holds."""

    def __init__(self, pod: Pod, world: World) -> None:
        self.pod = pod
        self.world = world
        self.existing: dict[Pair, int] = {}
        self.affinity: dict[Pair, int] = {}
        self.anti_affinity: dict[Pair, int] = {}
        for other, node in world.everybody():
            self.change(other, node, 1)

    @property
    def skips(self) -> bool:
        own = terms_of(self.pod, anti=False) or terms_of(self.pod, anti=True)
        return not self.existing and not own

    def change(self, other: Pod, node: Node, by: int) -> None:
        """AddPod and RemovePod. A map forgets what has come to nothing."""
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

    def verdict(self, node: Node) -> Verdict | None:
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
        for other, node in self.world.everybody():
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
            for weight, term in wishes_of(self.pod, anti=anti):
                if means(term, self.pod, other, self.world, incoming=True):
                    yield term, sign * weight
            for weight, term in wishes_of(other, anti=anti):
                if means(term, other, self.pod, self.world, incoming=False):
                    yield term, sign * weight
        if hard_weight > 0:
            for term in terms_of(other, anti=False):
                if means(term, other, self.pod, self.world, incoming=False):
                    yield term, hard_weight


labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from(("web", "db")), "tier": st.just("front")})
namespaces = st.sampled_from(("default", "default", "other"))
selectors = st.sampled_from(
    (
        make_selector(WEB),
        make_selector(WEB),
        make_selector({}, make_expression("app", "In", "web", "db")),
        make_selector({}, make_expression("app", "NotIn", "db")),
        make_selector({}, make_expression("tier", "DoesNotExist")),
        make_selector(),
        None,
    )
)
namespace_selectors = st.sampled_from(
    (
        None,
        None,
        None,
        make_selector(),
        make_selector({"team": "a"}),
        make_selector({}, make_expression("team", "NotIn", "a")),
        make_selector({}, make_expression("team", "DoesNotExist")),
    )
)
terms = st.builds(
    lambda key, selector, listed, selected: make_pod_term(
        key, selector, namespaces=listed, namespace_selector=selected
    ),
    st.sampled_from((ZONE, HOST, "rack")),
    selectors,
    st.sampled_from(((), (), (), ("default",), ("other",))),
    namespace_selectors,
)
weighted = st.tuples(st.sampled_from((1, 7, 100)), terms)


@st.composite
def affinities(draw: st.DrawFn) -> Affinity | None:
    if not draw(st.booleans()):
        return None
    needs, wishes = st.lists(terms, max_size=2), st.lists(weighted, max_size=2)
    return make_pod_affinity(
        required=draw(needs), anti_required=draw(needs), preferred=draw(wishes), anti_preferred=draw(wishes)
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
        world.placed.setdefault(name, []).append(draw(some_pods(f"p{number}")))
    for name in draw(st.lists(st.sampled_from(("default", "other")), unique=True)):
        team = draw(st.sampled_from(({}, {"team": "a"}, {"team": "b"})))
        world.namespaces.append(make_namespace(name, labels=team))
    return world


plainly = settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@plainly
@given(world=worlds(), pod=some_pods("incoming"))
def test_filter_agrees_with_the_plain_rule(world: World, pod: Pod) -> None:
    plain = PlainAffinity(pod, world)
    asked = ask(pod, world.cluster())
    assert (asked.pre_filter in (SKIP, SKIP_FOR_SIGNATURE)) is plain.skips
    expected = {node.name: verdict for node in world.nodes if (verdict := plain.verdict(node)) is not None}
    assert asked.rejected() == expected


@plainly
@given(world=worlds(), pod=some_pods("incoming"), weight=st.sampled_from((0, 1, 50)), data=st.data())
def test_scores_agree_with_the_plain_rule(world: World, pod: Pod, weight: int, data: st.DataObject) -> None:
    feasible = data.draw(st.lists(st.sampled_from(world.nodes), min_size=1, unique_by=lambda node: node.name))
    expected = PlainAffinity(pod, world).scores(feasible, weight)
    cluster = world.cluster()
    asked = ask(pod, cluster, hard_pod_affinity_weight=weight)
    rows = np.array([cluster.nodes.row_of[node.name] for node in feasible], dtype=np.intp)
    asked.nodes = NodeColumns(cluster, rows)
    skipped = asked.plugin.pre_score(asked.state, pod, asked.nodes) in (SKIP, SKIP_FOR_SIGNATURE)
    assert (None if skipped else asked.normalized()) == expected


@plainly
@given(world=worlds(), pod=some_pods("incoming"), data=st.data())
def test_hypotheses_agree_with_the_plain_rule(world: World, pod: Pod, data: st.DataObject) -> None:
    """Pods gone from a node, and others that are only expected there."""
    if PlainAffinity(pod, world).skips:
        return  # What was left out stays out.
    cluster = world.cluster()
    gone: dict[str, list[Pod]] = {}
    added: dict[str, list[Pod]] = {}
    for node in world.nodes:
        here = world.placed.get(node.name, [])
        gone[node.name] = (
            data.draw(st.lists(st.sampled_from(here), unique_by=lambda pod: pod.uid)) if here else []
        )
        count = data.draw(st.integers(0, 2))
        added[node.name] = [data.draw(some_pods(f"new-{node.name}-{number}")) for number in range(count)]
        for newcomer in added[node.name]:
            cluster.nominate(newcomer, node.name)
    statuses = ask(pod, cluster).statuses(suppose(cluster, gone, added))
    for node, status in zip(world.nodes, statuses, strict=True):
        plain = PlainAffinity(pod, world)
        for other in gone[node.name]:
            plain.change(other, node, -1)
        for other in added[node.name]:
            plain.change(other, node, 1)
        assert (None if status is None else (status.code, status.reasons)) == plain.verdict(node), node.name


def test_the_cost_of_terms_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Required terms with a topology key each: all keys ask for the same pods, by one query of all terms."""
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
