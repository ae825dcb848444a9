"""Every decision equals the recorded one of kube-scheduler v1.36; `conformance/README.md` has the format.

Each file is judged twice in process, where a failure is easy to debug: with what is kept from one pod to the
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

from bayplan.explain.scenario import decide_scenario

from .compare import Disagreement, compare, read_lines, summarise

VECTORS = Path(__file__).parents[2] / "conformance/vectors"

CATEGORIES = sorted(path.name.removesuffix(".jsonl.gz") for path in VECTORS.glob("*.jsonl.gz"))

WHOLE_FILE = "nominated"
"""The category whose file goes through the command line as it is."""

FIRST = 3
"""Scenarios of the other files that do."""


def read_vectors(category: str) -> list[dict[str, Any]]:
    return list(read_lines(VECTORS / f"{category}.jsonl.gz"))


def check(vectors: list[dict[str, Any]], decisions: dict[str, dict[str, Any]]) -> None:
    found: list[Disagreement] = []
    for vector in vectors:
        found.extend(compare(vector, decisions.get(vector["scenario"]["name"])))
    if found:
        pytest.fail(summarise(found, sum(len(vector["expect"]) for vector in vectors)), pytrace=False)


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("category", CATEGORIES)
def test_decisions_agree(category: str, cache: bool) -> None:
    vectors = read_vectors(category)
    decided = [decide_scenario(vector["scenario"], cache=cache) for vector in vectors]
    check(vectors, {decision["name"]: decision for decision in decided})


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_command_line_agrees(category: str, tmp_path: Path) -> None:
    vectors = read_vectors(category)
    path = VECTORS / f"{category}.jsonl.gz"
    if category != WHOLE_FILE:
        path = tmp_path / path.name
        vectors = list(islice(vectors, FIRST))
        path.write_bytes(gzip.compress("".join(f"{json.dumps(vector)}\n" for vector in vectors).encode()))
    ended = subprocess.run(
        [sys.executable, "-m", "bayplan.cli.main", "decide", str(path), "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    check(vectors, {decision["name"]: decision for decision in lines})


def test_all_categories_are_there() -> None:
    """A file that went missing would not fail by itself."""
    assert len(CATEGORIES) == 15
