"""Costs by plugin: what is counted, and when there is a hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayplan.bench.by_plugin import DECLARE, SHARE
from bayplan.cli.main import main

PLUGIN = """
from bayplan.plugin import Dependencies, NodePlugin

class Plain(NodePlugin):
    def filter_node(self, state, pod, node):
        return None

    def score_node(self, state, pod, node):
        return 7

class Cached(Plain):
    depends_on = Dependencies.of()

class ByName(Plain):
    depends_on = Dependencies.of("name")

class Broken(Plain):
    def score_node(self, state, pod, node):
        return 7.5
"""
SIZES = ["--nodes", "50", "--init-pods", "10", "--pods", "20"]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "costs.py"
    file.write_text(PLUGIN)
    return file


@pytest.mark.parametrize(
    ("name", "rows", "cached", "hint"),
    [("Plain", 50, None, DECLARE), ("Cached", 0, 1.0, ""), ("ByName", 50, 0.0, SHARE)],
)
def test_costs(
    name: str,
    rows: int,
    cached: float | None,
    hint: str,
    plugin: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["bench", "SchedulingBasic", *SIZES, "--by-plugin", "--json", "--plugin", f"{plugin}:{name}"]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    own = {line["point"]: line for line in lines if line["plugin"] == name}
    if name == "Cached":
        assert own == {}, "nothing was computed after the first pods"
    for point in own:
        assert own[point]["rows_per_pod"] == rows
        assert own[point]["cached"] == cached
        assert own[point]["hint"].startswith(hint)
        assert own[point]["us_per_pod"] > 0
    assert {line["hint"] for line in lines if line["plugin"] == "NodeResourcesFit"} == {""}


def test_a_plugin_that_fails_ends_the_measurement(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "SchedulingBasic", "--core", *SIZES, "--plugin", f"{plugin}:Broken"]) == 2
    assert "score_node returned 7.5; return an integer from 0 to 100" in capsys.readouterr().err


def test_the_table(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "SchedulingBasic", *SIZES, "--by-plugin", "--plugin", f"{plugin}:Plain"]) == 0
    output = capsys.readouterr().out
    assert "calls/pod" in output
    assert "declare depends_on" in output
