"""The race and the constant rate work, in a small size."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import Programs, obtain
from conformance.racing import heat, steady
from conformance.racing.course import Course, put_back
from conformance.racing.table import OURS, THEIRS, incomplete, make_table


@pytest.mark.parametrize(
    "course",
    [
        pytest.param(Course("SchedulingBasic", 10, 5, 30), id="plain pods"),
        pytest.param(Course("Preemption", 4, 16, 4), id="pods that evict others"),
        pytest.param(Course("SchedulingWithResourceClaimTemplate", 5, 0, 20), id="pods with claims"),
        pytest.param(Course("SchedulingBasic", 10, 20, 0), id="to the start alone"),
        pytest.param(Course("GangScheduling", 10, 0, 30), id="gangs"),
        pytest.param(Course("GangPreemptionPodGroups", 100, 500, 100), id="a gang that evicts gangs"),
    ],
)
def test_both_drain_the_whole_backlog(programs: Programs, tmp_path: Path, course: Course) -> None:
    running = tmp_path / "plane"
    running.mkdir()
    results = []
    if programs.release != course.release and course.gates:
        programs = obtain(course.release)
    with ControlPlane(programs, running, options=course.server_flags) as plane:
        course.lay_out(plane, tmp_path / "kept")
        for scheduler in (THEIRS, OURS):
            put_back(plane, tmp_path / "kept")
            flags = course.gate_flags
            results.append(heat.run(plane, course, scheduler, all_nodes=False, flags=flags))
    assert incomplete(results) == []
    for result in results:
        assert (result.cpu_seconds >= 0, result.memory_bytes > 10**6) == (True, True)
        assert bool(result.as_json()["pods_per_s"]) is bool(course.pods)
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(make_table("small", results))
    assert course.workload in console.export_text()


def test_pods_at_a_constant_rate(programs: Programs, tmp_path: Path) -> None:
    running = tmp_path / "plane"
    running.mkdir()
    course, load = Course("SchedulingBasic", 10, 2, 0), steady.Load(rate=20, seconds=2, idle_seconds=1)
    with ControlPlane(programs, running) as plane:
        course.lay_out(plane, tmp_path / "kept")
        for scheduler in (THEIRS, OURS):
            put_back(plane, tmp_path / "kept")
            cost = steady.run(plane, course, scheduler, load)
            assert cost.bound == load.pods
            assert cost.as_json()["cpu_us_per_pod"] > 0
