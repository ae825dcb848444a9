"""The example cluster does what its comments state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples/cluster.yaml"


@pytest.fixture
def results(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["decide", str(EXAMPLE), "--output", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {result["pod"]: result for line in lines for result in line["results"]}


def test_example(results: dict[str, dict[str, Any]]) -> None:
    assert sorted(results) == ["ml/huge-1", "ml/train-4", "shop/api-1", "shop/payments-1", "shop/web-4"]
    assert sorted(results["shop/web-4"]["feasible"]) == ["n09", "n10", "n11"]
    assert sorted(results["shop/api-1"]["feasible"]) == ["n05", "n06"]
    assert results["ml/train-4"]["feasible"] == ["n08"]
    payments = results["shop/payments-1"]
    assert payments["feasible"] == []
    assert payments["preemption"]["nominatedNode"] == "n06"
    assert payments["preemption"]["candidates"]["n06"]["victims"] == ["ml/batch-06"]
    assert payments["preemption"]["candidates"]["n10"]["numPDBViolations"] == 1
    huge = results["ml/huge-1"]
    assert (huge["feasible"], huge["preemption"]["candidates"]) == ([], {})
