"""All recorded cycles of descheduler v0.36 come out the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.descheduler.compare import difference
from conformance.reference.__main__ import read_vectors
from conformance.reference.descheduler import evaluate

FILES = sorted((Path(__file__).parents[2] / "conformance" / "descheduler").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_results_are_those_of_descheduler(path: Path) -> None:
    """Evictions in upstream's order, errors, events, counters, classes of nodes and texts."""
    wrong = {
        vector["id"]: problem
        for vector in read_vectors(str(path))
        if (problem := difference(vector["expect"], evaluate(vector)))
    }
    assert not wrong


def test_there_are_recordings() -> None:
    assert len(FILES) == 27


def test_a_wrong_result_is_noticed() -> None:
    vector = next(read_vectors(str(FILES[0])))
    got = evaluate(vector)
    got["cycles"][0]["evictions"].append({"pod": "default/other", "result": "ok"})
    assert difference(vector["expect"], got)
