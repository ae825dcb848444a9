"""`bayplan config`: every file gets its answer, and a wrong one status 2."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bayplan.cli.config import config as config_group
from bayplan.cli.main import main
from bayplan.config import completed, default_config

GOOD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

ERRORS = {
    "broken": ":2: this is not YAML: while parsing a flow node did not find expected node content",
    "form": ':3: parallelism: expected an integer, got the string "many"',
    "value": "parallelism: Invalid value: 0: should be an integer value greater than zero",
    "plugin": "initializing profiles: creating profile for scheduler name default-scheduler: "
    'FilterPlugin "Foo" does not exist',
    "missing": ": no such file or directory",
}
"""The end of the error for each wrong file; upstream's texts are unchanged."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """One good file, one for each way to be wrong, and one that is not there."""
    texts = {
        "good": GOOD,
        "broken": "profiles: [",
        "form": f"{GOOD}parallelism: many\n",
        "value": f"{GOOD}parallelism: 0\n",
        "plugin": f"{GOOD}profiles:\n- plugins: {{filter: {{enabled: [{{name: Foo}}]}}}}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in (*texts, "missing")}


def test_check_prints_ok(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", files["good"]]) == 0
    assert capsys.readouterr().out == f"{files['good']}: ok\n"


def test_check_continues_after_a_wrong_file(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", *(files[name] for name in ERRORS), files["good"]]) == 2
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"{files['good']}: ok"
    for line, (name, error) in zip(lines, ERRORS.items(), strict=True):
        assert line.startswith(f"{files[name]}:")
        assert line.endswith(error)


def test_show_without_a_file_prints_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == completed(default_config())


def test_show_prints_a_document_for_each_file(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", files["good"], files["good"]]) == 0
    shown = list(yaml.safe_load_all(capsys.readouterr().out))
    assert shown == [completed(default_config())] * 2


def test_show_prints_what_is_wrong(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", files["value"]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: {files['value']}: {ERRORS['value']}\n"


def test_show_json_prints_a_line_for_each_file(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors of values and plugins are upstream's to the letter, without the file in front."""
    assert main(["config", "show", "--json", *(files[name] for name in ERRORS), files["good"]]) == 2
    *lines, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert last == {
        "file": files["good"],
        "kubernetesVersion": "1.37",
        "result": completed(default_config()),
    }
    assert [line["file"] for line in lines] == [files[name] for name in ERRORS]
    printed = {
        name: line["error"].removeprefix(files[name]) for name, line in zip(ERRORS, lines, strict=True)
    }
    assert printed == ERRORS


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert main(["config", "check", "-"]) == 0
    assert capsys.readouterr().out == "-: ok\n"


def test_checking_is_quick() -> None:
    """Nothing of the scheduler itself is needed to read a configuration."""
    script = (
        "import sys, bayplan.cli.config;"
        "print([name for name in ('numpy', 'bayplan.state', 'bayplan.plugins') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_a_configuration_may_name_plugins_of_ones_own(tmp_path: Path) -> None:
    """`--plugin` makes the class known: without it the name is unknown, with it the file is right."""
    source = tmp_path / "quiet.py"
    source.write_text(
        "from bayplan.plugin import NodePlugin\n"
        "class QuietNodes(NodePlugin):\n"
        "    def score_node(self, state, pod, node):\n"
        "        return 0\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {score: {enabled: [{name: QuietNodes, weight: 3}]}}}]\n"
    )
    without = CliRunner().invoke(config_group, ["check", str(config)])
    with_it = CliRunner().invoke(config_group, ["check", str(config), "--plugin", f"{source}:QuietNodes"])
    assert (without.exit_code, 'ScorePlugin "QuietNodes" does not exist' in without.output) == (2, True)
    assert "if QuietNodes is a plugin of your own, name its class: --plugin SOURCE:CLASS" in without.output
    assert (with_it.exit_code, with_it.stdout) == (0, f"{config}: ok\n")
