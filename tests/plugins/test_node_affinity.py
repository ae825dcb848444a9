"""NodeAffinity: nodes are chosen by their labels and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.plugin import SKIP, Action, Code, NodeColumns, NodeNames, Resource, unresolvable
from bayplan.plugin.args import NodeAffinityArgs
from bayplan.plugin.objects import (
    Affinity,
    NodeSelectorTerm,
    compile_preferred,
    required_node_affinity,
    term_matches,
)
from bayplan.plugins.node_affinity import REASON_ADDED, REASON_CONFLICT, REASON_POD, NodeAffinity
from bayplan.testing.builders import make_expression, make_node, make_node_affinity, make_node_term, make_pod
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from .evaluating import UNRESOLVABLE, Evaluation, few_rows, make_cluster, points, registrations, requeues

NODE_CHANGE = (Resource.NODE, Action.UPDATE_NODE_LABEL)
POD_REJECTED = (UNRESOLVABLE, (REASON_POD,))
ADDED_REJECTED = (UNRESOLVABLE, (REASON_ADDED,))

ssd = make_node_term(make_expression("disk", "In", "ssd"))
zone_a = make_node_term(make_expression("zone", "In", "a"))
broken = make_node_term(make_expression("disk", "Like", "s"))
empty = make_node_term()


def named(*names: str, operator: str = "In") -> NodeSelectorTerm:
    """A term that requires nodes by name, one requirement a name."""
    return make_node_term(fields=[make_expression("metadata.name", operator, name) for name in names])


def adding(*required: NodeSelectorTerm, preferred: Any = ()) -> NodeAffinity:
    """The plugin with an affinity that the profile adds."""
    affinity = make_node_affinity(*required, preferred=preferred).node_affinity
    assert affinity is not None
    return make_plugin(NodeAffinity, NodeAffinityArgs.adding(affinity))


def test_its_points_are_upstreams() -> None:
    assert points(NodeAffinity) == {"PreFilter", "Filter", "PreScore", "Score", "NormalizeScore"}


@pytest.mark.parametrize(
    ("affinity", "answer"),
    [
        pytest.param(None, SKIP, id="nothing is required"),
        pytest.param(make_node_affinity(preferred=[(1, ssd)]), SKIP, id="only preferences"),
        pytest.param(make_node_affinity(ssd), None, id="by label"),
        pytest.param(make_node_affinity(named("a")), NodeNames(frozenset({"a"})), id="by name"),
        pytest.param(
            make_node_affinity(named("a"), named("b")), NodeNames(frozenset({"a", "b"})), id="either name"
        ),
        pytest.param(make_node_affinity(named("a"), ssd), None, id="by name or by label"),
        pytest.param(make_node_affinity(named("a"), empty), None, id="an empty term has no name either"),
        pytest.param(make_node_affinity(named("a", operator="NotIn")), None, id="all but one name"),
        pytest.param(
            make_node_affinity(named("a", "b")), unresolvable(REASON_CONFLICT), id="two names at once"
        ),
        pytest.param(
            make_node_affinity(named("a", "b"), named("c")),
            NodeNames(frozenset({"c"})),
            id="two names at once, or another",
        ),
        pytest.param(
            make_node_affinity(make_node_term(fields=[make_expression("metadata.name", "In", "a", "b")])),
            NodeNames(frozenset({"a", "b"})),
            id="a term that does not parse still narrows the search",
        ),
    ],
)
def test_pre_filter(affinity: Affinity | None, answer: object) -> None:
    evaluation = Evaluation(
        make_plugin(NodeAffinity), make_pod(affinity=affinity), make_cluster([make_node("a")])
    )
    assert evaluation.pre_filter == answer


@pytest.mark.parametrize(
    ("node_selector", "plugin", "answer"),
    [
        pytest.param({"disk": "ssd"}, make_plugin(NodeAffinity), None, id="a node selector"),
        pytest.param({}, make_plugin(NodeAffinity), None, id="an empty node selector is one, too"),
        pytest.param(None, adding(ssd), None, id="the profile requires something"),
        pytest.param(None, adding(preferred=[(1, ssd)]), SKIP, id="the profile only prefers something"),
        pytest.param(None, adding(named("a")), None, id="names that the profile requires do not narrow"),
    ],
)
def test_pre_filter_without_affinity(
    node_selector: dict[str, str] | None, plugin: NodeAffinity, answer: object
) -> None:
    evaluation = Evaluation(plugin, make_pod(node_selector=node_selector), make_cluster([make_node("a")]))
    assert evaluation.pre_filter == answer


@pytest.mark.parametrize(
    ("node_selector", "required", "fits"),
    [
        pytest.param({"disk": "ssd"}, [], True, id="the selector matches"),
        pytest.param({"disk": "hdd"}, [], False, id="another value"),
        pytest.param({"disk": "ssd", "gpu": "1"}, [], False, id="one of two labels is missing"),
        pytest.param({}, [], True, id="an empty selector matches all"),
        pytest.param(None, [ssd], True, id="the affinity matches"),
        pytest.param({"disk": "hdd"}, [ssd], False, id="only the affinity matches"),
        pytest.param({"disk": "ssd"}, [zone_a], False, id="only the selector matches"),
        pytest.param(None, [zone_a, ssd], True, id="one of two terms matches"),
        pytest.param(None, [broken], False, id="a term that does not parse matches nothing"),
        pytest.param(None, [broken, ssd], True, id="and does not spoil the others"),
        pytest.param(None, [empty], False, id="an empty term matches nothing"),
        pytest.param(None, [named("n")], True, id="by name"),
        pytest.param(None, [named("n", operator="NotIn")], False, id="all but this name"),
    ],
)
def test_filter(node_selector: dict[str, str] | None, required: list[NodeSelectorTerm], fits: bool) -> None:
    affinity = make_node_affinity(*required) if required else None
    pod = make_pod(node_selector=node_selector, affinity=affinity)
    cluster = make_cluster([make_node("n", labels={"disk": "ssd", "zone": "b"})])
    assert Evaluation(make_plugin(NodeAffinity), pod, cluster).rejected() == (
        {} if fits else {"n": POD_REJECTED}
    )


def test_what_the_profile_adds_is_evaluated_first() -> None:
    """A node that both reject carries the profile's reason alone."""
    cluster = make_cluster(
        [
            make_node("both", labels={"disk": "ssd", "zone": "a"}),
            make_node("pod's", labels={"disk": "ssd"}),
            make_node("profile's", labels={"zone": "a"}),
            make_node("neither"),
        ]
    )
    evaluation = Evaluation(adding(zone_a), make_pod(node_selector={"disk": "ssd"}), cluster)
    assert evaluation.rejected() == {
        "pod's": ADDED_REJECTED,
        "profile's": POD_REJECTED,
        "neither": ADDED_REJECTED,
    }


