"""Recorded decisions of YuniKorn come out of the engine, and depend on it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayplan.queues import quota, tree, users, victims
from bayplan.queues.tree import Queue, Task
from conformance.reference.__main__ import main
from conformance.reference.queues import evaluate

RECORDED = Path(__file__).parents[2] / "conformance" / "queues"


def read(name: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDED / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        items = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in (None, {}, [])}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def differences(line: dict[str, Any]) -> Iterator[str]:
    """The fields of a result that differ from the recorded ones, of those that the result has."""
    want, got = without_empty(line["expect"]), without_empty(evaluate(line))
    if str(want.get("error", "")).startswith("yaml:"):
        want["error"] = got.get("error", want["error"])
    for field in {"error", "steps", "nodes", "reservations"} | set(got):
        if want.get(field) != got.get(field):
            yield field


RUNS = read("yunikorn-runs")
KINDS = sorted({line["scenario"]["kind"] for line in RUNS})


@pytest.mark.parametrize("kind", KINDS)
def test_runs(kind: str) -> None:
    """Every recorded run has the same decisions, allocations, reservations and queues."""
    lines = [line for line in RUNS if line["scenario"]["kind"] == kind]
    wrong = {line["scenario"]["name"]: list(differences(line)) for line in lines}
    assert not {name: fields for name, fields in wrong.items() if fields}


def test_configurations() -> None:
    """Every recorded configuration is accepted, or rejected with the same text."""
    wrong = {line["scenario"]["name"]: list(differences(line)) for line in read("yunikorn-configs")}
    assert not {name: fields for name, fields in wrong.items() if fields}


def test_generated_scenarios() -> None:
    """Mutations of recorded runs and configurations have the results of YuniKorn's own code."""
    wrong = {line["scenario"]["name"]: list(differences(line)) for line in read("yunikorn-generated")}
    assert len(wrong) > 300
    assert not {name: fields for name, fields in wrong.items() if fields}


def broken_share(queue: Queue) -> float:
    return -sum(queue.used.values())


def broken_room(queue: Queue) -> None:
    return None


def broken_order(queue: Queue) -> tuple[float, float, float, str]:
    return (0.0, 0.0, 0.0, queue.path)


def broken_key(task: Task) -> tuple[int, float, str]:
    return (0, task.created, task.key)


@pytest.mark.parametrize(
    ("module", "name", "broken", "kind"),
    [
        pytest.param(tree, "share", broken_share, "fair-queues", id="share"),
        pytest.param(tree, "room", broken_room, "hierarchy-max", id="room"),
        pytest.param(tree, "queue_key", broken_order, "priority", id="order of queues"),
        pytest.param(tree, "group_key", lambda group: (group.name,), "fifo", id="order of groups"),
        pytest.param(tree, "may_start", lambda *_: True, "max-apps", id="number of groups"),
        pytest.param(victims, "may_lose", lambda *_: False, "preemption", id="guarantee of victims"),
        pytest.param(victims, "is_entitled", lambda *_: False, "preemption", id="entitlement"),
        pytest.param(victims, "victim_key", broken_key, "preemption-large", id="choice of victims"),
        pytest.param(quota, "excess", lambda _: {}, "quota-preemption", id="excess above the ceiling"),
        pytest.param(users.UserLimits, "room", lambda *_: None, "user-limits", id="user limits"),
    ],
)
def test_a_broken_function_changes_recorded_runs(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, kind: str
) -> None:
    """The reference has no rules of its own for these: breaking the engine's function breaks its results."""
    monkeypatch.setattr(module, name, broken)
    lines = [line for line in RUNS if line["scenario"]["kind"] == kind]
    assert any(set(differences(line)) & {"steps"} for line in lines)


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`python -m conformance.reference` prints a line for each scenario."""
    line = next(line for line in RUNS if line["scenario"]["kind"] == "fifo")
    path = tmp_path / "one.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    monkeypatch.setattr("sys.argv", ["reference", "queues", str(path)])
    assert main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["name"] == line["scenario"]["name"]
    assert without_empty(printed["result"]["steps"]) == without_empty(line["expect"]["steps"])
