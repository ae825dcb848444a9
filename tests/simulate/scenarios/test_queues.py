"""Capacity queues in a simulation: waiting times, shares and fairness by queue."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from bayplan.api import volcano
from bayplan.api.meta import Object, ObjectMeta
from bayplan.config import QueueDialect, QueuesConfiguration, default_config
from bayplan.simulate.scenarios.output import print_result, write_csv
from bayplan.simulate.scenarios.queue_figures import NO_QUEUE, jain_index
from bayplan.simulate.scenarios.report import make_page
from bayplan.simulate.scenarios.result import Result, make_result
from bayplan.simulate.scenarios.run import Finished, simulate

from .building import load, nodes, template

QUEUES = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - {name: a, resources: {guaranteed: {vcore: 4}}}
    - {name: b, resources: {guaranteed: {vcore: 4}}}
    - {name: small, resources: {max: {vcore: 1}}}
"""


def workload(name: str, queue: str, count: int, run_time: str = "10m") -> dict[str, Any]:
    pods = template(cpu="1")
    pods["metadata"]["labels"] = {"queue": queue, "applicationId": name}
    arrivals = {"constant": {"every": "1m"}, "count": count}
    return {"name": name, "arrivals": arrivals, "runTime": run_time, "template": pods}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    file = tmp_path_factory.mktemp("queues") / "queues.yaml"
    file.write_text(QUEUES)
    config = default_config()
    queues = replace(config.bayplan, queues=QueuesConfiguration(file=str(file)))
    scenario = load(
        workload("one", "root.a", 15),
        workload("two", "root.b", 15),
        workload("three", "root.small", 3),
        workload("lost", "root.none", 2),
        groups=[nodes(1, cpu="9")],
    )
    return simulate(scenario, config=replace(config, bayplan=queues))


@pytest.fixture(scope="module")
def result(finished: Finished) -> Result:
    return make_result(finished)


def test_every_pod_is_counted_in_its_queue(result: Result) -> None:
    counts = {one.queue: (one.arrived, one.scheduled, one.waiting) for one in result.capacity_queues}
    assert counts == {
        NO_QUEUE: (2, 0, 2),
        "root.a": (15, 15, 0),
        "root.b": (15, 15, 0),
        "root.small": (3, 3, 0),
    }
    assert sum(one.arrived for one in result.capacity_queues) == result.pods.arrived


def test_shares_are_those_that_order_queues(result: Result) -> None:
    """Two queues get their four cores each while both have pods waiting; one core is left for the third."""
    shares = {one.queue: one for one in result.capacity_queues}
    assert shares["root.a"].share_while_competing == pytest.approx(1.0, abs=0.15)
    assert shares["root.small"].share_while_competing is None, "its own maximum keeps its pods out"
    assert result.fairness is not None
    assert 0.9 < result.fairness.min <= result.fairness.mean <= 1
    assert {len(values) for values in result.series.shares.values()} == {len(result.series.times)}


def test_waiting_for_quota_is_a_reason(result: Result) -> None:
    reasons = {one.reason: one.pod_seconds for one in result.reasons}
    assert reasons["waiting for quota of queue root.small: vcore"] == pytest.approx(9 * 60 + 18 * 60)
    assert any(reason.endswith("(queue root.none does not exist)") for reason in reasons)


def test_table_csv_and_report_have_the_queues(finished: Finished, result: Result, tmp_path: Path) -> None:
    text = io.StringIO()
    print_result(Console(file=text, width=160), result)
    assert "  capacity queue" in text.getvalue()
    assert "  fairness " in text.getvalue()
    page = make_page(result)
    assert '<section id="capacity-queues">' in page
    assert "Share of each queue over time" in page
    paths = {path.stem: path for path in write_csv(tmp_path, finished, result)}
    rows = list(csv.DictReader(paths["queues"].read_text("utf-8").splitlines()))
    assert [row["queue"] for row in rows] == [NO_QUEUE, "root.a", "root.b", "root.small"]
    assert "share root.a" in paths["samples"].read_text("utf-8").splitlines()[0]


def test_queues_of_volcano() -> None:
    """Queue objects come from the cluster's files."""
    config = default_config()
    queues = replace(config.bayplan, queues=QueuesConfiguration(dialect=QueueDialect.VOLCANO))
    objects: list[Object] = [
        volcano.Queue(metadata=ObjectMeta(name=name), spec=volcano.QueueSpec(weight=weight))
        for name, weight in (("a", 3), ("b", 1))
    ]
    pods = {name: template(cpu="1") for name in "ab"}
    for name, content in pods.items():
        content["metadata"]["annotations"] = {volcano.QUEUE_ANNOTATION: name}
    workloads = (
        {"name": name, "arrivals": {"constant": {"every": "1m"}}, "runTime": "20m", "template": pods[name]}
        for name in "ab"
    )
    scenario = load(*workloads, groups=[nodes(1, cpu="8")], objects=objects)
    result = make_result(simulate(scenario, config=replace(config, bayplan=queues)))
    assert {one.queue: one.share.max for one in result.capacity_queues} == {"a": 1.0, "b": 1.0}
    assert any(one.reason == "waiting for queue a: cpu" for one in result.reasons), (
        "what it deserves is its limit"
    )


@pytest.mark.parametrize(
    ("shares", "index"),
    [
        pytest.param([2.0, 2.0], 1.0, id="equal"),
        pytest.param([1.0, 0.0, 0.0, 0.0], 0.25, id="one has everything"),
        pytest.param([0.0, 0.0], 1.0, id="nobody has anything"),
    ],
)
def test_jain_index(shares: list[float], index: float) -> None:
    assert jain_index(shares) == index
