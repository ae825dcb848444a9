"""Measuring: what is driven, in which order, and what the figures count."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from bayplan.bench.runner import (
    BenchError,
    Measurement,
    Outcome,
    Sizes,
    make_table,
    measure,
    peak_rss_mb,
    percentile,
    progress_on,
)
from bayplan.bench.workload import Workload
from bayplan.bench.workloads import WORKLOADS, find_workload

from .fake_core import FakeCore

SMALL = Sizes(nodes=4, init_pods=6, pods=10)


ALONE = [workload for workload in WORKLOADS if not workload.needs_scheduler]
"""Workloads that the decision core can be measured with: groups need the scheduler around it."""


@pytest.mark.parametrize("workload", ALONE, ids=lambda workload: workload.name)
def test_every_workload_runs(workload: Workload) -> None:
    core = FakeCore()
    result = measure(workload, core, SMALL)
    background = 1 if workload.background else 0
    assert (result.workload, result.nodes, result.init_pods, result.pods) == (workload.name, 4, 6, 10)
    assert (result.scheduled, result.unscheduled, result.evicted) == (10, background, 0)
    assert sum(len(pods) for pods in core.running.values()) == 16
    assert set(core.namespaces) == {namespace.name for namespace in workload.make_namespaces()}


def test_first_pods_are_scheduled_before_and_not_counted() -> None:
    core = FakeCore()
    result = measure(find_workload("SchedulingBasic"), core, SMALL)
    assert core.attempts[:6] == [f"pod-i{number:06d}" for number in range(6)]
    assert result.rows_per_pod == 4


def test_evicts_until_the_pod_is_scheduled() -> None:
    """Each pod: an attempt, the eviction of its victims, an attempt that succeeds."""
    core = FakeCore(room=2)
    result = measure(find_workload("Preemption"), core, Sizes(nodes=2, init_pods=4, pods=2))
    assert (result.scheduled, result.evicted) == (2, 2)
    assert Counter(core.attempts)["pod-high-priority-m000000"] == 2


def test_a_core_that_never_comes_to_an_end_is_an_error() -> None:
    class Stubborn(FakeCore):
        def evict(self, preemptor: object, outcome: Outcome) -> None:
            """Evicts no pod."""

    with pytest.raises(BenchError, match="rounds of eviction"):
        measure(find_workload("Preemption"), Stubborn(room=2), Sizes(nodes=2, init_pods=4, pods=1))


def test_first_pods_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(BenchError, match="too many for 2 nodes"):
        measure(find_workload("SchedulingBasic"), FakeCore(room=1), Sizes(nodes=2, init_pods=3, pods=1))


def test_pods_share_no_parts() -> None:
    """As when a watch delivers them: a cache that compares by identity must not look good."""
    core = FakeCore()
    measure(find_workload("SchedulingPodAffinity"), core, Sizes(nodes=1, init_pods=0, pods=2))
    ((one, other),) = core.running.values()
    assert one.spec == other.spec
    assert one.spec.affinity is not other.spec.affinity
    assert one.spec.containers[0].resources is not other.spec.containers[0].resources


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_sizes_are_checked(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(BenchError):
        Sizes(*sizes)


@pytest.mark.parametrize(
    ("values", "percent", "answer"),
    [([], 50, 0), ([7], 99, 7), ([1, 2, 3, 4], 50, 2), (list(range(1, 101)), 99, 99), ([1, 2, 3], 99, 3)],
)
def test_percentile(values: list[int], percent: float, answer: int) -> None:
    assert percentile(values, percent) == answer


def test_profile_shows_where_the_time_went() -> None:
    profile = io.StringIO()
    measure(find_workload("SchedulingBasic"), FakeCore(), SMALL, profile=profile)
    assert "schedule_one" in profile.getvalue()


def test_progress_only_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        progress_on(stream, "SchedulingBasic")("adding nodes", 1000, 5000)
    assert (pipe.getvalue(), terminal.getvalue()) == (
        "",
        "\r\x1b[2KSchedulingBasic: adding nodes 1,000/5,000",
    )


def test_json_line_has_the_documented_fields_and_table_has_a_row() -> None:
    result = measure(find_workload("SchedulingBasic"), FakeCore(), SMALL)
    assert result.__struct_fields__ == (
        "workload",
        "nodes",
        "init_pods",
        "pods",
        "pods_per_s",
        "cpu_us_per_pod",
        "p50_us",
        "p99_us",
        "rows_per_pod",
        "peak_rss_mb",
        "scheduled",
        "unscheduled",
        "evicted",
        "kubernetes_version",
    )
    assert result.as_json().startswith('{"workload":"SchedulingBasic","nodes":4,"init_pods":6,"pods":10,')
    assert make_table([result]).row_count == 1
    assert isinstance(result, Measurement)


def test_memory_is_plausible() -> None:
    assert 5 < peak_rss_mb() < 100_000
