"""Label selectors as text, with the errors of Kubernetes."""

from __future__ import annotations

import pytest

from bayplan.api.selector_text import parse_selector
from bayplan.errors import SelectorError


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        pytest.param("", {}, True, id="an empty text selects everything"),
        pytest.param("a=b", {"a": "b"}, True, id="equality"),
        pytest.param("a==b,c!=d", {"a": "b", "c": "d"}, False, id="all requirements have to hold"),
        pytest.param("a in (x, y)", {"a": "y"}, True, id="one of several values"),
        pytest.param("a notin (x)", {}, True, id="notin holds without the label"),
        pytest.param("!a", {"a": ""}, False, id="an absent label"),
        pytest.param("a", {"a": ""}, True, id="a present label"),
        pytest.param("a=", {"a": ""}, True, id="an empty value"),
        pytest.param("a in ()", {"a": ""}, True, id="an empty list has the empty value"),
        pytest.param("a in (,x,)", {"a": ""}, True, id="commas at the ends are empty values"),
        pytest.param("a in (x,,y)", {"a": ""}, True, id="two commas are an empty value"),
        pytest.param("gen > 3", {"gen": "4"}, True, id="comparison of numbers"),
    ],
)
def test_selectors_match(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a in (x,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "-a",
            'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "a>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_errors_are_those_of_kubernetes(text: str, problem: str) -> None:
    with pytest.raises(SelectorError) as raised:
        parse_selector(text)
    assert raised.value.problem == problem
