"""Every recorded run of kube-scheduler comes out the same, as each release.

`conformance/runs/README.md` has the format.

Node after node, message after message, victims and the calls of extenders included.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.releases import V1_36, V1_37
from bayplan.cli.replay import first_difference
from bayplan.simulate.replay import replay
from tests.commands import bayplan
from tests.effort import LONG_RUN

RUNS = Path(__file__).parents[2] / "conformance/runs"
FILES = {
    f"{release}-{path.name.removesuffix('.jsonl.gz')}": (release, path)
    for release, folder in ((V1_36, RUNS), (V1_37, RUNS / "v1.37"))
    for path in sorted(folder.glob("*.jsonl.gz"))
}

UNCACHED_SHARE = 10
"""`make test` replays one run of so many with nothing cached."""


def read_runs(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def replay_and_check(name: str, *, cache: bool, every: int = 1) -> None:
    release, path = FILES[name]
    found = {
        run["name"]: first_difference(run, replay(run, cache=cache, release=release))
        for run in read_runs(path)[::every]
    }
    assert {name: difference for name, difference in found.items() if difference} == {}


@pytest.mark.parametrize("name", FILES)
def test_runs_come_out_the_same(name: str) -> None:
    replay_and_check(name, cache=True)
    replay_and_check(name, cache=False, every=UNCACHED_SHARE)


@LONG_RUN
@pytest.mark.parametrize("name", FILES)
def test_runs_come_out_the_same_with_nothing_cached(name: str) -> None:
    replay_and_check(name, cache=False)


def test_all_runs_are_there() -> None:
    assert [sum(release is one for one, _ in FILES.values()) for release in (V1_36, V1_37)] == [11, 11]


def test_a_difference_is_found() -> None:
    """The comparison itself can fail: a pod recorded on another node is reported."""
    run = read_runs(RUNS / "owners.jsonl.gz")[0]
    played = replay(run, release=V1_36)
    step = next(step for step in run["steps"] if step["op"] == "schedule" and step.get("node"))
    step["node"] = "elsewhere"
    difference = first_difference(run, played)
    assert difference is not None
    assert "recorded is 'elsewhere'" in difference


def test_the_command_line_prints_the_same() -> None:
    file = RUNS / "owners.jsonl.gz"
    options = ["--check", "--emulated-version", "1.36"]
    command = [sys.executable, "-m", "bayplan.cli.main", "replay", *options, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (
        0,
        f"{len(read_runs(file))} passed, 0 failed",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "this is not JSON", id="a line that is no JSON"),
        pytest.param("{}", "this is not a recorded run", id="an object that is no run"),
    ],
)
def test_bad_files_are_reported(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(text)
    ended = bayplan("replay", str(file))
    assert ended.status == 2
    assert f"{file}:1: {message}" in ended.stderr
