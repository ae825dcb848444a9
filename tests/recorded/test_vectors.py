"""Every decision equals the recorded one of kube-scheduler, as each release; `conformance/README.md` has the
format.

Each file is decided twice in process, where a failure is easy to debug: with what is kept from one pod to the
next, and with nothing cached. Its first scenarios go through the command line, as a user would run
it.
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
from bayplan.api.releases import V1_36, V1_37

from .compare import Disagreement, compare, read_lines, summarise

VECTORS = Path(__file__).parents[2] / "conformance/vectors"

FILES = {
    f"{release}-{path.name.removesuffix('.jsonl.gz')}": (release, path)
    for release, folder in ((V1_36, VECTORS), (V1_37, VECTORS / "v1.37"))
    for path in sorted(folder.glob("*.jsonl.gz"))
}

WHOLE_FILE = "1.36-nominated"
"""The file that the command line gets unchanged."""

FIRST = 3
"""Scenarios of the other files that do."""


def check(vectors: list[dict[str, Any]], decisions: dict[str, dict[str, Any]]) -> None:
    found: list[Disagreement] = []
    for vector in vectors:
        found.extend(compare(vector, decisions.get(vector["scenario"]["name"])))
    if found:
        pytest.fail(summarise(found, sum(len(vector["expect"]) for vector in vectors)), pytrace=False)


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("name", FILES)
def test_decisions_agree(name: str, cache: bool) -> None:
    release, path = FILES[name]
    vectors = list(read_lines(path))
    decided = [decide_scenario(vector["scenario"], cache=cache, release=release) for vector in vectors]
    check(vectors, {decision["name"]: decision for decision in decided})


@pytest.mark.parametrize("name", FILES)
def test_the_command_line_agrees(name: str, tmp_path: Path) -> None:
    release, path = FILES[name]
    vectors = list(read_lines(path))
    if name != WHOLE_FILE:
        path = tmp_path / path.name
        vectors = list(islice(vectors, FIRST))
        path.write_bytes(gzip.compress("".join(f"{json.dumps(vector)}\n" for vector in vectors).encode()))
    options = ["--emulated-version", release.version, "--output", "json"]
    ended = subprocess.run(
        [sys.executable, "-m", "bayplan.cli.main", "decide", str(path), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    check(vectors, {decision["name"]: decision for decision in lines})


def test_all_categories_are_there() -> None:
    """A file that went missing would not fail by itself."""
    assert [sum(release is one for one, _ in FILES.values()) for release in (V1_36, V1_37)] == [15, 24]
