"""`bayplan bench` on the real core, at sizes that take no time: so that it stays usable."""

from __future__ import annotations

import json

import pytest

from bayplan.bench.workload import Workload
from bayplan.bench.workloads import WORKLOADS
from bayplan.cli.main import main

SIZES = ["--core", "--json", "--nodes", "12", "--init-pods", "10", "--pods", "20"]


@pytest.mark.parametrize("measured", ["core", "whole"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_workload_runs(workload: Workload, measured: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All pods find a node, where there are enough for one pod a host."""
    nodes = "40" if "AntiAffinity" in workload.name or workload.name == "MixedSchedulingBasePod" else "12"
    # Four low-priority pods fill a node: the measured ones have to evict.
    first = "48" if workload.name == "Preemption" else "10"
    preempts = "Preemption" in workload.name
    pods = "12" if preempts else "20"
    arguments = ["--json", "--nodes", nodes, "--init-pods", first, "--pods", pods]
    whole = measured == "whole"
    if workload.needs_scheduler and not whole:
        assert main(["bench", workload.name, *arguments, "--core"]) == 2
        assert "leave out --core" in capsys.readouterr().err
        return
    assert main(["bench", workload.name, *arguments, *([] if whole else ["--core"])]) == 0
    (line,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    background = 1 if workload.background else 0
    assert (line["workload"], line["scheduled"], line["unscheduled"]) == (
        workload.name,
        int(pods),
        background,
    )
    # A gang needs all nodes, and evicts all pods there.
    assert line["evicted"] == (36 if workload.name == "Preemption" else 10 if preempts else 0)
    assert min(line["pods_per_s"], line["cpu_us_per_pod"], line["p50_us"], line["peak_rss_mb"]) > 0
    assert line["p50_us"] <= line["p99_us"]


def test_several_workloads_run_apart(capfd: pytest.CaptureFixture[str]) -> None:
    """Each in a process of its own, one line each, in the order in which they were named."""
    assert main(["bench", "TopologySpreading", "SchedulingBasic", *SIZES]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["workload"] for line in lines] == ["TopologySpreading", "SchedulingBasic"]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [argument for argument in SIZES if argument != "--json"]
    assert main(["bench", "SchedulingBasic", *arguments]) == 0
    assert "SchedulingBasic" in capsys.readouterr().out


def test_too_many_first_pods(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--core", "--nodes", "1", "--init-pods", "5", "--pods", "1"]
    assert main(["bench", "Preemption", *arguments]) == 2
    assert "too many for 1 nodes" in capsys.readouterr().err


def test_rows_are_reused(capsys: pytest.CaptureFixture[str]) -> None:
    """After the first pod of a kind only the node that took the last pod is evaluated again."""
    arguments = ["--core", "--json", "--nodes", "200", "--init-pods", "10", "--pods", "100"]
    assert main(["bench", "SchedulingBasic", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["rows_per_pod"] < 5
