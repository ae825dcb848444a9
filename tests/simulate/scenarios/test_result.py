"""The result: percentiles, fragmentation, reasons; as JSON, CSV and tables."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bayplan.simulate.scenarios.figures import fragmentation
from bayplan.simulate.scenarios.output import duration, print_result, write_csv
from bayplan.simulate.scenarios.result import Result, make_result, nearest_rank
from bayplan.simulate.scenarios.run import Finished

from .building import nodes, run, template


@pytest.fixture(scope="module")
def finished() -> Finished:
    return run(
        {
            "name": "w",
            "arrivals": {"constant": {"every": "5m"}},
            "runTime": "20m",
            "template": template(cpu="3"),
        },
        groups=[nodes(2)],
    )


def test_json_can_be_read_back(finished: Finished) -> None:
    result = make_result(finished)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
    raw: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    assert (raw["apiVersion"], raw["kind"]) == ("bayplan/v1", "SimulationResult")
    lengths = {len(values) for values in raw["series"].values() if isinstance(values, list)}
    assert lengths == {289}


def test_csv_files(finished: Finished, tmp_path: Path) -> None:
    result = make_result(finished)
    written = write_csv(tmp_path / "out", finished, result)
    assert [path.name for path in written] == ["samples.csv", "pods.csv", "workloads.csv", "reasons.csv"]
    tables = {path.stem: list(csv.DictReader(path.read_text("utf-8").splitlines())) for path in written}
    assert len(tables["samples"]) == 289
    assert len(tables["pods"]) == len(finished.figures.pods) == 12
    assert tables["pods"][0] == {
        "namespace": "default",
        "name": "w-0",
        "workload": "w",
        "arrived": "0.0",
        "scheduled": "0.0",
        "ended": "1200.0",
        "outcome": "succeeded",
        "node": "n-0",
        "attempts": "1",
    }
    assert float(tables["workloads"][0]["p99"]) == result.waiting_time.p99
    assert tables["reasons"][0]["reason"] == "Insufficient cpu"
    assert write_csv(tmp_path / "one.csv", finished, result) == [tmp_path / "one.csv"]


def test_tables(finished: Finished) -> None:
    console = Console(file=io.StringIO(), width=120)
    print_result(console, make_result(finished))
    file = console.file
    assert isinstance(file, io.StringIO)
    shown = file.getvalue()
    assert "test: 1h00m simulated, seed 0" in shown
    assert "NodeResourcesFit: Insufficient cpu" in shown
    assert "0 initial + 12 arrived" in shown


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.sampled_from([50, 90, 99]))
def test_percentiles_are_nearest_ranks(numbers: list[int], percent: int) -> None:
    found = nearest_rank(sorted(numbers), percent)
    at_most = sum(number <= found for number in numbers)
    below = sum(number < found for number in numbers)
    assert 100 * at_most >= percent * len(numbers)
    assert 100 * below < percent * len(numbers)


@pytest.mark.parametrize(
    ("free", "shapes", "share"),
    [
        pytest.param([4, 4], [({"cpu": 2}, 1)], 0.0, id="everything can be used"),
        pytest.param([1, 4], [({"cpu": 2}, 1)], 0.2, id="one node has too little"),
        pytest.param([1, 4], [({"cpu": 2}, 1), ({"cpu": 1}, 3)], 0.05, id="for one of four pods"),
        pytest.param([1, 4], [({"cpu": 9}, 1)], 1.0, id="nothing can be used"),
        pytest.param([1, 4], [({"memory": 1}, 1)], 0.0, id="nothing is requested"),
        pytest.param([1, 4], [({"cpu": 1, "x.org/gpu": 1}, 1)], 1.0, id="another resource is not there"),
        pytest.param([0, 0], [({"cpu": 1}, 1)], 0.0, id="nothing is free"),
        pytest.param([4, 4], [], 0.0, id="no pods"),
    ],
)
def test_fragmentation(free: list[int], shapes: list[tuple[dict[str, int], int]], share: float) -> None:
    amounts = {"cpu": np.array(free, dtype=np.int64), "memory": np.array([8, 8], dtype=np.int64)}
    found = fragmentation(amounts, np.array([10, 10], dtype=np.int64), shapes)
    assert found["cpu"] == pytest.approx(share)


def test_a_node_without_room_for_a_pod_is_unusable() -> None:
    amounts = {"cpu": np.array([3, 1], dtype=np.int64)}
    assert fragmentation(amounts, np.array([0, 1], dtype=np.int64), [({"cpu": 1}, 1)])["cpu"] == 0.75


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (3.25, "3.2s"), (65, "1m05s"), (7380, "2h03m"), (100_000, "1d03h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
