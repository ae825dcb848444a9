"""Metadata of API objects."""

from __future__ import annotations

import pytest

from bayplan.api.meta import version_number


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
