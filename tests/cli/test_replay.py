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


START = {"op": "start"}
RECORDED: dict[str, Any] = {"bound": {}, "evicted": [], "waiting": {}, "groups": {}}
TOO_LITTLE = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
    "1 Preemption is not helpful for scheduling."
)
UNSCHEDULABLE = {"reason": "Unschedulable", "message": TOO_LITTLE}


def _pod(name: str, cpu: str = "3", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {**POD["spec"], "terminationGracePeriodSeconds": 0, "containers": [container], **spec}  # type: ignore[dict-item]  # a dict
    meta = {"name": name, "namespace": "default"}
    return {"op": "create", "object": {**POD, "metadata": meta, "spec": spec}}


def _settle(**recorded: Any) -> dict[str, Any]:
    return {"op": "settle", **RECORDED, **recorded}


def _updated(**amounts: str) -> dict[str, Any]:
    """The node with other amounts."""
    allocatable = {"memory": "8Gi", "pods": "10", **amounts}
    return {"op": "update", "object": {**NODE, "status": {"allocatable": allocatable}}}


def _group_run(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "run", "config": CONFIG, "steps": [CREATE, *steps], **fields}


GONE = {"name": "a", "namespace": "default"}
GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


@pytest.mark.parametrize(
    ("steps", "results"),
    [
        pytest.param(
            [_pod("a"), START, _settle()],
            [{**RECORDED, "bound": {"default/a": "n"}}],
            id="a pod that exists at the start",
        ),
        pytest.param(
            [START, _pod("a"), _settle(), _settle()],
            [{**RECORDED, "bound": {"default/a": "n"}}, RECORDED],
            id="a pod is reported once",
        ),
        pytest.param(
            [
                START,
                _pod("a"),
                _settle(),
                {"op": "started", **GONE, "startTime": "2026-01-01T00:00:00Z"},
                _pod("b", priority=5),
                _settle(),
            ],
            [
                {**RECORDED, "bound": {"default/a": "n"}},
                {**RECORDED, "bound": {"default/b": "n"}, "evicted": ["default/a"]},
            ],
            id="a pod that is preempted",
        ),
        pytest.param(
            [START, _pod("a"), _settle(), {"op": "delete", "kind": "Pod", **GONE}, _settle()],
            [{**RECORDED, "bound": {"default/a": "n"}}, RECORDED],
            id="a pod that a step deletes is not evicted",
        ),
        pytest.param(
            [_pod("a", schedulingGates=[{"name": "hold"}]), START, {"op": "ungate", **GONE}, _settle()],
            [{**RECORDED, "bound": {"default/a": "n"}}],
            id="a gate is removed",
        ),
        pytest.param(
            [_pod("a", schedulerName="other"), START, _settle(), {"op": "restart"}, _pod("b"), _settle()],
            [
                {**RECORDED, "waiting": {"default/a": {}}},
                {**RECORDED, "bound": {"default/b": "n"}, "waiting": {"default/a": {}}},
            ],
            id="a restart",
        ),
        pytest.param(
            [
                {"op": "create", "object": GROUP},
                {"op": "minCount", "name": "g", "namespace": "default", "minCount": 3},
                _settle(),
            ],
            [{**RECORDED, "groups": {"default/g": {}}}],
            id="a group without members",
        ),
        pytest.param(
            [START, _updated(cpu="0"), _pod("a"), _settle(), _updated(cpu="4"), _settle()],
            [
                {**RECORDED, "waiting": {"default/a": UNSCHEDULABLE}},
                {**RECORDED, "bound": {"default/a": "n"}},
            ],
            id="a node changes",
        ),
        pytest.param(
            [START, _pod("a", schedulingGates=[{"name": "hold"}]), _settle()],
            [{**RECORDED, "waiting": {"default/a": {}}}],
            id="a gated pod shows nothing of the scheduler",
        ),
    ],
)
def test_a_run_with_groups_is_played(
    steps: list[Any],
    results: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _replay(tmp_path, _group_run(*steps)) == 0
    assert json.loads(capsys.readouterr().out)["results"] == results


BOUND_EVENT = ["Pod", "default/a", "Scheduled", "Successfully assigned default/a to n"]


def test_events_are_printed_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(_group_run(START, _pod("a"), _settle(), _settle())))
    assert main(["replay", "--events", str(file)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["events"] for result in results] == [[BOUND_EVENT], []]


@pytest.mark.parametrize(
    ("recorded", "difference"),
    [
        pytest.param([BOUND_EVENT], "the same", id="equal"),
        pytest.param(None, "the same", id="not recorded"),
        pytest.param([], f"settle 0: event {BOUND_EVENT} is not recorded", id="one more"),
        pytest.param([BOUND_EVENT, ["Pod"]], "settle 0: event ['Pod'] is missing", id="one less"),
    ],
)
def test_events_are_compared_on_demand(
    recorded: list[list[str]] | None,
    difference: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "runs.jsonl"
    settle = _settle(bound={"default/a": "n"}, events=recorded)
    file.write_text(json.dumps(_group_run(START, _pod("a"), settle)))
    assert main(["replay", "--check", "--events", str(file)]) == (difference != "the same")
    assert capsys.readouterr().out.startswith(f"run: {difference}\n")


@pytest.mark.parametrize(
    ("recorded", "difference"),
    [
        pytest.param(
            {"bound": {"default/a": "m"}},
            "settle 0: bound default/a is 'n', recorded is 'm'",
            id="another node",
        ),
        pytest.param(
            {"bound": {"default/a": "n"}, "evicted": ["default/z"]},
            "settle 0: evicted is [], recorded is ['default/z']",
            id="another victim",
        ),
        pytest.param({"bound": {"default/a": "n"}}, "the same", id="no difference"),
    ],
)
def test_the_first_difference_of_a_run_with_groups(
    recorded: dict[str, Any], difference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(_group_run(START, _pod("a"), _settle(**recorded))))
    assert main(["replay", "--check", str(file)]) == (difference != "the same")
    assert capsys.readouterr().out.startswith(f"run: {difference}\n")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param(_group_run(_settle(), {"op": "schedule"}), "Invalid value 'schedule'", id="a step"),
        pytest.param(
            _group_run(_settle(), {"op": "create", "object": {"kind": "Planet"}}),
            "unknown kind 'Planet'",
            id="an unknown kind",
        ),
        pytest.param(
            _group_run(_settle(), {"op": "delete", "kind": "Planet", "name": "p"}),
            "'Planet' is not a kind",
            id="a deleted kind",
        ),
        pytest.param(
            _group_run(_settle(), featureGates={"Planets": True}),
            "featureGates: unrecognized feature gate: Planets",
            id="a gate",
        ),
    ],
)
def test_what_is_wrong_with_a_run_with_groups(
    run: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _replay(tmp_path, run) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path / 'runs.jsonl'}:2: "), error
    assert message in error
