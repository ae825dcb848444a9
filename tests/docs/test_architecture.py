"""What ARCHITECTURE.md says about the code is true of it, where that can be checked."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bayplan.runtime.profile import METHODS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bayplan"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()

CALLERS = ("runtime/calls.py", "runtime/extension_points.py")
OWN_INSTANCES = ("testing/", "cli/", "answers/explain/")
"""Checks of plugins, and explanations of Permit, call instances of their own."""

POINT_METHODS = {*METHODS.values(), "unreserve", "pre_bind_pre_flight", "normalize", "rejected_rows"}


def defined(path: Path) -> set[str]:
    """`function`, `Class` and `Class.method` of a file."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if hasattr(item, "name")}
    return names


def test_the_tour_names_functions_that_exist() -> None:
    steps = re.findall(r"^\| (\d+) \| `([\w/]+\.py)` `([\w.]+)` \|", PAGE, re.MULTILINE)
    assert [number for number, _, _ in steps] == [str(number) for number in range(1, 11)]
    assert [step for step in steps if step[2] not in defined(SOURCE / step[1])] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+/[\w/]+\.py)`", PAGE))))
def test_the_files_that_it_names_exist(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def test_plugins_are_called_in_one_place() -> None:
    """A call such as `step.plugin.reserve(…)` stands in the two modules that run extension points."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if name in CALLERS or name.startswith(OWN_INSTANCES):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="plugin"), attr=method)):
                    if method in POINT_METHODS:
                        found.append(f"{name}:{node.lineno} {method}")
    assert found == []
