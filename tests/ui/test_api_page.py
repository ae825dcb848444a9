"""docs/ui-api.md is true: it has every request of the server, and the fields of its responses."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.testing import make_node
from bayplan.ui import server
from bayplan.ui.questions import Changes
from bayplan.ui.sources import from_loaded

from .test_server import CLUSTER, client_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "ui-api.md").read_text(encoding="utf-8")
ROWS: dict[str, str] = dict(re.findall(r"^\| `((?:GET|POST) [^`]+)` \| (.*) \|$", PAGE, re.MULTILINE))
"""What the page says about a request, by the request."""

ASKED = {
    "changes": "changes?from=0&to=1",
    "nodes/NAME": "nodes/gpu-1",
    "pods/NAMESPACE/NAME": "pods/ml/serve-0",
    "groups/NAMESPACE/NAME": "groups/ml/serve",
    "fit": "fit?pod=ml/serve-0",
    "search": "search?q=serve",
}
BODIES: dict[str, dict[str, Any]] = {
    "whatif": {"changes": [{"type": "drain", "node": "gpu-1"}]},
    "compare": {"variants": [{}, {}]},
}
FIELDS = {
    "changes": PAGE.partition("| `changes` |")[2].partition("\n")[0],
    "whatif": PAGE.partition("The response has")[2],
}
"""What the page says elsewhere about a response."""
OF_STATES = {"seq", "time"}
"""The page describes them once for all responses."""
VALUES = {"cluster", "files", "simulation", "recording"}
"""Words of the page that look like fields, and are values."""
TESTED_ELSEWHERE = {"events", "decisions/SEQ", "writes", "/ui/logout"}
"""Without a JSON response, or only of a cluster that changes."""


def served() -> Iterator[str]:
    """The requests that the server has, as in the page, with * for what is variable."""
    for function in (server.Page._get, server.Page._post):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.MatchSequence):
                constants = [ast.unparse(one).strip("'") for one in node.patterns]
                yield "/".join(
                    "*" if isinstance(one, ast.MatchAs) else text
                    for one, text in zip(node.patterns, constants, strict=True)
                )
    yield from ("events", "writes", "/ui/logout")


def test_every_request_is_described() -> None:
    described = {re.sub(r"[A-Z]{3,}", "*", row.split(" ")[1].partition("?")[0]) for row in ROWS}
    assert described == set(served())


def test_every_change_is_described() -> None:
    made = set(re.findall(r'"(\w+)": self\._', inspect.getsource(Changes.make)))
    part = PAGE.partition("## Changes of")[2]
    assert made == set(re.findall(r'"type": "(\w+)"', part)) | set(re.findall(r"`(drain|removeNode)`", part))


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for one in value.values() for key in keys(one)}
    return {key for one in value for key in keys(one)} if isinstance(value, list) else set()


def everything() -> LoadedCluster:
    """A cluster with groups, capacity queues and workloads."""
    files = tuple(str(EXAMPLES / name) for name in ("groups.yaml", "queues/cluster.yaml"))
    config = str(EXAMPLES / "queues" / "scheduler.yaml")
    loaded = load_cluster(SourceOptions(files=files, config_file=config))
    return replace(loaded, objects=(*loaded.objects, *CLUSTER))


def path_of(row: str) -> str:
    return row.split(" ")[1].partition("?")[0]


@pytest.mark.parametrize("row", [row for row in ROWS if path_of(row) not in TESTED_ELSEWHERE])
def test_the_fields_of_responses(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is described is there; what is there is described, except in objects that other pages describe."""
    monkeypatch.chdir(ROOT)  # the configuration names its queues.yaml from there
    path = path_of(row)

    async def main() -> Any:
        subject, hub = from_loaded(everything(), time.time)
        hub.history.put(make_node("gpu-1", cpu="8"))
        async with client_of(subject, hub) as client:
            if row.startswith("POST"):
                return await client.post(f"api/v1/{path}", BODIES[path])
            return await client.get(f"api/v1/{ASKED.get(path, path)}")

    found = asyncio.run(main())
    text = FIELDS.get(path, ROWS[row])
    is_other_object = "he object" in ROWS[row]
    if is_other_object:
        text = text.partition("with `")[1] + text.partition("with `")[2]
    described = set(re.findall(r"`([a-z]\w*)`", text))
    assert described - VALUES - keys(found) == set()
    assert is_other_object or set(found) - described - OF_STATES == set()
