"""`bayplan replay`: a file that is not a recorded run is named with its line, and status 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.main import main

CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
}
CREATE = {"op": "create", "object": NODE}
SCHEDULE = {"op": "schedule", "pod": POD, "node": "n"}


def _run(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "run", "config": CONFIG, "namespaces": {"default": {}}, "steps": list(steps), **fields}


def _replay(tmp_path: Path, run: Any) -> int:
    file = tmp_path / "runs.jsonl"
    file.write_text(f"\n{json.dumps(run)}\n")
    return main(["replay", str(file)])


def test_a_run_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _replay(tmp_path, _run(CREATE, SCHEDULE)) == 0
    assert json.loads(capsys.readouterr().out)["results"] == [{"pod": "default/p", "node": "n"}]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param([], "this is not a recorded run: Expected `object`, got `array`", id="a list"),
        pytest.param({"name": "run"}, "Object missing required field `config`", id="nothing in it"),
        pytest.param(_run([]), "Expected `object`, got `array` - at `$.steps[0]`", id="a step: a list"),
        pytest.param(_run({"object": NODE}), "Object missing required field `op`", id="a step of no kind"),
        pytest.param(_run({"op": "jump"}), "Invalid value 'jump'", id="an unknown step"),
        pytest.param(_run({"op": "create"}), "Object missing required field `object`", id="no object"),
        pytest.param(_run(CREATE, namespaces={"a": ["b"]}), "Expected `object`, got `array`", id="labels"),
        pytest.param(_run({"op": "delete", "kind": "Node", "name": []}), "Expected `str`", id="a name"),
        pytest.param(
            _run({"op": "delete", "kind": "Planet", "name": "p"}), "'Planet' is not a kind", id="a kind"
        ),
        pytest.param(_run({**SCHEDULE, "started": "soon"}), "Invalid RFC3339 encoded datetime", id="a time"),
        pytest.param(_run({**CREATE, "object": {}}), "kind: it is missing", id="an object of no kind"),
        pytest.param(_run(CREATE, CREATE), "the run cannot be replayed: ", id="an object twice"),
        pytest.param(_run(config={"kind": "Pod"}), "apiVersion: missing", id="a configuration"),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Any, message: str
) -> None:
    assert _replay(tmp_path, run) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "runs.jsonl:2: " in error or "config" in error
    assert message in error
    assert error.count("\n") == 1
