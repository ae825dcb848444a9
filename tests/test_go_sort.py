"""Lists are sorted as Go sorts them, equal elements included."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayplan import go_sort as go_sort_module
from bayplan.go_sort import go_argsort, go_order, go_sort, go_sort_by

RECORDED = Path(__file__).parents[1] / "conformance/sorting/permutations.jsonl.gz"
LINES = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]


def test_recorded_permutations_agree() -> None:
    for line in LINES:
        items = list(enumerate(line["keys"]))
        expected = [items[index] for index in line["order"]]
        assert go_sort(items, lambda left, right: left[1] < right[1]) == expected
        assert go_sort_by(items, lambda item: item[1]) == expected
        keys = np.array(line["keys"], dtype=np.int64)
        assert go_argsort([keys >> 1, keys & 1]).tolist() == line["order"]


def test_the_recorded_lists_move_equal_elements() -> None:
    """A stable sort would fail for many of them."""
    moved = [
        line
        for line in LINES
        if sorted(range(len(line["keys"])), key=line["keys"].__getitem__) != line["order"]
    ]
    assert len(moved) > 200


@pytest.mark.parametrize("part", ["_heap_sort", "_break_patterns", "_nearly_sorted", "_partition_equal"])
def test_the_recorded_lists_reach_every_part(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    original = getattr(go_sort_module._Sort, part)

    def spy(*arguments: Any) -> Any:
        called.append(part)
        return original(*arguments)

    monkeypatch.setattr(go_sort_module._Sort, part, spy)
    for line in LINES:
        go_order.__wrapped__(tuple(line["keys"]))
    assert called


def test_the_input_is_unchanged() -> None:
    items = [3, 1, 2]
    assert (go_sort(items, int.__lt__), items) == ([1, 2, 3], [3, 1, 2])
