"""Label selectors match as written, and selectors with the same meaning are equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.api.meta import LabelSelector, LabelSelectorRequirement
from bayplan.api.selectors import (
    EVERYTHING,
    NOTHING,
    Operator,
    Requirement,
    Selector,
    compile_selector,
    parse_int64,
    selector_from_map,
)
from bayplan.errors import SelectorError
from bayplan.testing.builders import make_expression, make_selector

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "1", "2", "3"])
LABELS = st.dictionaries(KEYS, VALUES)


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from([Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST]))
    takes_values = operator in (Operator.IN, Operator.NOT_IN)
    values = draw(st.frozensets(VALUES, min_size=1)) if takes_values else frozenset()
    return Requirement(draw(KEYS), operator, values)


def holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    """The specification, word by word."""
    present = requirement.key in labels
    match requirement.operator:
        case Operator.IN:
            return present and labels[requirement.key] in requirement.values
        case Operator.NOT_IN:
            return not (present and labels[requirement.key] in requirement.values)
        case Operator.EXISTS:
            return present
        case _:
            return not present


@pytest.mark.parametrize(
    ("expression", "labels", "matches"),
    [
        pytest.param(make_expression("a", "In", "x", "y"), {"a": "y"}, True, id="In: the value is listed"),
        pytest.param(make_expression("a", "In", "x"), {"a": "y"}, False, id="In: the value is not listed"),
        pytest.param(make_expression("a", "In", "x"), {}, False, id="In: the key is absent"),
        pytest.param(make_expression("a", "In", ""), {}, False, id="In: absent is not empty"),
        pytest.param(make_expression("a", "In", ""), {"a": ""}, True, id="In: the empty value is a value"),
        pytest.param(make_expression("a", "NotIn", "x"), {"a": "x"}, False, id="NotIn: the value is listed"),
        pytest.param(make_expression("a", "NotIn", "x"), {"a": "y"}, True, id="NotIn: it is not listed"),
        pytest.param(make_expression("a", "NotIn", "x"), {}, True, id="NotIn: the key is absent"),
        pytest.param(make_expression("a", "Exists"), {"a": ""}, True, id="Exists: the key is there"),
        pytest.param(make_expression("a", "Exists"), {"b": ""}, False, id="Exists: it is not"),
        pytest.param(make_expression("a", "DoesNotExist"), {"b": ""}, True, id="DoesNotExist: it is not"),
        pytest.param(make_expression("a", "DoesNotExist"), {"a": ""}, False, id="DoesNotExist: it is there"),
    ],
)
def test_operators(expression: LabelSelectorRequirement, labels: dict[str, str], matches: bool) -> None:
    assert compile_selector(make_selector(None, expression)).matches(labels) is matches


@pytest.mark.parametrize(
    ("number", "matches_gt_5", "matches_lt_5"),
    [
        pytest.param("6", True, False, id="above"),
        pytest.param("4", False, True, id="below"),
        pytest.param("5", False, False, id="equal is neither"),
        pytest.param("+6", True, False, id="a plus sign is allowed"),
        pytest.param("-9223372036854775808", False, True, id="the smallest number"),
        pytest.param("9223372036854775808", False, False, id="beyond 64 bits is no number"),
        pytest.param("9" * 5000, False, False, id="thousands of digits are no number"),
        pytest.param("6.0", False, False, id="a fraction is no number"),
        pytest.param(" 6", False, False, id="a blank is no number"),
        pytest.param("1_0", False, False, id="an underscore is no number"),
        pytest.param(None, False, False, id="an absent label is no number"),
    ],
)
def test_comparisons(number: str | None, matches_gt_5: bool, matches_lt_5: bool) -> None:
    """Gt and Lt compare 64-bit integers, strictly; what is none matches neither."""
    labels = {} if number is None else {"n": number}
    bound = frozenset({"5"})
    answers = (
        Requirement("n", Operator.GT, bound).matches(labels),
        Requirement("n", Operator.LT, bound).matches(labels),
    )
    assert answers == (matches_gt_5, matches_lt_5)


def test_a_comparison_without_a_number_matches_nothing() -> None:
    assert not Requirement("n", Operator.GT, frozenset({"x"})).matches({"n": "1"})
    assert not Requirement("n", Operator.GT, frozenset({"1", "2"})).matches({"n": "3"})


def test_an_absent_selector_matches_nothing_and_is_not_empty() -> None:
    selector = compile_selector(None)
    assert selector == NOTHING
    assert selector.is_nothing
    assert not selector.is_empty
    assert not selector.matches({})


def test_an_empty_selector_matches_everything() -> None:
    selector = compile_selector(LabelSelector())
    assert selector == EVERYTHING
    assert selector.is_empty
    assert not selector.is_nothing
    assert selector.matches({})
    assert selector.matches({"a": "x"})


def test_nothing_and_everything_differ() -> None:
    assert NOTHING != EVERYTHING
    assert len({NOTHING, EVERYTHING, Selector(nothing=True), Selector()}) == 2


def test_labels_and_expressions_must_all_hold() -> None:
    selector = compile_selector(make_selector({"a": "x"}, make_expression("b", "Exists")))
    assert selector.matches({"a": "x", "b": ""})
    assert not selector.matches({"a": "x"})
    assert not selector.matches({"b": ""})


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        pytest.param(
            make_selector(None, make_expression("a", "Gt", "1")),
            '"Gt" is not a valid label selector operator',
            id="comparisons are for nodes",
        ),
        pytest.param(
            make_selector(None, make_expression("a", "in", "1")),
            '"in" is not a valid label selector operator',
            id="operators are written as they are",
        ),
        pytest.param(
            make_selector(None, make_expression("a", "")),
            '"" is not a valid label selector operator',
            id="an operator is needed",
        ),
        pytest.param(
            make_selector(None, make_expression("a", "In")),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            id="In needs values",
        ),
        pytest.param(
            make_selector(None, make_expression("a", "Exists", "x", "y")),
            'values: Invalid value: ["x","y"]: values set must be empty for exists and does not exist',
            id="Exists takes none",
        ),
        pytest.param(
            make_selector({"-a": "x"}),
            "key: Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', '_' or '.'",
            id="keys have a syntax",
        ),
        pytest.param(
            make_selector({"a": "x y"}),
            'values[0][a]: Invalid value: "x y": a valid label must be an empty string or consist of',
            id="values have a syntax",
        ),
        pytest.param(
            make_selector({"-a": "x y"}),
            '[key: Invalid value: "-a": name part',
            id="all problems are reported",
        ),
    ],
)
def test_malformed(selector: LabelSelector, problem: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(selector)
    assert caught.value.problem.startswith(problem)


def test_a_map_of_labels_is_taken_as_it_is() -> None:
    """Node selectors and services are not parsed: a label that breaks the syntax simply matches no node."""
    assert selector_from_map({"a": "no such value!"}).matches({"a": "no such value!"})
    assert selector_from_map({}) == EVERYTHING


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (NOTHING, "<nothing>"),
        (EVERYTHING, "<everything>"),
        (compile_selector(make_selector({"b": "x"}, make_expression("a", "In", "z", "y"))), "a in (y,z),b=x"),
        (compile_selector(make_selector(None, make_expression("a", "NotIn", "y"))), "a notin (y)"),
        (compile_selector(make_selector(None, make_expression("a", "Exists"))), "a"),
        (compile_selector(make_selector(None, make_expression("a", "DoesNotExist"))), "!a"),
        (Selector((Requirement("a", Operator.GT, frozenset("1")),)), "a>1"),
        (Selector((Requirement("a", Operator.LT, frozenset("1")),)), "a<1"),
    ],
    ids=str,
)
def test_text(selector: Selector, text: str) -> None:
    """Selectors print in kubectl's notation."""
    assert str(selector) == text


