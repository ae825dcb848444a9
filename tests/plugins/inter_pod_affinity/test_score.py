"""Score of InterPodAffinity: how preferences rank nodes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bayplan.api.pod import Affinity, PodAffinityTerm
from bayplan.plugin import SKIP, SKIP_FOR_SIGNATURE, Pod
from bayplan.testing.builders import (
    make_node,
    make_pod,
    make_pod_affinity,
    make_pod_term,
)

from ..evaluating import make_cluster
from .clusters import DB, HOST, WEB, ZONE, evaluate, zones


def prefers(weight: int, term: PodAffinityTerm) -> Affinity:
    return make_pod_affinity(preferred=[(weight, term)])


def avoids(weight: int, term: PodAffinityTerm) -> Affinity:
    return make_pod_affinity(anti_preferred=[(weight, term)])


@pytest.mark.parametrize(
    ("pod", "assigned", "raw", "normal"),
    [
        pytest.param(
            make_pod("incoming", affinity=prefers(5, make_pod_term(ZONE, WEB))),
            {"a1": [make_pod("w", labels=WEB), make_pod("v", labels=WEB)]},
            [10, 10, 0, 0, 0],
            [100, 100, 0, 0, 0],
            id="each pod that it prefers counts",
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
def test_scores(pod: Pod, assigned: Mapping[str, list[Pod]], raw: list[int], normal: list[int]) -> None:
    evaluation = evaluate(pod, zones(assigned))
    assert (evaluation.scores(), evaluation.normalized()) == (raw, normal)


def test_scores_that_are_all_equal_come_to_nothing() -> None:
    assigned = {name: [make_pod(name, labels=WEB)] for name in ("a1", "b1")}
    cluster = make_cluster([make_node(name, labels={HOST: name}) for name in assigned], assigned)
    pod = make_pod("incoming", affinity=prefers(9, make_pod_term(HOST, WEB)))
    assert evaluate(pod, cluster).normalized() == [0, 0]


@pytest.mark.parametrize(
    ("pod", "assigned", "args"),
    [
        pytest.param(make_pod("incoming", labels=WEB), {}, {}, id="no pods"),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("w", labels=WEB)]},
            {},
            id="no pod with preferred terms",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"lost": [make_pod("w", affinity=prefers(7, make_pod_term(ZONE, WEB)))]},
            {},
            id="preferred terms of a pod without a node",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("w", affinity=prefers(7, make_pod_term(ZONE, WEB)))]},
            {"ignore_preferred_terms_of_existing_pods": True},
            id="preferred terms of others that are to be ignored",
        ),
        pytest.param(
            make_pod("incoming", labels=WEB),
            {"a1": [make_pod("w", affinity=make_pod_affinity(required=[make_pod_term(ZONE, WEB)]))]},
            {"hard_pod_affinity_weight": 0},
            id="needs of others that are worth nothing",
        ),
    ],
)
def test_nothing_to_score(pod: Pod, assigned: Mapping[str, list[Pod]], args: dict[str, int | bool]) -> None:
    assert evaluate(pod, zones(assigned), **args).pre_score in (SKIP, SKIP_FOR_SIGNATURE)


def test_preferred_terms_of_others_count_where_the_pod_has_some_of_its_own() -> None:
    """They are ignored only for pods without preferences."""
    pod = make_pod("incoming", labels=WEB, affinity=prefers(1, make_pod_term(ZONE, DB)))
    assigned = {"a1": [make_pod("w", affinity=prefers(7, make_pod_term(ZONE, WEB)))]}
    evaluation = evaluate(pod, zones(assigned), ignore_preferred_terms_of_existing_pods=True)
    assert evaluation.scores() == [7, 7, 0, 0, 0]


def test_what_a_need_of_others_is_worth() -> None:
    assigned = {"a1": [make_pod("w", affinity=make_pod_affinity(required=[make_pod_term(HOST, WEB)]))]}
    assert (
        evaluate(make_pod("incoming", labels=WEB), zones(assigned), hard_pod_affinity_weight=30).scores()[0]
        == 30
    )
