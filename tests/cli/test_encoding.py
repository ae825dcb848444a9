"""Every command prints something sensible on a stream that cannot encode everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.commands import bayplan

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples" / "cluster.yaml")
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: planer-ü}]
"""


def _run(*arguments: str, encoding: str) -> bytes:
    done = bayplan(*arguments, encoding=encoding)
    assert b"Traceback" not in done.errors
    return done.output + done.errors


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["decide", CLUSTER, "--output", "table"], id="decide"),
        pytest.param(["decide", CLUSTER, "--pod", "schöner-…"], id="an error message"),
        pytest.param(["decide", "no-such-file-ü\udcff.yaml"], id="a file name that is no text"),
        pytest.param(["bench", "--list"], id="bench"),
        pytest.param(["run", "--help"], id="run"),
        pytest.param(["up", "--help"], id="up"),
    ],
)
def test_no_command_ends_with_a_traceback(arguments: list[str], encoding: str) -> None:
    assert _run(*arguments, encoding=encoding).decode(encoding)


def test_a_process_takes_the_encoding_of_its_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bayplan.cli.main", "decide", CLUSTER, "--output", "table"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert done.stdout == _run("decide", CLUSTER, "--output", "table", encoding="ascii")


def test_the_nearest_ascii_text_is_chosen() -> None:
    output = _run("decide", CLUSTER, "--output", "table", encoding="ascii").decode("ascii")
    assert "shop/api-1 goes to n06 | 2 of 12 nodes fit" in output


def test_what_programs_read_is_utf_8_everywhere(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    printed = _run("config", "show", str(config), encoding="ascii").decode("utf-8")
    assert yaml.safe_load(printed)["profiles"][0]["schedulerName"] == "planer-ü"
    printed = _run("config", "show", "--json", str(config), encoding="ascii").decode("utf-8")
    assert json.loads(printed)["result"]["profiles"][0]["schedulerName"] == "planer-ü"
    scenario = tmp_path / "scenario.jsonl"
    scenario.write_text(json.dumps({"name": "schön", "objects": [], "pods": []}), encoding="utf-8")
    printed = _run("decide", str(scenario), encoding="latin-1").decode("utf-8")
    assert json.loads(printed)["name"] == "schön"
