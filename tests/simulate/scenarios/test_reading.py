"""Scenario files: everything is checked before the start, and errors name file, line and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayplan.api.meta import OWN_API_VERSION
from bayplan.errors import InputError
from bayplan.simulate.scenarios.reading import read_scenario

from .building import ROOT, load, template

HEAD = f"apiVersion: {OWN_API_VERSION}\nkind: Scenario\n"


@pytest.mark.parametrize(
    ("workload", "field", "problem"),
    [
        pytest.param({"runTime": "fast"}, "runTime", "'fast' is not a duration", id="a duration"),
        pytest.param({"runTime": "-5m"}, "runTime", "'-5m' is negative", id="a negative duration"),
        pytest.param({"runTime": {}}, "runTime", "set exactly one of", id="an empty distribution"),
        pytest.param(
            {"runTime": {"uniform": {"min": "2m", "max": "1m"}}},
            "runTime.uniform.max",
            "less than",
            id="order",
        ),
        pytest.param(
            {"runTime": {"lognormal": {"median": "0s", "sigma": 1}}},
            "runTime.lognormal.median",
            "greater than 0",
            id="a median of zero",
        ),
        pytest.param({"kind": "StatefulSet"}, "kind", "StatefulSet", id="an unknown kind"),
        pytest.param(
            {"kind": "Job", "replicas": 3}, "replicas", "only for kind Deployment", id="another kind's"
        ),
        pytest.param({"kind": "Gang", "size": 2, "minMember": 3}, "minMember", "exceed size", id="minMember"),
        pytest.param({"name": "No_Name"}, "name", "'No_Name' is not a valid name", id="a name"),
        pytest.param({"arrivals": {"poisson": {}}}, "arrivals.poisson", "every and perHour", id="no rate"),
        pytest.param(
            {"arrivals": {"constant": {"every": "1ns"}}},
            "arrivals.constant.every",
            "at least 0.001s",
            id="flood",
        ),
        pytest.param(
            {"arrivals": {"poisson": {"perHour": 0}}},
            "arrivals.poisson.perHour",
            "greater than 0",
            id="rate 0",
        ),
        pytest.param(
            {"arrivals": {"constant": {"every": "0s"}}}, "arrivals.constant.every", "greater", id="every 0"
        ),
        pytest.param(
            {"arrivals": {"at": ["1h"], "poisson": {"perHour": 1}}}, "arrivals", "only one of", id="two"
        ),
        pytest.param(
            {"arrivals": {"whenever": 1}}, "arrivals", "unknown field `whenever`", id="unknown field"
        ),
        pytest.param(
            {"template": template(cpu="1x")},
            "template.spec.containers[0].resources.requests[cpu]",
            "1x",
            id="a quantity",
        ),
        pytest.param({"template": {"sepc": {}}}, "template.sepc", "unknown field", id="a template's field"),
        pytest.param(
            {"template": template(priorityClassName="high")},
            "template.spec.priorityClassName",
            "no PriorityClass",
            id="a priority class",
        ),
    ],
)
def test_workload_errors_name_the_field(workload: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        load({"name": "w", **workload})
    assert raised.value.field == f"workloads[0].{field}"
    assert problem in raised.value.problem
    assert str(raised.value).startswith("test.yaml: ")


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        pytest.param({"kind": "Pod"}, "kind", "expected Scenario, got 'Pod'", id="another kind"),
        pytest.param({"apiVersion": "v1"}, "apiVersion", "got 'v1'", id="another version"),
        pytest.param({"duration": "0s"}, "duration", "greater than 0", id="no duration"),
        pytest.param({"duration": 5}, "duration", "expected a string, got an integer", id="a number"),
        pytest.param({"sampleInterval": "1ms"}, "sampleInterval", "more than 100,000", id="many samples"),
        pytest.param({"workloads": []}, "workloads", "nothing to schedule", id="no workload"),
        pytest.param({"events": [{"at": "1h"}]}, "events[0]", "exactly one of", id="an empty event"),
        pytest.param(
            {"events": [{"at": "1h", "addNodes": {"group": "x", "count": 1}}]},
            "events[0].addNodes.group",
            "no group of nodes is named 'x'; there are: n",
            id="an unknown group",
        ),
        pytest.param(
            {"events": [{"at": "1h", "scale": {"workload": "w", "replicas": 1}}]},
            "events[0].scale.workload",
            "no Deployment is named 'w'",
            id="scaling a pod",
        ),
        pytest.param(
            {"failures": [{"meanTimeBetween": "0s"}]},
            "failures[0].meanTimeBetween",
            "greater than 0",
            id="mtbf",
        ),
        pytest.param(
            {"groups": [{"name": "n", "count": 1, "allocatable": {"cpu": "x"}}]},
            "cluster.nodes[0].status.allocatable[cpu]",
            "x",
            id="a node's quantity",
        ),
        pytest.param(
            {"groups": [{"name": "n", "count": -1}]}, "cluster.nodes[0].count", ">= 0", id="a negative count"
        ),
        pytest.param(
            {"groups": [{"name": "n", "count": 1}] * 2},
            "cluster.nodes[1].name",
            "two groups",
            id="two groups",
        ),
    ],
)
def test_scenario_errors_name_the_field(fields: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        load({"name": "w"}, **fields)
    assert raised.value.field == field
    assert problem in raised.value.problem


def test_errors_have_the_line(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"{HEAD}workloads:\n- name: a\n- name: b\n  runTime: later\n")
    with pytest.raises(InputError, match=r"s\.yaml:6: workloads\[1\]\.runTime: 'later' is not a duration"):
        read_scenario(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "expected one document of kind Scenario", id="empty"),
        pytest.param("- a", "expected one document of kind Scenario", id="a list"),
        pytest.param(f"{HEAD}---\n{HEAD}", "expected one document of kind Scenario", id="two"),
        pytest.param(f"{HEAD}cluster: {{files: [missing.yaml]}}", "missing.yaml: No such file", id="missing"),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem):
        read_scenario(file)


def test_the_example_is_valid() -> None:
    loaded = read_scenario(ROOT / "examples" / "scenario.yaml")
    assert loaded.name == "working-day"
    assert loaded.duration == 8 * 3600
    assert loaded.templates["web"].spec.priority == 1000
    assert loaded.templates["report"].spec.priority == 0


def test_the_scenario_of_the_benchmark_is_valid() -> None:
    loaded = read_scenario(ROOT / "benchmarks" / "simulated-day.yaml")
    assert loaded.duration == 24 * 3600
    assert loaded.templates
