"""Filter of InterPodAffinity: which nodes required terms reject."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bayplan.api.meta import LabelSelector
from bayplan.api.pod import Affinity, PodAffinityTerm
from bayplan.plugin import SKIP, SKIP_FOR_SIGNATURE, Code, CycleState, NodeColumns, Pod, Status
from bayplan.plugins.inter_pod_affinity import (
    InterPodAffinity,
)
from bayplan.testing.builders import (
    make_expression,
    make_namespace,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_selector,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import Evaluation, points
from .clusters import (
    DB,
    HOST,
    KEPT_AWAY,
    NOW,
    REPELS_WEB,
    TOO_FAR,
    TOO_NEAR,
    WEB,
    ZONE,
    away,
    evaluate,
    near,
    zones,
)


def test_extension_points() -> None:
    assert points(InterPodAffinity) == {"PreFilter", "Filter", "PreScore", "Score", "NormalizeScore"}


@pytest.mark.parametrize(
    ("pod", "assigned", "rejected"),
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
            id="no pod there: no node fits",
        ),
        pytest.param(
            near(make_pod_term(ZONE, WEB), labels=WEB),
            {},
            {"lost"},
            id="the first of its kind fits on any node with the label",
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
            id="the second of its kind fits beside the first",
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
            id="no selector matches no pod",
        ),
    ],
)
def test_affinity(pod: Pod, assigned: Mapping[str, list[Pod]], rejected: set[str]) -> None:
    assert evaluate(pod, zones(assigned)).rejected() == dict.fromkeys(rejected, TOO_FAR)


@pytest.mark.parametrize(
    ("pod", "assigned", "rejected"),
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
            id="a pod without a node repels no pod",
        ),
        pytest.param(
            away(make_pod_term(HOST, WEB), make_pod_term(HOST, DB)),
            {"a1": [make_pod("w", labels=WEB)], "b1": [make_pod("d", labels=DB)]},
            {"a1", "b1"},
            id="each term counts alone",
        ),
    ],
)
def test_anti_affinity(pod: Pod, assigned: Mapping[str, list[Pod]], rejected: set[str]) -> None:
    assert evaluate(pod, zones(assigned)).rejected() == dict.fromkeys(rejected, TOO_NEAR)


@pytest.mark.parametrize(
    ("pod", "assigned", "rejected"),
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
    pod: Pod, assigned: Mapping[str, list[Pod]], rejected: set[str]
) -> None:
    evaluation = evaluate(pod, zones(assigned))
    assert evaluation.rejected() == dict.fromkeys(rejected, KEPT_AWAY)
    assert (evaluation.pre_filter in (SKIP, SKIP_FOR_SIGNATURE)) is not bool(rejected)


def test_a_node_has_the_first_of_three_reasons() -> None:
    """Affinity first, then the pod's own anti-affinity, then that of others."""
    pod = make_pod(
        "incoming",
        labels=WEB,
        affinity=make_pod_affinity(
            required=[make_pod_term(ZONE, DB)], anti_required=[make_pod_term(HOST, DB)]
        ),
    )
    cluster = zones({"a1": [make_pod("d", labels=DB)], "a2": [make_pod("r", affinity=REPELS_WEB)]})
    assert evaluate(pod, cluster).rejected() == {
        "a1": TOO_NEAR,
        "a2": KEPT_AWAY,
        "b1": TOO_FAR,
        "b2": TOO_FAR,
        "lost": TOO_FAR,
    }


@pytest.mark.parametrize(
    ("term", "namespace_of_pod", "matches"),
    [
        pytest.param(make_pod_term(ZONE, WEB), "default", True, id="nothing set: the pod's own namespace"),
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
            False,
            id="one that no labels satisfy selects only namespaces without them",
        ),
    ],
)
def test_namespaces_of_the_pods_own_terms(
    term: PodAffinityTerm, namespace_of_pod: str, matches: bool
) -> None:
    cluster = zones({"a1": [make_pod("w", labels=WEB, namespace=namespace_of_pod)]})
    for item in (make_namespace("red", labels={"team": "a"}), make_namespace("blue", labels={"team": "b"})):
        cluster.objects.put(item)
    assert bool(evaluate(away(term), cluster).rejected()) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(make_selector({"team": "a"}), True, id="its labels match"),
        pytest.param(make_selector({"team": "b"}), False, id="they do not"),
        pytest.param(
            make_selector({}, make_expression("team", "DoesNotExist")), False, id="they are evaluated, here"
        ),
    ],
)
def test_namespaces_of_terms_that_are_there(selector: LabelSelector, matches: bool) -> None:
    """Terms of running pods are matched with the labels of the incoming pod's namespace."""
    repelling = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB, namespace_selector=selector)])
    cluster = zones({"a1": [make_pod("r", namespace="other", affinity=repelling)]})
    cluster.objects.put(make_namespace("default", labels={"team": "a"}))
    assert bool(evaluate(make_pod("incoming", labels=WEB), cluster).rejected()) is matches


def test_a_namespace_that_changes_its_labels_is_seen() -> None:
    """Both by the pod's own terms and by those of pods that run."""
    cluster = zones({"a1": [make_pod("w", labels=WEB, namespace="red")]})
    evaluation = Evaluation(
        make_plugin(InterPodAffinity),
        away(make_pod_term(ZONE, WEB, namespace_selector=make_selector({"team": "a"}))),
        cluster,
    )
    assert not evaluation.rejected()
    for labels, rejected in (({"team": "a"}, {"a1", "a2"}), ({"team": "b"}, set())):
        cluster.objects.put(make_namespace("red", labels=labels))
        evaluation.pre_filter = evaluation.plugin.pre_filter(
            evaluation.state, evaluation.pod, evaluation.nodes
        )
        assert evaluation.rejected().keys() == rejected


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
def test_a_malformed_term_is_reported(affinity: Affinity, message: str) -> None:
    pod = make_pod("incoming", affinity=affinity)
    answer = make_plugin(InterPodAffinity).pre_filter(CycleState(), pod, NodeColumns(zones()))
    assert answer == Status(Code.UNRESOLVABLE, (f"parsing pod: {message}",))


def test_a_malformed_term_of_a_pod_that_runs_is_ignored() -> None:
    broken = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB), make_pod_term(ZONE, BAD)])
    cluster = zones({"a1": [make_pod("r", affinity=broken)]})
    assert evaluate(make_pod("incoming", labels=WEB), cluster).pre_filter in (SKIP, SKIP_FOR_SIGNATURE)
