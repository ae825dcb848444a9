"""Sets of pod labels, and finding the selectors that match them without trying all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.meta import LabelSelector
from bayplan.api.selectors import EVERYTHING, NOTHING, Selector, compile_selector
from bayplan.state.terms import LabelSets, PodQuery, PodSelector, SelectorIndex, narrowest
from bayplan.testing.builders import make_expression, make_selector
from tests.effort import examples


def test_equal_labels_in_one_namespace_are_one_set() -> None:
    sets = LabelSets()
    first = sets.intern("default", {"a": "1", "b": "2"})
    assert sets.intern("default", {"b": "2", "a": "1"}) is first
    second = sets.intern("other", {"a": "1", "b": "2"})
    assert (first.id, second.id) == (0, 1)


def test_an_unreferenced_set_makes_room_for_another() -> None:
    sets = LabelSets()
    for number in range(10):
        sets.intern("default", {"a": "1", "number": str(number)})
        sets.fresh.clear()
    last = sets.intern("default", {"a": "1"})
    assert len(sets) == 1
    for selector in (make_selector({"a": "1"}), make_selector()):
        assert list(sets.candidates(compile_selector(selector))) == [last]
    assert sets[last.id] is last


def test_a_set_stays_as_it_is_when_the_labels_it_was_made_of_change() -> None:
    labels = {"a": "1"}
    found = LabelSets().intern("default", labels)
    labels["a"] = "2"
    assert found.labels == {"a": "1"}


SELECTORS = (
    make_selector({"a": "1"}),
    make_selector({"a": "1", "b": "1"}),
    make_selector({}, make_expression("a", "In", "1", "2")),
    make_selector({}, make_expression("a", "NotIn", "1")),
    make_selector({}, make_expression("a", "NotIn", "1"), make_expression("b", "In", "1", "2")),
    make_selector({}, make_expression("b", "Exists")),
    make_selector({}, make_expression("b", "DoesNotExist")),
    make_selector(),
    None,
)
labels = st.fixed_dictionaries({}, optional={"a": st.sampled_from("123"), "b": st.sampled_from("12")})


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(st.lists(labels, max_size=8), st.sampled_from(SELECTORS))
def test_candidates_of_a_selector_are_all_sets_that_match_it(
    found: list[dict[str, str]], selector: LabelSelector | None
) -> None:
    sets = LabelSets()
    held = {sets.intern("default", one) for one in found}
    compiled = compile_selector(selector)
    matching = sorted(one.id for one in held if compiled.matches(one.labels))
    candidates = [one.id for one in sets.candidates(compiled) if compiled.matches(one.labels)]
    assert sorted(candidates) == matching
    assert len(candidates) == len(set(candidates))


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(st.sets(st.integers(0, len(SELECTORS) - 1)), st.sets(st.integers(0, len(SELECTORS) - 1)), labels)
def test_an_index_finds_all_selectors_that_match(
    added: set[int], removed: set[int], own: dict[str, str]
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    compiled = [compile_selector(selector) for selector in SELECTORS]
    for number in added:
        index.add(compiled[number], number)
    for number in removed:
        index.discard(compiled[number], number)
    found = [number for number in index.candidates(own) if compiled[number].matches(own)]
    assert sorted(found) == sorted(number for number in added - removed if compiled[number].matches(own))


def test_an_index_returns_only_selectors_that_could_match() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    for app in ("web", "db"):
        index.add(compile_selector(make_selector({"app": app})), app)
    index.add(EVERYTHING, "everything")
    index.add(NOTHING, "nothing")
    assert sorted(index.candidates({"app": "web"})) == ["everything", "web"]
    assert sorted(index.candidates({})) == ["everything"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([EVERYTHING, compile_selector(SELECTORS[0])], 1, id="one that insists on a label"),
        pytest.param([compile_selector(SELECTORS[3]), EVERYTHING], 0, id="or else the first"),
    ],
)
def test_the_part_of_a_query_to_index_it_by(parts: list[Selector], expected: int) -> None:
    query = PodQuery(tuple(PodSelector(None, part) for part in parts))
    assert narrowest(query) == parts[expected]


def test_a_query_without_parts_matches_all_pods() -> None:
    query = PodQuery(())
    assert narrowest(query) == EVERYTHING
    assert query.matches("any", {})


@pytest.mark.parametrize(
    ("namespaces", "namespace", "matches"),
    [
        (None, "any", True),
        (frozenset({"a", "b"}), "b", True),
        (frozenset({"a"}), "b", False),
        (frozenset(), "b", False),
    ],
)
def test_namespaces_of_a_query(namespaces: frozenset[str] | None, namespace: str, matches: bool) -> None:
    assert PodQuery((PodSelector(namespaces, EVERYTHING),)).matches(namespace, {}) is matches


def test_a_query_matches_where_all_its_parts_do() -> None:
    one, other = (PodSelector(None, compile_selector(make_selector({key: "1"}))) for key in "ab")
    assert PodQuery((one, other)).matches("x", {"a": "1", "b": "1"})
    assert not PodQuery((one, other)).matches("x", {"a": "1"})
