"""Node selectors: alternatives of labels and names, parsed lazily or strictly."""

from __future__ import annotations

import pytest

from bayplan.api.meta import NodeSelectorTerm
from bayplan.api.node_selectors import (
    CompiledTerm,
    compile_preferred,
    compile_terms,
    compile_terms_strict,
    required_node_affinity,
    term_matches,
    terms_match,
)
from bayplan.api.pod import Pod, PreferredSchedulingTerm
from bayplan.errors import SelectorError
from bayplan.testing.builders import make_expression, make_node_affinity, make_node_term, make_pod

LINUX = make_node_term(make_expression("os", "In", "linux"))
BROKEN = make_node_term(make_expression("cores", "Gt", "many"))
EMPTY = make_node_term()
SUPPORTED = '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'


def by_name(operator: str, *values: str, key: str = "metadata.name") -> NodeSelectorTerm:
    return make_node_term(fields=[make_expression(key, operator, *values)])


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        pytest.param(LINUX, True, id="a label"),
        pytest.param(make_node_term(make_expression("cores", "Gt", "7")), True, id="more than"),
        pytest.param(make_node_term(make_expression("cores", "Gt", "8")), False, id="not more than as much"),
        pytest.param(make_node_term(make_expression("cores", "Lt", "9")), True, id="less than"),
        pytest.param(make_node_term(make_expression("os", "Lt", "9")), False, id="a label that is no number"),
        pytest.param(make_node_term(make_expression("ram", "Lt", "9")), False, id="no label to compare"),
        pytest.param(by_name("In", "n1"), True, id="by name"),
        pytest.param(by_name("In", "n2"), False, id="by another name"),
        pytest.param(by_name("NotIn", "n2"), True, id="by not being another"),
        pytest.param(by_name("NotIn", "n1"), False, id="by not being this one"),
        pytest.param(by_name("In", "", key="metadata.uid"), True, id="an unknown field reads as empty"),
        pytest.param(by_name("NotIn", "", key="metadata.uid"), False, id="so it is not different from empty"),
        pytest.param(
            make_node_term(make_expression("os", "Exists"), make_expression("cores", "In", "4")),
            False,
            id="all expressions must hold",
        ),
        pytest.param(
            make_node_term(
                make_expression("os", "Exists"), fields=[make_expression("metadata.name", "In", "n2")]
            ),
            False,
            id="fields must hold too",
        ),
        pytest.param(BROKEN, False, id="a term that does not parse"),
    ],
)
def test_one_term(term: NodeSelectorTerm, matches: bool) -> None:
    (compiled,) = compile_terms([term])
    assert term_matches(compiled, {"os": "linux", "cores": "8"}, "n1") is matches


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param([], False, id="of no alternatives none holds"),
        pytest.param([EMPTY], False, id="an empty term selects nothing"),
        pytest.param([by_name("In", "n2"), LINUX], True, id="one alternative is enough"),
        pytest.param([BROKEN, LINUX], True, id="an invalid term does not affect the others"),
        pytest.param([BROKEN, EMPTY], False, id="invalid and empty terms match nothing"),
    ],
)
def test_alternatives(terms: list[NodeSelectorTerm], matches: bool) -> None:
    assert terms_match(compile_terms(terms), {"os": "linux"}, "n1") is matches


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_fields_never_exclude_a_nameless_node(operator: str) -> None:
    """Volumes are matched against labels alone, so their requirements on names are ignored."""
    (compiled,) = compile_terms([by_name(operator, "n1")])
    assert term_matches(compiled, {}, "")


