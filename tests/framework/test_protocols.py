"""The protocols of the extension points: mypy holds plugins that derive from them to the contract."""

from __future__ import annotations

from pathlib import Path

from mypy import api

HEADER = """
from collections.abc import Iterable
from bayplan.plugin import CycleState, FilterPlugin, IntColumn, NodeColumns, Plugin, Pod, Reject, ScorePlugin
"""

RIGHT = """
class Right(Plugin, FilterPlugin, ScorePlugin):
    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        return [Reject(nodes.unschedulable, "cordoned")]

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return nodes.pod_count
"""

WRONG = """
class WrongArguments(Plugin, FilterPlugin):
    def filter(self, pod: Pod, nodes: NodeColumns) -> Iterable[Reject]:
        return []


class WrongAnswer(Plugin, FilterPlugin):
    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> bool:
        return True
"""


def test_mypy_finds_a_filter_with_a_wrong_signature(tmp_path: Path) -> None:
    module = tmp_path / "wrong_plugin.py"
    module.write_text(HEADER + RIGHT + WRONG)
    found, _, code = api.run([str(module), "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"])
    errors = [line for line in found.splitlines() if ": error:" in line and module.name in line]
    assert code == 1
    assert ["override" in line for line in errors] == [True, True], found
    assert "Right" not in "".join(errors)
