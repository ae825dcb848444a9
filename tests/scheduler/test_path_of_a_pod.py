"""A reader who follows a pod through the code crosses few files: `tools/follow_a_pod.py` counts them.

The ceilings may only be lowered.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "follow_a_pod.py"

MAX_FILES_OF_FIRST_POD = 55
MAX_FILES_OF_SECOND_POD = 25
MAX_BOUNDARIES_OF_SECOND_POD = 80
MAX_FILES_OF_PREEMPTOR = 60


@pytest.fixture(scope="module")
def counts() -> dict[str, dict[str, int]]:
    """In a process of its own, in which nothing is cached yet."""
    ended = subprocess.run([sys.executable, str(TOOL), "--json"], capture_output=True, check=True)
    found: dict[str, dict[str, int]] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize(
    ("pod", "what", "most"),
    [
        ("first pod of its kind", "files", MAX_FILES_OF_FIRST_POD),
        ("second, identical pod", "files", MAX_FILES_OF_SECOND_POD),
        ("second, identical pod", "boundaries", MAX_BOUNDARIES_OF_SECOND_POD),
        ("preemptor", "files", MAX_FILES_OF_PREEMPTOR),
    ],
)
def test_a_pod_crosses_few_files(pod: str, what: str, most: int, counts: dict[str, dict[str, int]]) -> None:
    assert 5 < counts[pod][what] <= most
