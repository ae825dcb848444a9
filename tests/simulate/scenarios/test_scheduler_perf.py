"""Workloads of scheduler_perf: their operations are performed in order, others are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.errors import InputError
from bayplan.simulate.scenarios.result import make_result
from bayplan.simulate.scenarios.run import Finished, simulate
from bayplan.simulate.scenarios.scheduler_perf import read_benchmark

from .building import load

POD = """
apiVersion: v1
kind: Pod
metadata: {generateName: pod-}
spec:
  containers:
  - {name: pause, resources: {requests: {cpu: "1", memory: 500Mi}}}
"""
NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata: {name: x, labels: {team: devops}}
"""
CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: "class-{{.Index}}"}
value: 5
"""
NODES = {"opcode": "createNodes", "countParam": "$initNodes"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    for name, text in (("pod", POD), ("namespace", NAMESPACE), ("class", CLASS)):
        (tmp_path / "templates" / f"{name}.yaml").write_text(text)
    (tmp_path / "misc").mkdir()
    return tmp_path / "misc"


def write(directory: Path, *operations: dict[str, Any], **case: Any) -> Path:
    """A test case `T` with a workload `W`."""
    params = {"initNodes": 2, "pods": 4, "pause": "30s"}
    content = [
        {
            "name": "T",
            "workloadTemplate": list(operations),
            "workloads": [{"name": "W", "params": params, "labels": ["performance"], "threshold": 5}],
            **case,
        }
    ]
    path = directory / "performance-config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(directory: Path, *operations: dict[str, Any], run_time: str | None = None) -> Finished:
    write(directory, *operations)
    wanted = {"file": "performance-config.yaml", "testCase": "T", "workload": "W"}
    if run_time:
        wanted["runTime"] = run_time
    return simulate(load(groups=[], directory=directory, schedulerPerf=wanted))


def test_operations_are_performed_in_order(files: Path) -> None:
    """Pods of the second operation are created when those of the first are scheduled, plus the pause."""
    finished = run(
        files,
        {**NODES, "labelNodePrepareStrategy": {"labelKey": "zone", "labelValues": ["a", "b"]}},
        {"opcode": "createPods", "countParam": "$pods"},
        {"opcode": "startCollectingMetrics", "name": "x"},
        {"opcode": "sleep", "durationParam": "$pause"},
        {
            "opcode": "createPods",
            "count": 3,
            "podTemplatePath": "../templates/pod.yaml",
            "collectMetrics": True,
        },
        run_time="10m",
    )
    result = make_result(finished)
    assert [(one.name, one.arrived, one.finished) for one in result.workloads] == [
        ("T: pod-1", 4, 4),
        ("T: pod-4", 3, 3),
    ]
    assert {pod.arrived for pod in finished.figures.pods} == {0, 30}
    assert (result.nodes.start, result.nodes.end) == (2, 2)


def test_pods_that_do_not_fit_stop_the_workload(files: Path) -> None:
    """Two nodes have room for eight such pods; the rest of the workload waits, as the result shows."""
    finished = run(
        files,
        NODES,
        {"opcode": "createPods", "count": 9, "podTemplatePath": "../templates/pod.yaml"},
        {"opcode": "createPods", "count": 1},
    )
    assert finished.figures.waiting == 1
    assert len(finished.figures.pods) == 9
    assert any("operation 3 of 5 waits" in note for note in finished.notes)


def test_namespaces_pod_sets_churn_and_barriers(files: Path) -> None:
    namespaces = {"opcode": "createNamespaces", "prefix": "ns", "count": 2}
    finished = run(
        files,
        NODES,
        {**namespaces, "namespaceTemplatePath": "../templates/namespace.yaml"},
        {"opcode": "createAny", "templatePath": "../templates/class.yaml", "count": 2},
        {
            "opcode": "createPodSets",
            "count": 2,
            "namespacePrefix": "ns",
            "createPodsOp": {"opcode": "createPods", "count": 2, "skipWaitToCompletion": True},
        },
        {"opcode": "barrier"},
        {"opcode": "churn", "mode": "create", "number": 3, "intervalMilliseconds": 500,
         "templatePaths": ["../templates/pod.yaml"]},
    )  # fmt: skip
    pods = finished.figures.pods
    assert [pod.key for pod in pods] == [
        *("ns-0/pod-3-0", "ns-0/pod-3-1", "ns-1/pod-3-0", "ns-1/pod-3-1"),
        *("churn-5/churn-5-0-0", "churn-5/churn-5-0-1", "churn-5/churn-5-0-2"),
    ]
    assert [pod.arrived for pod in pods[4:]] == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        pytest.param({"opcode": "createResourceDriver"}, "opcode 'createResourceDriver' is not", id="opcode"),
        pytest.param({"opcode": "createPods", "countParam": "$x"}, "no parameter 'x'", id="parameter"),
        pytest.param({"opcode": "createPods", "count": -1}, "-1 is not a number from 0", id="count"),
        pytest.param({"opcode": "createPods"}, "None is not a number", id="no count"),
        pytest.param(
            {"opcode": "createPods", "count": 1, "podTemplatePath": "missing.yaml"}, "missing.yaml", id="file"
        ),
        pytest.param(
            {"opcode": "createPods", "count": 1, "podTemplatePath": "../templates/class.yaml"},
            "expected one Pod",
            id="another kind",
        ),
        pytest.param(
            {"opcode": "createPods", "count": 1, "persistentVolumeTemplatePath": "pv.yaml"},
            "persistent volumes are not supported",
            id="volumes",
        ),
        pytest.param({"opcode": "churn", "mode": "recreate"}, "mode 'recreate' is not supported", id="churn"),
        pytest.param({"opcode": "sleep", "duration": "soon"}, "'soon' is not a duration", id="sleep"),
    ],
)
def test_errors_name_the_operation(files: Path, operation: dict[str, Any], problem: str) -> None:
    path = write(files, operation)
    with pytest.raises(InputError) as raised:
        read_benchmark(path, "T", "W")
    assert raised.value.field == "T: workloadTemplate[0]"
    assert problem in raised.value.problem


def test_unknown_names_and_other_files(files: Path) -> None:
    path = write(files, NODES)
    with pytest.raises(InputError, match="no test case 'X'; there are: T"):
        read_benchmark(path, "X", "W")
    with pytest.raises(InputError, match="T has no workload 'X'; there are: W"):
        read_benchmark(path, "T", "X")
    path.write_text("a: 1")
    with pytest.raises(InputError, match="not a scheduler_perf file"):
        read_benchmark(path, "T", "W")
