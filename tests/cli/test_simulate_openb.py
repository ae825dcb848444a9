"""`bayplan simulate openb` on a small trace: what it prints and writes, and its error messages."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from bayplan.cli.main import main
from bayplan.simulate.openb.trace import PODS_FILE
from tests.simulate.openb.synthetic import write_trace

FIELDS = [
    "policy",
    "seed",
    "pods",
    "arrived_gpu_milli",
    "used_gpu_milli",
    "failed_pods",
    "alloc_at_100",
    "alloc_at_130",
    "frag_at_130",
    "seconds",
]


def test_one_run_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path)
    arguments = ["simulate", "openb", "--trace", str(tmp_path), "--policy", "FGD", "--seed", "5"]
    assert main([*arguments, "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result) == FIELDS
    assert (result["policy"], result["seed"]) == ("FGD", 5)


def test_several_runs_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path)
    table, plot = tmp_path / "curves.csv", tmp_path / "plot.svg"
    arguments = ["simulate", "openb", "--trace", str(tmp_path), "--policy", "BestFit", "--policy", "Random"]
    files = ["--csv", str(table), "--plot", str(plot)]
    assert main([*arguments, "--seed", "1", "--seed", "2", "-o", "table", *files]) == 0
    out = capsys.readouterr().out
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        [policy, seed] for policy in ("BestFit", "Random") for seed in ("1", "2", "mean")
    ]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {(row["policy"], row["seed"]) for row in rows} == {
        (policy, seed) for policy in ("BestFit", "Random") for seed in ("1", "2")
    }
    assert list(rows[0])[2:5] == ["arrived_percent", "alloc_percent", "frag_percent"]
    assert plot.read_text().startswith("<svg")


def test_progress_is_shown_on_a_terminal_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(tmp_path)
    arguments = ["simulate", "openb", "--trace", str(tmp_path), "--policy", "GpuPacking"]
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(arguments) == 0
    assert "GpuPacking, seed 42: 0 of " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policy", "Best"], "'Best' is not one of 'Random'"),
        (["--plot", "plot.png"], "the name should end in .svg"),
        (["--csv", "missing/curves.csv"], "missing/curves.csv: its directory does not exist"),
        (["--orders", "missing"], "missing/arrivals.csv: no such file or directory"),
        (["--seed", "-1"], "-1"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    write_trace(tmp_path)
    assert main(["simulate", "openb", "--trace", str(tmp_path), *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_an_invalid_trace_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path)
    (tmp_path / PODS_FILE).write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1,1,one,1,\n")
    assert main(["simulate", "openb", "--trace", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"{PODS_FILE}:2: num_gpu: 'one' is not a whole number")
