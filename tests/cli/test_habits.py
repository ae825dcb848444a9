"""Small things that a new user tries in the first five minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.cli.main import main
from tests.cli.decide_files import as_yaml, node, pod

BAD_SCORES = """
from bayplan.plugin import NodePlugin

class Raises(NodePlugin):
    def score_node(self, state, pod, node):
        raise ValueError("no such table")

class TooHigh(NodePlugin):
    def score_node(self, state, pod, node):
        return 1000
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(
        as_yaml(node("n1"), node("n2"), pod("runs", nodeName="n1"), pod("a"), pod("b", cpu="90"))
    )
    return str(path)


@pytest.mark.parametrize("plugin", ["Raises", "TooHigh"])
@pytest.mark.parametrize(
    "command",
    [("explain", "pod", "a", "-f"), ("explain", "pod", "runs", "-f"), ("explain", "node", "n1", "-f"),
     ("decide", "--output", "table")],
    ids=lambda words: " ".join(words[:3]),
)  # fmt: skip
def test_a_score_plugin_that_fails_is_named(
    plugin: str, command: tuple[str, ...], cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"scores_{plugin.lower()}.py"
    file.write_text(BAD_SCORES)
    assert main([*command, cluster, "--plugin", f"{file}:{plugin}"]) == 2
    captured = capsys.readouterr()
    assert "because a plugin failed" in captured.err
    assert plugin in captured.err


def test_too_many_nodes_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--nodes", "2000000"]) == 2
    assert "2000000 is not in the range 0<=x<=100000" in capsys.readouterr().err
