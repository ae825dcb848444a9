"""`benchmarks/groups.py` measures what its situations say."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NODES = 1000


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "groups.py"))
    situations: Iterator[Any] = benchmark["situations"](NODES)
    return {one.name: benchmark["measure"](one, NODES, None) for one in situations}


@pytest.mark.parametrize(
    ("situation", "result"),
    [
        pytest.param("gang of 1,000 fits", "fits", id="several on a node"),
        pytest.param("gang of 1,000 fits, one on a node", "fits", id="one on a node"),
        pytest.param("999 of a gang of 1,000 fit", "999 scheduled, 0 remaining", id="one too many"),
        pytest.param("gang of 64 in one of 100 racks", "fits", id="in a rack"),
        pytest.param("gang of 64 evicts", "preempting 521 victims", id="evicts"),
        pytest.param("gang of 64 would not fit if it evicted", "0 scheduled, 63 remaining", id="in vain"),
    ],
)
def test_a_situation_has_this_result(results: dict[str, dict[str, Any]], situation: str, result: str) -> None:
    assert result in results[situation]["result"]
