"""Metadata of API objects."""

from __future__ import annotations

import pytest

from bayplan.api.meta import is_older_version, version_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("9" * 20, int("9" * 20)),
        ("9" * 21, None),
        ("", None),
        ("a", None),
        ("-1", None),
    ],
)
def test_a_resource_version_is_a_number_or_has_no_order(text: str, number: int | None) -> None:
    assert version_number(text) == number


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("10", "11", True),
        ("a", "b", False),
        ("b", "a", False),
        ("1", "b", False),
        ("", "7", False),
    ],
)
def test_a_version_is_older_if_both_are_numbers(theirs: str, ours: str, expected: bool) -> None:
    assert is_older_version(theirs, ours) is expected
