"""Affinity terms that assigned pods carry: found by the labels of a new pod, never by a search of pods."""

from __future__ import annotations

import pytest

from bayplan.api.pod import Affinity, PodAffinityTerm
from bayplan.plugin import Cluster, Pod
from bayplan.state.terms import AffinityTerm, TermKind, carried_terms, parse_term
from bayplan.testing.builders import (
    make_expression,
    make_namespace,
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_selector,
)

WEB = {"app": "web"}
BAD = make_selector({}, make_expression("app", "In"))


def repels(*terms: PodAffinityTerm) -> Affinity:
    return make_pod_affinity(anti_required=terms)


class TestParsing:
    @pytest.mark.parametrize(
        ("term", "namespaces", "selects_namespaces"),
        [
            pytest.param(make_pod_term("zone", WEB), {"own"}, False, id="nothing set: the owner's"),
            pytest.param(make_pod_term("zone", WEB, namespaces=["a", "b"]), {"a", "b"}, False, id="listed"),
            pytest.param(
                make_pod_term("zone", WEB, namespace_selector=make_selector({"team": "a"})),
                set(),
                True,
                id="selected",
            ),
            pytest.param(
                make_pod_term("zone", WEB, namespaces=["a"], namespace_selector=make_selector({"team": "a"})),
                {"a"},
                True,
                id="both",
            ),
        ],
    )
    def test_namespaces(self, term: PodAffinityTerm, namespaces: set[str], selects_namespaces: bool) -> None:
        parsed = parse_term(term, "own")
        assert (set(parsed.namespaces), not parsed.namespace_selector.is_nothing) == (
            namespaces,
            selects_namespaces,
        )

    def test_matching(self) -> None:
        parsed: AffinityTerm = parse_term(
            make_pod_term("zone", WEB, namespaces=["a"], namespace_selector=make_selector({"team": "a"})),
            "own",
        )
        assert parsed.matches("a", WEB, {})
        assert parsed.matches("b", WEB, {"team": "a"})
        assert not parsed.matches("b", WEB, {})
        assert not parsed.matches("a", {}, {})

    def test_a_list_with_a_malformed_term_counts_as_empty(self) -> None:
        """The other lists of the pod hold."""
        affinity = make_pod_affinity(
            anti_required=[make_pod_term("zone", WEB), make_pod_term("zone", BAD)],
            preferred=[(3, make_pod_term("zone", WEB))],
        )
        carried = carried_terms(make_pod(affinity=affinity))
        assert [(term.kind, term.weight) for term in carried] == [(TermKind.PREFERRED_AFFINITY, 3)]

    def test_all_four_kinds(self) -> None:
        term = make_pod_term("zone", WEB)
        affinity = make_pod_affinity(
            required=[term], anti_required=[term], preferred=[(1, term)], anti_preferred=[(2, term)]
        )
        assert [(one.kind, one.weight) for one in carried_terms(make_pod(affinity=affinity))] == [
            (TermKind.REQUIRED_AFFINITY, 0),
            (TermKind.REQUIRED_ANTI_AFFINITY, 0),
            (TermKind.PREFERRED_AFFINITY, 1),
            (TermKind.PREFERRED_ANTI_AFFINITY, 2),
        ]


def cluster_of(*assigned: tuple[Pod, str]) -> Cluster:
    cluster = Cluster()
    for number in range(3):
        cluster.set_node(make_node(f"n{number}"))
    for pod, node in assigned:
        cluster.add_pod(pod, node)
    return cluster


def matching(cluster: Cluster, pod: Pod) -> list[tuple[str, list[int]]]:
    """Keys and carriers by row of the terms that match a pod."""
    label_set = cluster.label_sets.intern(pod.namespace, pod.labels)
    found = cluster.terms.matching(label_set, cluster.namespace_labels(pod.namespace))
    return [
        (carriers.carried.term.topology_key, carriers.column.read.tolist())
        for kind in TermKind
        for carriers in found[kind]
    ]


def test_equal_terms_of_many_pods_are_one() -> None:
    affinity = repels(make_pod_term("zone", WEB))
    cluster = cluster_of(
        (make_pod("a", affinity=affinity), "n0"),
        (make_pod("b", affinity=affinity, cpu=1), "n0"),
        (make_pod("c", affinity=affinity, labels={"x": "y"}), "n2"),
    )
    assert len(cluster.terms) == 1
    assert matching(cluster, make_pod(labels=WEB)) == [("zone", [2, 0, 1])]


