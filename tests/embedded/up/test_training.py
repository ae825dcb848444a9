"""The example of docs/groups.md: training jobs that need 8, 6 and 4 of 10 GPUs, and one never complete."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.commands import bayplan

pytestmark = pytest.mark.long


def test_the_jobs_of_the_page(tmp_path: Path) -> None:
    """Each file is applied when nothing more happens after the one before, which takes a backoff each."""
    files = [f"examples/training/{name}.yaml" for name in ("1-two-jobs", "2-urgent", "3-mistake")]
    flags = ["--feature-gates", "GenericWorkload=true", "--exit-when-idle", "always"]
    named = [word for file in files for word in ("-f", file)]
    shown = bayplan("up", "--nodes", "0", "--kubeconfig", str(tmp_path / "kubeconfig"), *flags, *named).stdout
    lines = [line.split(None, 1)[1] for line in shown.splitlines() if line[2:3] == ":" and "group" in line]
    kinds = Counter(line.split()[0] + " " + line.split()[2] for line in lines)
    assert kinds == {
        "bound ml/vision:": 1,
        "unschedulable ml/speech:": 1,
        "unschedulable ml/release:": 1,
        "bound ml/release:": 1,
    }, json.dumps(lines)
    assert "preempting 4 victims" in shown
    assert "waiting for more members: 12 must exist and 6 do, so 6 more must be created" in shown