@given(st.lists(requirements()), LABELS)
def test_matching_is_a_conjunction(wanted: list[Requirement], labels: dict[str, str]) -> None:
    expected = all(holds(requirement, labels) for requirement in wanted)
    assert Selector(tuple(wanted)).matches(labels) is expected


@given(st.lists(requirements(), min_size=1), st.data())
def test_order_and_repetition_do_not_matter(wanted: list[Requirement], data: st.DataObject) -> None:
    """Selectors that are written differently and mean the same compare and hash equal."""
    shuffled = data.draw(st.permutations([*wanted, data.draw(st.sampled_from(wanted))]))
    first, second = Selector(tuple(wanted)), Selector(tuple(shuffled))
    assert first == second
    assert hash(first) == hash(second)
    assert first.requirements == second.requirements


@given(st.lists(requirements()), requirements(), LABELS)
def test_adding_a_requirement_narrows(
    wanted: list[Requirement], more: Requirement, labels: dict[str, str]
) -> None:
    selector = Selector(tuple(wanted))
    assert selector.and_(more).matches(labels) is (selector.matches(labels) and more.matches(labels))


def test_adding_to_nothing_stays_nothing() -> None:
    assert NOTHING.and_(Requirement("a", Operator.DOES_NOT_EXIST)) is NOTHING


@given(st.integers(-(2**70), 2**70))
def test_numbers_in_labels_have_64_bits(number: int) -> None:
    assert parse_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)
