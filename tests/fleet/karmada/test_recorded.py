"""Results equal those recorded from Karmada; `conformance/clusters/README.md` has the format."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.clusters.compare import differences
from conformance.clusters.compare import main as compare
from conformance.reference.__main__ import main, read_vectors
from conformance.reference.clusters import evaluate

VECTORS = Path(__file__).parents[3] / "conformance/clusters/vectors.jsonl.gz"

BY_CATEGORY: dict[str, list[dict[str, Any]]] = {}
for _vector in read_vectors(str(VECTORS)):
    BY_CATEGORY.setdefault(_vector["category"], []).append(_vector)


@pytest.mark.parametrize("category", BY_CATEGORY)
def test_every_result_is_the_recorded_one(category: str) -> None:
    """Including the order of the clusters, and where it depends on Go's sort."""
    found = {one["id"]: differences(one, evaluate(one), order=True) for one in BY_CATEGORY[category]}
    assert not {name: texts for name, texts in found.items() if texts}


def test_the_command_prints_results_that_the_comparison_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors, results = tmp_path / "vectors.jsonl", tmp_path / "results.jsonl"
    first = [several[0] for several in BY_CATEGORY.values()]
    vectors.write_text("\n".join(map(json.dumps, first)))
    monkeypatch.setattr(sys, "argv", ["reference", "clusters", str(vectors)])
    assert main() == 0
    results.write_text(capsys.readouterr().out)
    monkeypatch.setattr(sys, "argv", ["compare", "--strict", str(vectors), str(results)])
    assert compare() == 0
    wrong = [json.loads(line) for line in results.read_text().splitlines()]
    wrong[0]["result"] = {"clusters": {"nowhere": 1}}
    results.write_text("\n".join(map(json.dumps, wrong)))
    assert compare() == 1
