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

from bayplan.cli.page_link import PageLink
from bayplan.errors import InputError
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
    recording, link_file = tmp_path / "file.gz", tmp_path / "link"
    arguments = (
        ["ui", "-f", CLUSTER] if command == "ui" else ["up", "--nodes", "2", "--record", str(recording)]
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "bayplan.cli.main", *arguments, "--link-file", str(link_file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        printed = ""
        while "http://127.0.0.1:" not in printed:
            line = process.stdout.readline()
            assert line, "it has ended"
            printed += line
        link = link_file.read_text().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ui/login\?token=\S+", link)
        assert link_file.stat().st_mode & 0o077 == 0
        with urllib.request.urlopen(link, timeout=20) as response:
            assert response.status == 200
            assert "HttpOnly" in response.headers["Set-Cookie"]
        while "for another browser" not in (line := process.stdout.readline()):
            assert line, "it has ended"
        printed += line
        assert "token=" not in printed, "standard output is not a terminal: it may be a log"
        assert link_file.read_text().strip() != link
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    if command == "up":
        assert recording.stat().st_size > 100


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [
        pytest.param(True, "http://h:1/ui/login?token=secret", id="a terminal shows the link"),
        pytest.param(False, "http://h:1/ui/ (pass --link-file FILE to log in)", id="a log does not"),
    ],
)
def test_where_the_link_is_shown(is_terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert PageLink(lambda: "http://h:1/ui/login?token=secret").shown() == shown


def test_a_link_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        PageLink(lambda: "x", tmp_path / "none" / "link").shown()
