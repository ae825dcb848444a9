"""The openb experiment: orders, runs and measurements, on small traces and on the published one.

The published trace is not part of the repository. Set BAYPLAN_OPENB_TRACE to a directory with its CSV files,
and with the reference orders and results in `reference/`, to run the tests that need it.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bayplan.errors import InputError
from bayplan.simulate.openb.experiment import POLICIES, Curves, allocation_plot, run, typical_pods
from bayplan.simulate.openb.trace import (
    NODES_FILE,
    PODS_FILE,
    TARGET_PERCENT,
    Orders,
    Trace,
    TraceNode,
    TracePod,
    read_orders,
    read_trace,
    seeded_orders,
)

from .synthetic import POD_HEADER, replay_plainly, write_trace

VARIABLE = "BAYPLAN_OPENB_TRACE"
WITHOUT_CHANCE = [name for name in POLICIES if name != "Random"]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read_trace(write_trace(tmp_path))


# The trace


def test_a_trace_is_read(tmp_path: Path) -> None:
    (tmp_path / NODES_FILE).write_text("\ufeffsn,model,gpu,memory_mib,cpu_milli\r\nn,P100,2,1024,64000\r\n")
    (tmp_path / PODS_FILE).write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
        "a,100,1,1,5000,P100|T4\n\nb,100,1,0,500,T4\nc,100,1,2,1000,||\n"
    )
    found = read_trace(tmp_path)
    assert found.nodes == (TraceNode("n", 64000, 1024, 2, "P100"),)
    assert found.pods == (
        TracePod("a", 100, 1, 1, 1000, "P100|T4"),
        TracePod("b", 100, 1, 0, 0, ""),
        TracePod("c", 100, 1, 2, 1000, ""),
    )
    assert found.capacity_milli == 2000


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ("", "is empty"),
        ("name,cpu_milli\n", ":1: memory_mib: the column is missing"),
        (f"{POD_HEADER}\na,1,1,1,1000,,LS,extra\n", ":2: has 8 columns, the header has 7"),
        (f"{POD_HEADER}\na,1.5,1,1,1000,,\n", ":2: cpu_milli: '1.5' is not a whole number"),
        (f"{POD_HEADER}\na,1,-1,1,1000,,\n", ":2: memory_mib: '-1' is not a whole number"),
        (f"{POD_HEADER}\na,1,1,65,1000,,\n", ":2: num_gpu: 65 is greater than 64"),
        (f"{POD_HEADER}\na,1,1,1,0,,\n", ":2: gpu_milli: is 0, but num_gpu is 1"),
        (
            f"{POD_HEADER}\na,1,1,2,500,,\n",
            ":2: gpu_milli: 500 of each of 2 GPUs: several GPUs must be whole",
        ),
        (f"{POD_HEADER}\n,1,1,1,1000,,\n", ":2: name: is empty"),
        (f"{POD_HEADER}\na,1,1,1,1000,,\na,1,1,1,1000,,\n", ":3: name: 'a' is in line 2, too"),
        (f'{POD_HEADER}\n"a,1,1,1,1000,,\n', ":2: is not CSV"),
        (f"{POD_HEADER}\na,1,1,0,0,,\n", ": num_gpu: no pod requests a GPU"),
    ],
)
def test_problems_name_file_line_and_column(tmp_path: Path, pods: str, problem: str) -> None:
    write_trace(tmp_path)
    (tmp_path / PODS_FILE).write_text(pods)
    with pytest.raises(InputError) as caught:
        read_trace(tmp_path)
    assert f"{PODS_FILE}{problem}" in str(caught.value).replace(f"{PODS_FILE}: is", f"{PODS_FILE}is")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{NODES_FILE}: no such file"):
        read_trace(tmp_path)


def test_text_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    write_trace(tmp_path)
    (tmp_path / NODES_FILE).write_bytes(b"sn,cpu_milli,memory_mib,gpu,model\n\xff,1,1,1,A\n")
    with pytest.raises(InputError, match=f"{NODES_FILE}:2: is not UTF-8"):
        read_trace(tmp_path)


# Orders


def test_every_pod_arrives_before_any_copy(trace: Trace) -> None:
    orders = seeded_orders(trace, 7)
    count = len(trace.pods)
    assert sorted(orders.arrivals[:count]) == list(range(count))
    assert sorted(orders.nodes) == list(range(len(trace.nodes)))
    assert orders == seeded_orders(trace, 7)
    assert orders != seeded_orders(trace, 8)


def test_copies_end_where_one_device_of_the_next_would_exceed_the_target() -> None:
    nodes = tuple(TraceNode(f"n{i}", 1000, 1000, 8, "") for i in range(5))
    pods = (TracePod("a", 1, 1, 8, 1000, ""), TracePod("b", 1, 1, 1, 500, ""))
    trace = Trace(nodes, pods)
    target = trace.capacity_milli * TARGET_PERCENT // 100
    for seed in range(20):
        requested = [pods[index].total_milli for index in seeded_orders(trace, seed).arrivals]
        before = sum(requested[:-1])
        assert before + (1000 if requested[-1] == 8000 else 500) <= target
        assert sum(requested) > target - 1000


def test_a_trace_that_requests_too_much_is_cut() -> None:
    trace = Trace(
        (TraceNode("n", 1000, 1000, 2, ""),),
        tuple(TracePod(f"p{i}", 1, 1, 1, 1000, "") for i in range(9)),
    )
    arrivals = seeded_orders(trace, 1).arrivals
    assert len(arrivals) == len(set(arrivals)) == 2


def test_requests_that_are_too_small_do_not_run_for_ever() -> None:
    nodes = tuple(TraceNode(f"n{i}", 1000, 1000, 64, "") for i in range(100))
    with pytest.raises(InputError, match="more than 1,000,000 pods would arrive"):
        seeded_orders(Trace(nodes, (TracePod("p", 1, 1, 1, 1, ""),)), 1)


def test_orders_are_read_by_seed(tmp_path: Path, trace: Trace) -> None:
    (tmp_path / "arrivals.csv").write_text("seed1,seed2\n3,1\n0,\n3,\n")
    ranks = list(reversed(range(len(trace.nodes))))
    (tmp_path / "node_ranks.csv").write_text("seed1,seed2\n" + "".join(f"{rank},0\n" for rank in ranks))
    found = read_orders(tmp_path, trace, 1)
    assert found == Orders([3, 0, 3], ranks)
    with pytest.raises(InputError, match=r"node_ranks\.csv:3: seed2: rank 0 is in line 2, too"):
        read_orders(tmp_path, trace, 2)
    with pytest.raises(InputError, match=r"arrivals\.csv:1: seed9: the column is missing"):
        read_orders(tmp_path, trace, 9)
    (tmp_path / "arrivals.csv").write_text("seed1\n9999\n")
    with pytest.raises(InputError, match=r"arrivals\.csv:2: seed1: 9999 is greater than 59"):
        read_orders(tmp_path, trace, 1)
    (tmp_path / "arrivals.csv").write_text("seed1\n1\n")
    (tmp_path / "node_ranks.csv").write_text("seed1\n0\n1\n")
    with pytest.raises(InputError, match=r"node_ranks\.csv: seed1: has 2 ranks for 24 nodes"):
        read_orders(tmp_path, trace, 1)


# Runs


@pytest.mark.parametrize("policy", WITHOUT_CHANCE)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_runs_are_those_without_the_framework(tmp_path: Path, policy: str, seed: int) -> None:
    trace = read_trace(write_trace(tmp_path, seed=seed))
    orders = seeded_orders(trace, seed)
    result, _ = run(trace, orders, policy, seed)
    assert (result.used_gpu_milli, result.failed_pods) == replay_plainly(trace, orders, policy)
    assert (result.policy, result.seed, result.pods) == (policy, seed, len(orders.arrivals))


def test_random_depends_on_the_seed(trace: Trace) -> None:
    orders = seeded_orders(trace, 1)
    used = [run(trace, orders, "Random", seed)[0].used_gpu_milli for seed in (1, 1, 2, 3, 4, 5)]
    assert used[0] == used[1]
    assert len(set(used)) > 1


def test_fragmentation_along_the_way_is_that_of_the_cluster(trace: Trace) -> None:
    """The sum of changes is what is computed from the nodes in the end; all that is requested is counted."""
    orders = seeded_orders(trace, 1)
    result, curves = run(trace, orders, "FGD", 1)
    assert curves.fragmented_milli.min() >= 0
    assert (curves.fragmented_milli <= trace.capacity_milli - curves.used_milli + 1e-6).all()
    assert result.arrived_gpu_milli == sum(trace.pods[index].total_milli for index in orders.arrivals)
    assert (np.diff(curves.used_milli) >= 0).all()


def test_typical_pods_cover_95_percent(trace: Trace) -> None:
    typical = typical_pods(trace.pods)
    assert sum(pod.share for pod in typical) == pytest.approx(1)
    shares = [pod.share for pod in typical]
    assert shares == sorted(shares, reverse=True)
    groups = Counter((pod.cpu_milli, pod.gpu_milli, pod.gpus, pod.gpu_spec) for pod in trace.pods)
    largest = [number for _, number in groups.most_common(len(typical))]
    assert sum(largest) >= 0.95 * len(trace.pods) > sum(largest[:-1])


def test_values_are_means_over_the_lines_of_a_percent() -> None:
    curves = Curves(
        capacity_milli=1000,
        arrived_milli=np.array([994, 995, 1005, 1300]),
        used_milli=np.array([900, 910, 920, 950]),
        fragmented_milli=np.array([50.0, 40.0, 30.0, 20.0]),
        failed=np.array([0, 1, 2, 3]),
    )
    # Halves are rounded to even: 99.5 and 100.5 are both 100.
    assert curves.percent.tolist() == [99, 100, 100, 130]
    at_100 = curves.at(100)
    assert at_100 is not None
    assert (at_100.alloc_percent, at_100.frag_percent, at_100.failed_pods) == (91.5, 3.5, 2)
    neighbour = curves.at(131)
    assert neighbour is not None
    assert neighbour.alloc_percent == 95.0
    assert curves.at(50) is None
    assert curves.result("FGD", 1, 0.5).frag_at_130 == 2.0


def test_a_plot_has_a_line_for_each_policy() -> None:
    text = allocation_plot({"FGD": [(60, 60), (100, 95)], "<&>": [(60, 60), (100, 90)]})
    assert text.count("<polyline") == 2
    assert "&lt;&amp;&gt;" in text
    assert "<polyline" in allocation_plot({"short": [(1, 1), (2, 2)]})


# The published trace


def published() -> Path:
    directory = os.environ.get(VARIABLE)
    if not directory:
        pytest.skip(f"{VARIABLE} does not name a directory with the openb trace")
    return Path(directory)


def test_the_published_trace_has_these_typical_pods() -> None:
    trace = read_trace(published())
    typical = typical_pods(trace.pods)
    assert (len(trace.nodes), len(trace.pods), trace.capacity_milli) == (1213, 8152, 6_212_000)
    assert len(typical) == 35
    assert [round(pod.share * 7766) for pod in typical[:3]] == [1047, 874, 599]
    assert typical[0][:3] == (3152, 810, 1)


@pytest.mark.parametrize("policy", WITHOUT_CHANCE)
def test_the_reference_orders_end_in_the_reference_results(policy: str) -> None:
    """Seed 42; `BAYPLAN_OPENB_SEEDS="42 43 44 45 46"` for all."""
    directory = published()
    trace = read_trace(directory)
    with (directory / "reference" / "end_states.csv").open() as file:
        expected = {(row["policy"], row["seed"]): row for row in csv.DictReader(file)}
    for seed in os.environ.get("BAYPLAN_OPENB_SEEDS", "42").split():
        wanted = expected[policy, seed]
        result, _ = run(trace, read_orders(directory / "reference", trace, int(seed)), policy, int(seed))
        for field in ("pods", "arrived_gpu_milli", "used_gpu_milli", "failed_pods"):
            assert getattr(result, field) == int(wanted[field]), (seed, field)
        assert result.alloc_at_100 == float(wanted["alloc_at_100"])
        assert result.alloc_at_130 == float(wanted["alloc_at_130"])
