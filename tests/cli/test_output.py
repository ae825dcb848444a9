"""Tests for the output of commands that answer questions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from bayplan.answers.sources.warnings import Warning
from bayplan.cli.output import JSON, YAML, make_console, print_document, print_table, print_warnings

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "src" / "bayplan" / "cli"


@pytest.mark.parametrize(("output", "read"), [(JSON, json.loads), (YAML, yaml.safe_load)])
def test_document_has_version_and_kind(output: str, read: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(read)
    print_document("Capacity", {"name": "é", "pods": ("a", "b")}, output)
    printed = read(capsys.readouterr().out)
    assert printed == {"apiVersion": "bayplan/v1", "kind": "Capacity", "name": "é", "pods": ["a", "b"]}


def test_documented_kinds() -> None:
    page = (ROOT / "docs" / "versions.md").read_text().partition("## Documents of bayplan")[2]
    listed = {
        kind
        for line in page.splitlines()
        if line.startswith("| `")
        for kind in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    found = re.findall(
        r'print_document\(\s*"(\w+)"', "\n".join(file.read_text() for file in COMMANDS.glob("*.py"))
    )
    assert {*found, "BayplanConfiguration", "Scenario", "SimulationResult"} == listed


def test_equal_warnings_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    console = make_console()
    print_warnings(console, [Warning("gone", "a/b"), Warning("gone", "a/c"), Warning("other")])
    assert capsys.readouterr().out == "warning: a/b and 1 more: gone\nwarning: other\n"


def test_tables_have_no_spaces_at_the_end_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(make_console(), ("pod", "node"), [("a", "n1"), ("longer", "n")])
    assert capsys.readouterr().out == "  pod     node\n  a       n1\n  longer  n\n"
