"""Every decision equals the recorded one of kube-scheduler, as each release; `conformance/README.md` has the
format.

Each file is decided in process, where a failure is easy to debug, with what is cached from one pod to the
next; a share of it also with nothing cached (`make test-long`: all of it). Its first scenarios go through the
command line, as a user would run it; one file goes through a process.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.explain.report import decide_scenario
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.cli.errors import ExitStatus
from tests.commands import bayplan
from tests.effort import LONG_RUN

from .compare import Disagreement, compare, read_lines, summarise

VECTORS = Path(__file__).parents[2] / "conformance/vectors"

FILES = {
    f"{release}-{path.name.removesuffix('.jsonl.gz')}": (release, path)
    for release, folder in ((V1_36, VECTORS), (V1_37, VECTORS / "v1.37"))
    for path in sorted(folder.glob("*.jsonl.gz"))
}

WHOLE_FILE = "1.36-nominated"
"""The file that a process gets unchanged."""

FIRST = 3
"""Scenarios of the other files that go through the command line."""

UNCACHED_SHARE = 10
"""`make test` decides one scenario of so many with nothing cached."""


def check(vectors: list[dict[str, Any]], decisions: dict[str, dict[str, Any]]) -> None:
    found: list[Disagreement] = []
    for vector in vectors:
        found.extend(compare(vector, decisions.get(vector["scenario"]["name"])))
    if found:
        pytest.fail(summarise(found, sum(len(vector["expect"]) for vector in vectors)), pytrace=False)


def check_printed(vectors: list[dict[str, Any]], output: str, errors: str, status: int) -> None:
    """Decisions printed by a command. Its status says whether pods of other schedulers were left out."""
    decisions = [json.loads(line) for line in output.splitlines()]
    left_out = any(decision["skipped"] for decision in decisions)
    assert (status, errors) == (ExitStatus.NOT_JUDGED if left_out else ExitStatus.OK, "")
    check(vectors, {decision["name"]: decision for decision in decisions})


def decide_and_check(vectors: list[dict[str, Any]], release: Release, *, cache: bool) -> None:
    decided = [decide_scenario(vector["scenario"], cache=cache, release=release) for vector in vectors]
    check(vectors, {decision["name"]: decision for decision in decided})


@pytest.mark.parametrize("name", FILES)
def test_decisions_agree(name: str) -> None:
    release, path = FILES[name]
    vectors = list(read_lines(path))
    decide_and_check(vectors, release, cache=True)
    decide_and_check(vectors[::UNCACHED_SHARE], release, cache=False)


@LONG_RUN
@pytest.mark.parametrize("name", FILES)
def test_uncached_decisions_agree(name: str) -> None:
    release, path = FILES[name]
    decide_and_check(list(read_lines(path)), release, cache=False)


@pytest.mark.parametrize("name", FILES)
def test_the_command_line_agrees(name: str, tmp_path: Path) -> None:
    release, path = FILES[name]
    vectors = list(islice(read_lines(path), FIRST))
    path = tmp_path / path.name
    path.write_bytes(gzip.compress("".join(f"{json.dumps(vector)}\n" for vector in vectors).encode()))
    ended = bayplan("decide", str(path), "--emulated-version", release.version, "--output", "json")
    check_printed(vectors, ended.stdout, ended.stderr, ended.status)


def test_a_process_agrees() -> None:
    release, path = FILES[WHOLE_FILE]
    options = ["--emulated-version", release.version, "--output", "json"]
    command = [sys.executable, "-m", "bayplan.cli.main", "decide", str(path), *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    check_printed(list(read_lines(path)), ended.stdout, ended.stderr, ended.returncode)


def test_all_categories_are_there() -> None:
    """A file that went missing would not fail by itself."""
    assert [sum(release is one for one, _ in FILES.values()) for release in (V1_36, V1_37)] == [15, 24]
