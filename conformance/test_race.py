"""The race and the constant rate work, in a small size."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.programs import Programs, obtain
from conformance.racing import heat, queues, steady
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


def test_queues_are_drained_up_to_their_maximum(programs: Programs, tmp_path: Path) -> None:
    """No queue has more than its maximum; and another scheduler is any command."""
    running = tmp_path / "plane"
    running.mkdir()
    course = queues.QueueCourse(nodes=10, pods=80, teams=4, quota=0.5)
    with ControlPlane(programs, running) as plane:
        asyncio.run(course.create(plane))
        drained = queues.run(plane, course, OURS)
        with queues.start(plane, "other", f"{programs.kube_scheduler} --version") as other:
            assert other.wait() == 0
        assert "Kubernetes v1" in other.last_words()
    assert (drained.bound, drained.queues, drained.crowded_nodes) == (40, {10: 4}, 0)


def test_a_gang_that_evicts_makes_the_requests_of_kube_scheduler(tmp_path: Path) -> None:
    """As many writes of each kind: to evict pods, to nominate members, to bind them, and to the PodGroup."""
    course, running = Course("GangPreemptionBasic", 10, 100, 10), tmp_path / "plane"
    running.mkdir()
    written: list[Counter[str]] = []
    with ControlPlane(obtain("1.37"), running, options=course.server_flags, audit=True) as plane:
        course.lay_out(plane, tmp_path / "kept")
        assert plane.audit_log is not None
        for scheduler in (THEIRS, OURS):
            plane.audit_log.unlink()
            put_back(plane, tmp_path / "kept")
            assert heat.run(plane, course, scheduler, all_nodes=False, flags=course.gate_flags).bound == 10
            written.append(Counter(filter(None, map(_object_of_write, plane.requests(KUBE_SCHEDULER)))))
    theirs, ours = written
    assert ours == theirs
    assert ours == {"pods": 100, "pods/status": 110, "pods/binding": 10, "podgroups/status": 2}


def _object_of_write(entry: dict[str, Any]) -> str:
    """The resource that a request writes; empty for reads and events, which are written with a delay."""
    written, verb = entry.get("objectRef", {}), entry["verb"]
    if written.get("resource") not in ("pods", "podgroups") or verb in ("list", "watch"):
        return ""
    return "/".join(filter(None, (written["resource"], written.get("subresource"))))