def test_empty_terms_are_dropped_and_invalid_ones_kept() -> None:
    first, second = compile_terms([EMPTY, BROKEN, LINUX])
    assert first.error == (
        'nodeSelectorTerms[1].matchExpressions[0].values[0]: Invalid value: "many": '
        "for 'Gt', 'Lt' operators, the value must be an integer"
    )
    assert second.error is None
    assert [str(requirement) for requirement in second.expressions] == ["os=linux"]


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        pytest.param(
            make_node_term(make_expression("a", "Like", "x")),
            f'matchExpressions[0].operator: Unsupported value: "Like": supported values: {SUPPORTED}',
            id="an operator that does not exist",
        ),
        pytest.param(
            make_node_term(make_expression("a", "Gt", "1", "2")),
            'matchExpressions[0].values: Invalid value: ["1","2"]: '
            "for 'Gt', 'Lt' operators, exactly one value is required",
            id="a comparison with two numbers",
        ),
        pytest.param(
            by_name("Exists"),
            'matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
            id="fields have two operators",
        ),
        pytest.param(
            by_name("In", "n1", "n2"),
            'matchFields[0].values: Invalid value: ["n1","n2"]: must have one element',
            id="fields take one value",
        ),
        pytest.param(
            by_name("NotIn"),
            "matchFields[0].values: Invalid value: null: must have one element",
            id="and not none",
        ),
    ],
)
def test_strict_mode_rejects(term: NodeSelectorTerm, problem: str) -> None:
    """Strictly parsed terms name the problem, and its position."""
    with pytest.raises(SelectorError) as caught:
        compile_terms_strict([LINUX, term], "spec")
    assert caught.value.problem == f"spec.nodeSelectorTerms[1].{problem}"


def test_strict_mode_reports_all_problems() -> None:
    with pytest.raises(SelectorError) as caught:
        compile_terms_strict([by_name("Exists"), by_name("Gt")])
    problem = caught.value.problem
    assert problem.startswith("[nodeSelectorTerms[0].matchFields[0].operator")
    assert ", nodeSelectorTerms[1].matchFields[0].operator" in problem


def test_strict_mode_gives_what_lazy_mode_gives() -> None:
    assert compile_terms_strict([EMPTY, LINUX]) == compile_terms([LINUX])


def preferred(weight: int, term: NodeSelectorTerm) -> PreferredSchedulingTerm:
    return PreferredSchedulingTerm(weight=weight, preference=term)


def test_preferences_without_weight_or_content_are_dropped_unread() -> None:
    compiled = compile_preferred([preferred(0, BROKEN), preferred(7, EMPTY), preferred(3, LINUX)])
    assert [(term.weight, [str(r) for r in term.term.expressions]) for term in compiled] == [
        (3, ["os=linux"])
    ]


def test_one_invalid_preference_makes_the_list_invalid() -> None:
    with pytest.raises(SelectorError) as caught:
        compile_preferred([preferred(3, LINUX), preferred(1, BROKEN)])
    assert caught.value.problem.startswith("[1].matchExpressions[0].values[0]: Invalid value")


@pytest.mark.parametrize(
    ("pod", "matches"),
    [
        pytest.param(make_pod(), True, id="a pod without demands"),
        pytest.param(make_pod(node_selector={}), True, id="an empty node selector"),
        pytest.param(make_pod(node_selector={"os": "linux"}), True, id="a node selector that matches"),
        pytest.param(make_pod(node_selector={"os": "bsd"}), False, id="a node selector that does not"),
        pytest.param(make_pod(affinity=make_node_affinity(LINUX)), True, id="an affinity that matches"),
        pytest.param(make_pod(affinity=make_node_affinity(EMPTY)), False, id="an affinity to nothing"),
        pytest.param(
            make_pod(node_selector={"os": "bsd"}, affinity=make_node_affinity(LINUX)),
            False,
            id="both must match",
        ),
    ],
)
def test_required_node_affinity(pod: Pod, matches: bool) -> None:
    assert required_node_affinity(pod).matches({"os": "linux"}, "n1") is matches


@pytest.mark.parametrize(
    ("pod", "is_empty"),
    [
        pytest.param(make_pod(), True, id="no demands"),
        pytest.param(make_pod(node_selector={}), True, id="an empty node selector demands nothing"),
        pytest.param(
            make_pod(affinity=make_node_affinity(preferred=[(1, LINUX)])), True, id="only a preference"
        ),
        pytest.param(make_pod(node_selector={"os": "linux"}), False, id="a node selector"),
        pytest.param(make_pod(affinity=make_node_affinity(EMPTY)), False, id="an affinity, even to nothing"),
    ],
)
def test_emptiness(pod: Pod, is_empty: bool) -> None:
    """Empty means that every node will do."""
    assert required_node_affinity(pod).is_empty is is_empty


def test_compiled_terms_are_values() -> None:
    """Equal terms share what is kept for them."""
    assert len({*compile_terms([LINUX]), *compile_terms([LINUX]), CompiledTerm()}) == 2
