"""Field errors print as Kubernetes prints them."""

from __future__ import annotations

import pytest

from bayplan.framework.args import (
    Duration,
    FieldError,
    aggregate,
    at,
    duplicate,
    forbidden,
    invalid,
    quoted,
    required,
    shown,
    unsupported,
)
from bayplan.framework.builtin_args import InterPodAffinityArgs, UtilizationShapePoint


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (required("a"), "a: Required value"),
        (required("a", "can not be empty"), "a: Required value: can not be empty"),
        (forbidden("a.b", "not here"), "a.b: Forbidden: not here"),
        (invalid("a[1]", 5, "too much"), "a[1]: Invalid value: 5: too much"),
        (duplicate("a", "x"), 'a: Duplicate value: "x"'),
        (unsupported("a", "x", ("A", "B")), 'a: Unsupported value: "x": supported values: "A", "B"'),
    ],
)
def test_kinds(error: FieldError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        (-5, "-5"),
        (5.5, "5.5"),
        (True, "true"),
        (None, '"null"'),
        ({}, "{}"),
        ([], "[]"),
        (("b", 1), '["b",1]'),
        (Duration.of(10), '"10s"'),
        ({"a": "<&>"}, '{"a":"\\u003c\\u0026\\u003e"}'),
        ((UtilizationShapePoint(utilization=1, score=2),), '[{"Utilization":1,"Score":2}]'),
        (InterPodAffinityArgs(), '{"HardPodAffinityWeight":1,"IgnorePreferredTermsOfExistingPods":false}'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain", '"plain"'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("\n\t\x00\x7f", '"\\n\\t\\x00\\x7f"'),
        ("größe 😀", '"größe 😀"'),
        ("\u00a0\u200b\U000e0001", '"\\u00a0\\u200b\\U000e0001"'),
    ],
)
def test_strings_are_quoted_as_go_does(text: str, printed: str) -> None:
    assert quoted(text) == printed


def test_paths() -> None:
    assert at("", "a") == "a"
    assert at("a", "b", 0, "c") == "a.b[0].c"


def test_several_errors_are_in_brackets_and_equal_ones_once() -> None:
    a, b = required("a"), required("b")
    assert aggregate([]) == ""
    assert aggregate([a, a]) == "a: Required value"
    assert aggregate([a, b, a]) == "[a: Required value, b: Required value]"
