"""`bayplan plugin`: list, check, new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from bayplan.cli import plugin as commands
from bayplan.cli.main import main
from bayplan.cli.plugin import words_of, write_package
from bayplan.config import LIBRARY
from bayplan.errors import InputError
from bayplan.plugins import BUILTIN_PLUGINS

MODULE = """
from bayplan.plugin import NodePlugin

__version__ = "7.1"


class Fine(NodePlugin):
    def filter_node(self, state, pod, node):
        return None


class Unstable(NodePlugin):
    calls = 0

    def score_node(self, state, pod, node):
        Unstable.calls += 1
        return Unstable.calls % 100
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module with plugins that a package declares as entry points."""
    file = tmp_path / "own_rules.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    entries = [
        EntryPoint(name, f"own_rules:{name}", "bayplan.plugins") for name in ("Fine", "Unstable", "Missing")
    ]
    monkeypatch.setattr(commands, "entry_points", lambda group: entries)
    monkeypatch.chdir(tmp_path)
    yield file
    sys.modules.pop("own_rules", None)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["plugin", *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_list(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(capsys, "list", "--json", "--plugin", "own_rules.py:Fine", "--plugin", "gone.py:X")
    lines: dict[tuple[str, str], Any] = {}
    for line in output.splitlines():
        found = json.loads(line)
        lines[found["name"], found["source"]] = found
    assert status == 2, "not all of them can be loaded"
    assert [name for name, source in lines if source == "built in"] == [p.name for p in BUILTIN_PLUGINS]
    assert [name for name, source in lines if source == "library"] == list(LIBRARY)
    assert lines["NodePorts", "built in"]["points"] == ["PreFilter", "Filter"]
    assert lines["Fine", "own_rules:Fine"]["points"] == ["Filter"]
    assert "own_rules has no class Missing" in lines["Missing", "own_rules:Missing"]["error"]
    assert lines["Fine", "own_rules.py:Fine"]["version"] == "7.1"
    assert "there is no file gone.py" in lines["X", "gone.py:X"]["error"]


def test_list_as_a_table(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, output = run(capsys, "list")
    assert "extension points" in output
    assert any(line.split()[:3] == ["Fine", "own_rules:Fine", "Filter"] for line in output.splitlines())


@pytest.mark.parametrize("name", ["Fine", "own_rules.py:Fine", "own_rules:Fine"])
def test_check(name: str, module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(capsys, "check", name)
    assert status == 0
    assert output.endswith("Fine: ok\n")
    assert "ok      answers the same again" in output
    assert "–       keeps scores in range (not applicable)" in output, "it has no Score"


def test_a_check_that_fails(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(capsys, "check", "Unstable")
    assert status == 1
    assert "FAILED  answers the same again\n        plugin Unstable, pod " in output
    assert "checks failed" in output


def test_a_plugin_that_does_not_exist(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(capsys, "check", "Fien")
    assert status == 2
    assert "there is no plugin Fien. Did you mean Fine" in output


@pytest.mark.parametrize(
    ("name", "words"),
    [("PreferSsd", ["prefer", "ssd"]), ("GPUShare", ["gpu", "share"]), ("Zone2", ["zone2"])],
)
def test_words(name: str, words: list[str]) -> None:
    assert words_of(name) == words


def test_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The package passes its own tests and the checks, and `decide` uses its configuration."""
    monkeypatch.chdir(tmp_path)
    status, output = run(capsys, "new", "PreferSsd")
    assert status == 0
    assert "pip install -e" in output
    package = tmp_path / "prefer-ssd"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini", "addopts="],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout
    monkeypatch.chdir(package)
    assert run(capsys, "check", "prefer_ssd.py:PreferSsd", "--config", "scheduler.yaml")[0] == 0
    assert main(["config", "check", "scheduler.yaml", "--plugin", "prefer_ssd.py:PreferSsd"]) == 0


def test_new_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    status, output = run(capsys, "new", "Mine")
    assert status == 2
    assert "mine exists already; nothing was written" in output
    assert list((tmp_path / "mine").iterdir()) == []
    for name in ("mine", "my_rule", "1st", "../Evil", "NodePorts"):
        assert run(capsys, "new", name, "--directory", "other")[0] == 2
        assert not (tmp_path / "other").exists()


def test_errors_are_input_errors() -> None:
    with pytest.raises(InputError, match="use a name like PreferSsd"):
        write_package("nope")
