"""`bayplan simulate run`: options, outputs and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayplan.cli.main import main

ROOT = Path(__file__).parents[2]
SCENARIO = str(ROOT / "examples" / "scenario.yaml")


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["simulate", "run", SCENARIO, "--until", "30m", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == "", "no progress bar without a terminal"
    return captured.out


def test_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(capsys).startswith("working-day: 30m00s simulated, seed 1; decided as Kubernetes 1.37\n")
    result = json.loads(simulated(capsys, "-o", "json", "--seed", "7"))
    assert (result["seed"], result["duration"]) == (7, 1800)


def test_the_release_is_that_of_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    """With and without a cluster or a configuration."""
    cluster = str(ROOT / "examples" / "cluster.yaml")
    for arguments in ((), ("-f", cluster), ("--config", str(ROOT / "examples" / "pack.yaml"))):
        result = json.loads(simulated(capsys, "-o", "json", "--emulated-version", "1.37", *arguments))
        assert result["emulatedVersion"].removeprefix("v") == "1.37"


def test_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    simulated(capsys, "--report", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "Simulation of working-day" in page


def test_a_report_replaces_no_other_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A mistyped option would overwrite the scenario, or a kubeconfig."""
    precious = tmp_path / "scenario.yaml"
    precious.write_text("precious")
    assert main(["simulate", "run", SCENARIO, "--report", str(precious)]) == 2
    assert "--report: the name should end in .html, not 'scenario.yaml'" in capsys.readouterr().err
    assert precious.read_text() == "precious"


def test_csv(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    simulated(capsys, "--csv", str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "pods.csv",
        "reasons.csv",
        "samples.csv",
        "workloads.csv",
    ]


def test_configuration_plugins_and_a_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The real configuration and plugins decide: packing leaves more nodes empty than spreading."""
    plain = json.loads(simulated(capsys, "-o", "json"))
    packed = json.loads(simulated(capsys, "-o", "json", "--config", str(ROOT / "examples" / "pack.yaml")))
    assert packed["placementsDigest"] != plain["placementsDigest"]
    plugin = f"{ROOT / 'examples' / 'prefer_zone.py'}:PreferZone"
    assert json.loads(simulated(capsys, "-o", "json", "--plugin", plugin))["pods"] == plain["pods"]
    larger = json.loads(simulated(capsys, "-o", "json", "-f", str(ROOT / "examples" / "cluster.yaml")))
    assert larger["nodes"]["start"] == plain["nodes"]["start"] + 12
    assert larger["pods"]["initial"] == 19


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["missing.yaml"], "missing.yaml: No such file", id="no file"),
        pytest.param([SCENARIO, "--until", "soon"], "'soon' is not a duration such as 90m", id="until"),
        pytest.param([SCENARIO, "--config", "missing.yaml"], "missing.yaml", id="configuration"),
        pytest.param([SCENARIO, "--csv", "/dev/null/x"], "/dev/null/x", id="unwritable"),
        pytest.param([str(ROOT / "examples" / "cluster.yaml")], "expected one document", id="kind"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "run", *arguments, *([] if "--until" in arguments else ["--until", "1m"])]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err


def test_a_plugin_that_fails_is_status_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from bayplan.plugin import NodePlugin\n"
        "class Broken(NodePlugin):\n"
        "    def filter_node(self, state, pod, node):\n"
        "        return node.labels['nope']\n"
    )
    words = ["simulate", "run", SCENARIO, "--until", "10m", "--plugin", f"{tmp_path}/broken.py:Broken"]
    assert main([*words, "-o", "json"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: the result is not reliable, because a plugin failed:\n")
    assert "Traceback" not in printed.err
    assert "KeyError: 'nope'" in json.loads(printed.out)["notes"][0]
    assert main([*words, "--traceback"]) == 2
    assert capsys.readouterr().err.count("Traceback (most recent call last)") == 1