@pytest.mark.parametrize(
    ("plugin", "preferred", "code"),
    [
        pytest.param(make_plugin(NodeAffinity), [], Code.SKIP, id="no preferences"),
        pytest.param(make_plugin(NodeAffinity), [(0, ssd)], None, id="a preference without weight is one"),
        pytest.param(adding(ssd), [], Code.SKIP, id="the profile only requires something"),
        pytest.param(adding(preferred=[(1, ssd)]), [], None, id="the profile prefers something"),
        pytest.param(
            make_plugin(NodeAffinity), [(1, ssd), (1, broken)], Code.ERROR, id="a preference does not parse"
        ),
        pytest.param(
            make_plugin(NodeAffinity), [(1, ssd), (0, broken)], None, id="it does not, but weighs nothing"
        ),
    ],
)
def test_pre_score(
    plugin: NodeAffinity, preferred: list[tuple[int, NodeSelectorTerm]], code: Code | None
) -> None:
    pod = make_pod(affinity=make_node_affinity(preferred=preferred))
    answer = Evaluation(plugin, pod, make_cluster([make_node("a")])).pre_score
    assert (None if answer is None else answer.code) == code


def test_an_error_in_a_preference_names_its_position() -> None:
    pod = make_pod(affinity=make_node_affinity(preferred=[(1, ssd), (1, broken)]))
    assert Evaluation(make_plugin(NodeAffinity), pod, make_cluster([make_node("a")])).pre_score.message == (
        '[1].matchExpressions[0].operator: Unsupported value: "Like": supported values: '
        '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    )


def test_score_adds_the_weights_of_pod_and_profile() -> None:
    cluster = make_cluster(
        [
            make_node("a", labels={"disk": "ssd", "zone": "a"}),
            make_node("b", labels={"zone": "a"}),
            make_node("c"),
        ]
    )
    pod = make_pod(affinity=make_node_affinity(preferred=[(5, ssd), (2, zone_a)]))
    evaluation = Evaluation(adding(preferred=[(3, zone_a)]), pod, cluster)
    assert (evaluation.scores(), evaluation.normalized()) == ([10, 5, 0], [100, 50, 0])


expressions = st.one_of(
    st.builds(
        lambda key, operator, values: make_expression(key, operator, *values),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["1", "2", "x"]), max_size=2),
    ),
    st.builds(make_expression, st.sampled_from(["a", "b"]), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        make_expression,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["1", "x"]),
    ),
)
fields = st.builds(
    make_expression,
    st.sampled_from(["metadata.name", "metadata.uid"]),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", ""]),
)
node_terms = st.builds(
    lambda labels, names: make_node_term(*labels, fields=names),
    st.lists(expressions, max_size=2),
    st.lists(fields, max_size=1),
)
labels = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "x"]))
node_selectors = st.one_of(st.none(), labels)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(labels, min_size=1, max_size=4), node_selectors, st.lists(node_terms, max_size=3), st.data())
def test_columns_agree_with_a_plain_rule(
    on_nodes: list[dict[str, str]],
    node_selector: dict[str, str] | None,
    terms: list[NodeSelectorTerm],
    data: st.DataObject,
) -> None:
    cluster = make_cluster(make_node(f"n{i}", labels=own) for i, own in enumerate(on_nodes))
    pod = make_pod(node_selector=node_selector, affinity=make_node_affinity(*terms) if terms else None)
    evaluation = Evaluation(make_plugin(NodeAffinity), pod, cluster)
    required = required_node_affinity(pod)
    expected = [required.matches(own, f"n{i}") for i, own in enumerate(on_nodes)]
    assert [status is None for status in evaluation.statuses()] == expected

    rows = data.draw(few_rows(len(on_nodes)))
    few = evaluation.statuses(NodeColumns(cluster, np.array(rows)))
    assert [status is None for status in few] == [expected[row] for row in rows]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(labels, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 100), node_terms), min_size=1, max_size=3),
)
def test_scores_agree_with_a_plain_rule(
    on_nodes: list[dict[str, str]], preferred: list[tuple[int, NodeSelectorTerm]]
) -> None:
    cluster = make_cluster(make_node(f"n{i}", labels=own) for i, own in enumerate(on_nodes))
    pod = make_pod(affinity=make_node_affinity(preferred=preferred))
    evaluation = Evaluation(make_plugin(NodeAffinity), pod, cluster)
    if evaluation.pre_score is not None:
        assert evaluation.pre_score.code is Code.ERROR
        return
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    preferences = compile_preferred(pod.spec.affinity.node_affinity.preferred)
    assert evaluation.scores() == [
        sum(p.weight for p in preferences if term_matches(p.term, own, f"n{i}"))
        for i, own in enumerate(on_nodes)
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, {"disk": "ssd"}, True, id="a node was added that matches"),
        pytest.param(None, {"disk": "hdd"}, False, id="a node was added that does not"),
        pytest.param({"disk": "hdd"}, {"disk": "ssd"}, True, id="it matches now"),
        pytest.param({"disk": "ssd"}, {"disk": "ssd", "x": "y"}, False, id="it matched before"),
        pytest.param({"disk": "ssd"}, {}, False, id="it matches no more"),
    ],
)
def test_hint(old: dict[str, str] | None, new: dict[str, str], expected: bool) -> None:
    pod = make_pod(affinity=make_node_affinity(ssd))
    before = None if old is None else make_node("n", labels=old)
    event = (Resource.NODE, Action.ADD) if old is None else NODE_CHANGE
    assert requeues(make_plugin(NodeAffinity), event, pod, before, make_node("n", labels=new)) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {"disk": "ssd"}, False, id="the profile rejects the node"),
        pytest.param({}, {"disk": "ssd", "zone": "a"}, True, id="both accept it now"),
        pytest.param(
            {"disk": "ssd"},
            {"disk": "ssd", "zone": "a"},
            False,
            id="only the profile rejected it before, which is not evaluated",
        ),
    ],
)
def test_hint_with_added_affinity(old: dict[str, str], new: dict[str, str], expected: bool) -> None:
    pod = make_pod(affinity=make_node_affinity(ssd))
    nodes = make_node("n", labels=old), make_node("n", labels=new)
    assert requeues(adding(zone_a), NODE_CHANGE, pod, *nodes) is expected


@pytest.mark.parametrize(
    ("node_selector", "required", "expected"),
    [
        pytest.param(None, [broken], True, id="the only term does not parse"),
        pytest.param(None, [zone_a, broken], True, id="no term matches and one does not parse"),
        pytest.param({"gpu": "1"}, [broken], False, id="the node selector alone rejects it"),
    ],
)
def test_hint_where_a_term_does_not_parse(
    node_selector: dict[str, str] | None, required: list[NodeSelectorTerm], expected: bool
) -> None:
    pod = make_pod(node_selector=node_selector, affinity=make_node_affinity(*required))
    nodes = make_node("n", labels={"disk": "ssd"}), make_node("n", labels={"disk": "ssd", "x": "y"})
    assert requeues(make_plugin(NodeAffinity), NODE_CHANGE, pod, *nodes) is expected


def test_registrations() -> None:
    assert registrations(make_plugin(NodeAffinity)) == [
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
    ]
