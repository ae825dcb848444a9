"""The comparison sees what matters and overlooks what does not: a test that cannot fail proves nothing."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .compare import differences, read_lines

ROOT = Path(__file__).parents[2]
VECTORS = sorted((ROOT / "conformance/vectors").rglob("*.jsonl.gz"))

RECORDED: dict[str, Any] = {
    "pod": "default/web",
    "filter": {
        "NodeResourcesFit": {"a": {"code": "Unschedulable", "reasons": ["Insufficient cpu", "Too many pods"]}}
    },
    "filterSkipped": ["NodePorts"],
    "nodeStatus": {
        "a": {
            "plugin": "NodeResourcesFit",
            "code": "Unschedulable",
            "reasons": ["Insufficient cpu", "Too many pods"],
        }
    },
    "feasible": ["b", "c"],
    "score": {"NodeAffinity": {"normalized": {"b": 100, "c": 0}, "weight": 2}},
    "total": {"b": 200, "c": 0},
    "best": ["b"],
    "fitError": None,
    "fitErrorFull": None,
    "preemption": None,
}
PREEMPTION: dict[str, Any] = {
    "eligible": True,
    "message": "",
    "nominatedNode": "a",
    "chosenTies": ["a", "b"],
    "candidates": {"a": {"victims": ["default/x", "default/y"], "numPDBViolations": 0}},
}


def decided(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RECORDED), **changes}


@pytest.mark.parametrize(
    "got",
    [
        pytest.param(decided(), id="the same"),
        pytest.param(
            decided(
                nodeStatus={
                    "a": {
                        "plugin": "NodeResourcesFit",
                        "code": "Unschedulable",
                        "reasons": ["Too many pods", "Insufficient cpu"],
                    }
                }
            ),
            id="reasons in another order",
        ),
        pytest.param(decided(feasible=["c", "b"]), id="nodes in another order"),
        pytest.param(
            decided(filter={**RECORDED["filter"], "NodePorts": {"b": {"code": "Unschedulable"}}}),
            id="a filter that upstream never called",
        ),
        pytest.param(
            decided(score={**RECORDED["score"], "ImageLocality": {"normalized": {"b": 0}, "weight": 1}}),
            id="a plugin that scores nothing",
        ),
    ],
)
def test_overlooks_what_does_not_matter(got: dict[str, Any]) -> None:
    assert list(differences(RECORDED, got)) == []


@pytest.mark.parametrize(
    ("field", "got"),
    [
        pytest.param("filter/NodeResourcesFit/a", decided(filter={}), id="a filter that accepted a node"),
        pytest.param(
            "filter/NodeName/b",
            decided(filter={**RECORDED["filter"], "NodeName": {"b": {"code": "Unschedulable"}}}),
            id="a filter that rejected a node",
        ),
        pytest.param("nodeStatus/a", decided(nodeStatus={}), id="a verdict that is missing"),
        pytest.param("feasible", decided(feasible=["b"]), id="a node too few"),
        pytest.param(
            "score/NodeAffinity/c",
            decided(score={"NodeAffinity": {"normalized": {"b": 100, "c": 1}, "weight": 2}}),
            id="another score",
        ),
        pytest.param(
            "score/NodeAffinity/b",
            decided(score={"NodeAffinity": {"normalized": {"b": 100, "c": 0}, "weight": 1}}),
            id="another weight",
        ),
        pytest.param("total", decided(total={"b": 200, "c": 1}), id="another total"),
        pytest.param("best", decided(best=["b", "c"]), id="another choice"),
        pytest.param("fitError", decided(fitError="0/3 nodes are available"), id="a message out of nowhere"),
        pytest.param("preemption", decided(preemption=PREEMPTION), id="a preemption out of nowhere"),
    ],
)
def test_sees_what_matters(field: str, got: dict[str, Any]) -> None:
    assert [difference.field for difference in differences(RECORDED, got)] == [field]


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        pytest.param([], {"nominatedNode": "b"}, id="an equally good node"),
        pytest.param(["preemption/nominatedNode"], {"nominatedNode": "c"}, id="a worse node"),
        pytest.param(["preemption/eligible"], {"eligible": False}, id="eligibility"),
        pytest.param(
            ["preemption/candidates/a"],
            {"candidates": {"a": {"victims": ["default/y", "default/x"], "numPDBViolations": 0}}},
            id="victims in another order",
        ),
    ],
)
def test_preemption(fields: list[str], changes: dict[str, Any]) -> None:
    """Ties may be broken either way; the victims and their order may not differ."""
    want, got = decided(preemption=PREEMPTION), decided(preemption={**PREEMPTION, **changes})
    assert [difference.field for difference in differences(want, got)] == fields


def test_an_error_needs_an_error() -> None:
    """The message of the error may differ."""
    want = {"pod": "default/web", "error": "in Go's words"}
    assert not list(differences(want, {"pod": "default/web", "error": "in the computed one"}))
    assert [found.field for found in differences(want, decided())] == ["error"]


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_recorded_decisions_agree_with_themselves(path: Path) -> None:
    vectors = list(read_lines(path))
    assert len(vectors) >= 59
    assert all(not list(differences(want, want)) for vector in vectors for want in vector["expect"])


def test_the_command_shows_what_differs(tmp_path: Path) -> None:
    vectors, decisions = tmp_path / "vectors.jsonl", tmp_path / "decisions.jsonl"
    vectors.write_text(json.dumps({"scenario": {"name": "s"}, "expect": [RECORDED]}) + "\n")
    decisions.write_text(json.dumps({"name": "s", "results": [decided(best=["c"])]}) + "\n")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.recorded.compare", vectors, decisions],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout.splitlines()) == (
        1,
        ["s default/web:", "  best", '    want ["b"]', '    got  ["c"]', "0 passed, 1 failed"],
    )
