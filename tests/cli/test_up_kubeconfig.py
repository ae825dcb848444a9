"""`bayplan up` and the kubeconfigs of its users: nothing is overwritten, two clusters differ."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

MINE = """\
# my clusters
apiVersion: v1
kind: Config
clusters:
- name: prod
  cluster: {server: https://prod.example}
contexts:
- name: prod
  context: {cluster: prod, user: me}
users:
- name: me
  user: {token: mine}
current-context: prod
"""
UP = [sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", "1"]


@contextmanager
def up(directory: Path, *arguments: str) -> Iterator[str]:
    """A cluster while it runs; gives the line with its address."""
    process = subprocess.Popen(
        [*UP, *arguments], cwd=directory, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def contexts(path: Path) -> list[str]:
    return [item["name"] for item in read(path)["contexts"]]


def test_an_existing_kubeconfig_is_added_to(tmp_path: Path) -> None:
    """Its current context stays, the hint names the new one, and in the end the file is as it was."""
    path = tmp_path / "config"
    path.write_text(MINE)
    with up(tmp_path, "--kubeconfig", "config") as heading:
        assert heading.endswith("./config --context bayplan")
        assert contexts(path) == ["prod", "bayplan"]
        assert read(path)["current-context"] == "prod"
    assert path.read_text() == MINE


def test_the_current_context_is_changed_on_request(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(MINE)
    with up(tmp_path, "--kubeconfig", "config", "--use-context", "--name", "trial") as heading:
        assert heading.endswith("./config")
        assert read(path)["current-context"] == "trial"


def test_two_clusters_in_one_directory(tmp_path: Path) -> None:
    path = tmp_path / "bayplan.kubeconfig"
    with up(tmp_path) as first:
        assert first.endswith("./bayplan.kubeconfig")
        with up(tmp_path) as second:
            assert second.endswith("./bayplan.kubeconfig --context bayplan-2")
            servers = [item["cluster"]["server"] for item in read(path)["clusters"]]
            assert [server in line for server, line in zip(servers, (first, second), strict=True)] == [
                True,
                True,
            ]
        assert contexts(path) == ["bayplan"]
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_kept_keeps_its_entry(tmp_path: Path) -> None:
    """The next start with the same data directory replaces it."""
    path = tmp_path / "bayplan.kubeconfig"
    for _ in range(2):
        with up(tmp_path, "--data-dir", "data"):
            pass
        assert (contexts(path), read(path)["current-context"]) == (["bayplan"], "bayplan")
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(("--kubeconfig", "letter"), "letter: this is not a kubeconfig", id="another file"),
        pytest.param(("--kubeconfig", "no/config"), "there is no directory", id="no directory"),
        pytest.param(("--kubeconfig", "config", "--name", "prod"), 'the name "prod" is taken', id="a name"),
    ],
)
def test_what_cannot_be_done_is_reported_before_anything_is_started(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "letter").write_text("Dear aunt,\n")
    (tmp_path / "config").write_text(MINE)
    done = subprocess.run(
        [*UP, *arguments], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert (tmp_path / "letter").read_text() == "Dear aunt,\n"
    assert (tmp_path / "config").read_text() == MINE
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config", "letter"]