def test_a_term_that_a_pod_has_twice_counts_twice() -> None:
    affinity = repels(make_pod_term("zone", WEB), make_pod_term("zone", WEB))
    cluster = cluster_of((make_pod("a", affinity=affinity), "n1"))
    assert matching(cluster, make_pod(labels=WEB)) == [("zone", [0, 2, 0])]
    cluster.remove_pod(make_pod("a").uid)
    assert len(cluster.terms) == 0


def test_preferences_of_different_weight_are_different_terms() -> None:
    one, other = (make_pod_affinity(preferred=[(weight, make_pod_term("zone", WEB))]) for weight in (1, 2))
    cluster = cluster_of((make_pod("a", affinity=one), "n0"), (make_pod("b", affinity=other), "n0"))
    assert len(cluster.terms) == 2


def test_a_term_vanishes_with_its_last_carrier_and_can_come_back() -> None:
    affinity = repels(make_pod_term("zone", WEB))
    cluster = cluster_of((make_pod("a", affinity=affinity), "n0"), (make_pod("b", affinity=affinity), "n1"))
    newcomer = make_pod(labels=WEB)
    cluster.remove_pod(make_pod("a").uid)
    assert matching(cluster, newcomer) == [("zone", [0, 1, 0])]
    version = cluster.changes.terms.changed_at
    cluster.remove_pod(make_pod("b").uid)
    assert (matching(cluster, newcomer), len(cluster.terms)) == ([], 0)
    assert cluster.changes.terms.changed_at > version
    cluster.add_pod(make_pod("c", affinity=affinity), "n2")
    assert matching(cluster, newcomer) == [("zone", [0, 0, 1])]


def test_a_term_that_appears_is_seen_by_pods_that_were_compared_before() -> None:
    cluster = cluster_of((make_pod("a", affinity=repels(make_pod_term("zone", {"app": "db"}))), "n0"))
    newcomer = make_pod(labels=WEB)
    assert matching(cluster, newcomer) == []
    cluster.add_pod(make_pod("b", affinity=repels(make_pod_term("rack", WEB))), "n0")
    assert matching(cluster, newcomer) == [("rack", [1, 0, 0])]


def test_a_pod_without_terms_changes_nothing() -> None:
    cluster = cluster_of((make_pod("a"), "n0"))
    assert (len(cluster.terms), cluster.changes.terms.changed_at) == (0, 0)


def test_namespaces_and_their_labels() -> None:
    """A term can match all pods of namespaces with a label; the label may be added and removed."""
    selector = make_selector({"team": "a"})
    affinity = repels(make_pod_term("zone", WEB, namespace_selector=selector))
    cluster = cluster_of((make_pod("a", affinity=affinity, namespace="own"), "n0"))
    newcomer = make_pod(labels=WEB, namespace="red")
    assert matching(cluster, newcomer) == []
    cluster.objects.put(make_namespace("red", labels={"team": "a"}))
    assert matching(cluster, newcomer) == [("zone", [1, 0, 0])]
    cluster.objects.put(make_namespace("red", labels={"team": "b"}))
    assert matching(cluster, newcomer) == []
    cluster.objects.put(make_namespace("red", labels={"team": "a"}))
    cluster.objects.remove(make_namespace("red"))
    assert matching(cluster, newcomer) == []


@pytest.mark.parametrize(
    "selector",
    [
        make_selector(),
        make_selector({}, make_expression("app", "Exists")),
        make_selector({}, make_expression("app", "In", "web", "db")),
        make_selector({}, make_expression("tier", "DoesNotExist")),
    ],
)
def test_terms_are_found_by_any_kind_of_selector(selector: object) -> None:
    affinity = repels(make_pod_term("zone", selector))  # type: ignore[arg-type]  # they are selectors
    cluster = cluster_of((make_pod("a", affinity=affinity), "n0"))
    assert len(matching(cluster, make_pod(labels=WEB))) == 1


def test_how_often_each_set_of_terms_holds_one() -> None:
    term = make_pod_term("zone", WEB)
    cluster = cluster_of(
        (make_pod("a", affinity=repels(term)), "n0"), (make_pod("b", affinity=repels(term, term)), "n0")
    )
    (carried,) = set(carried_terms(make_pod(affinity=repels(term))))
    assert cluster.term_sets.multiplicity(carried).tolist() == [0, 1, 2]
