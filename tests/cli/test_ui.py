"""`bayplan ui` and the page of `bayplan up`: the link, and what cannot be combined."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.commands import bayplan

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples" / "cluster.yaml")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-f", CLUSTER, "--recording", CLUSTER), "one of"),
        (("-f", CLUSTER, "--address", "0.0.0.0"), "TLS only"),
        (("-f", CLUSTER, "--record", "x"), "needs a live cluster"),
        (("--recording", CLUSTER), "not a recording"),
        (("--kubeconfig", "/nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_shown(arguments: tuple[str, ...], problem: str) -> None:
    ended = bayplan("ui", *arguments)
    assert ended.status == 2
    assert problem in ended.stderr + ended.stdout


@pytest.mark.parametrize("command", ["ui", "up"])
def test_the_link_logs_in_and_recordings_can_be_shown(command: str, tmp_path: Path) -> None:
    recording = tmp_path / "file.gz"
    arguments = (
        ["ui", "-f", CLUSTER] if command == "ui" else ["up", "--nodes", "2", "--record", str(recording)]
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "bayplan.cli.main", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        link = ""
        while not link:
            line = process.stdout.readline()
            assert line, "it has ended"
            found = re.search(r"http://127\.0\.0\.1:\d+/ui/login\?token=\S+", line)
            link = found[0] if found else ""
        with urllib.request.urlopen(link, timeout=20) as response:
            assert response.status == 200
            assert "HttpOnly" in response.headers["Set-Cookie"]
        while "for another browser" not in (line := process.stdout.readline()):
            assert line, "it has ended"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    if command == "up":
        assert recording.stat().st_size > 100
