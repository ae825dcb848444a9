"""Merge patches: carried out, and found between two values."""

from __future__ import annotations

import pytest

from bayplan.api.documents import difference, merged
from bayplan.api.meta import Content


@pytest.mark.parametrize(
    ("patch", "outcome"),
    [
        pytest.param({"a": {"c": 1}}, {"a": {"b": 1, "c": 1}, "l": [1, 2]}, id="maps are merged"),
        pytest.param({"a": {"b": None}}, {"a": {}, "l": [1, 2]}, id="null removes"),
        pytest.param({"l": [3]}, {"a": {"b": 1}, "l": [3]}, id="lists are replaced"),
        pytest.param({"a": 1}, {"a": 1, "l": [1, 2]}, id="a map may become something else"),
        pytest.param({"n": {"x": None}}, {"a": {"b": 1}, "l": [1, 2], "n": {}}, id="nothing is left of null"),
    ],
)
def test_merge_patch(patch: Content, outcome: Content) -> None:
    before = {"a": {"b": 1}, "l": [1, 2]}
    assert merged(before, patch) == outcome


def test_the_difference_leads_from_one_to_the_other() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": [1]}
    after = {"a": {"b": 1, "e": 3}, "d": [2]}
    assert difference(before, after) == {"a": {"c": None, "e": 3}, "d": [2]}
    assert merged(before, difference(before, after)) == after
