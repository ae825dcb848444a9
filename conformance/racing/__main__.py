"""`make race`: kube-scheduler and bayplan drain the same backlogs, in turns, against the same API server.

Pods in groups are scheduled by kube-scheduler 1.37 with the gates on, all others by the default release.

Two tables: at the default sampling, and with all nodes scored by both. (bayplan scores all nodes by default.)
`--json FILE` adds one JSON object a heat. Sizes can be chosen; without, they are those of the defaults below.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from bayplan.bench.workloads import find_workload
from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import MissingError, Programs, obtain
from conformance.racing import heat
from conformance.racing.course import Course, put_back
from conformance.racing.heat import Result
from conformance.racing.table import OURS, THEIRS, incomplete, make_table

SIZES: Final = {
    "SchedulingBasic": (0.2, 5000),
    "SchedulingPodAntiAffinity": (0.2, 2000),
    "SchedulingPodAffinity": (1.0, 2000),
    "TopologySpreading": (1.0, 2000),
    "Preemption": (4.0, 500),
    "SchedulingWithResourceClaimTemplate": (0.0, 2000),
    "BasicScheduling": (0.0, 3000),
    "GangScheduling": (0.0, 3000),
    "GangScheduling_1000Pods": (0.0, 3000),
    "TopologyAwareScheduling": (0.0, 3000),
    "GangPreemptionBasic": (10.0, 100),
    "GangPreemptionPodGroups": (5.0, 100),
}
"""Pods that run already, for each node, and pods that wait."""
WIDTH: Final = 140
"""Width of the tables if the terminal's is unknown."""
START_PODS: Final = 10
"""Pods for each node in the race to the start."""


def main() -> int:
    options = _options()
    courses = list(_courses(options))
    try:
        programs = {release: obtain(release) for release in {course.release for course in courses}}
    except MissingError as error:
        print(f"the race: SKIPPED, {error}")
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    results: list[Result] = []
    for course in courses:
        for result in _race(programs[course.release], course, options):
            print(json.dumps(result.as_json()), flush=True)
            results.append(result)
            if options.json:
                with options.json.open("a") as lines:
                    lines.write(json.dumps(result.as_json()) + "\n")
    for all_nodes, title in ((False, "default sampling"), (True, "all nodes scored")):
        chosen = [result for result in results if result.all_nodes is all_nodes]
        if chosen:
            console.print(make_table(f"kube-scheduler → bayplan, {title}", chosen))
    console.print(
        f"{os.cpu_count()} cores, shared with the API server; load average {os.getloadavg()[0]:.1f}"
    )
    problems = incomplete(results)
    for problem in problems:
        console.print(problem)
    return 1 if problems else 0


def _race(programs: Programs, course: Course, options: argparse.Namespace) -> Iterator[Result]:
    samplings = {"default": (False,), "all": (True,), "both": (False, True)}[options.sampling]
    with tempfile.TemporaryDirectory(prefix="bayplan-race-") as directory:
        kept = Path(directory) / "kept"
        running = Path(directory) / "plane"
        running.mkdir()
        with ControlPlane(programs, running, options=course.server_flags) as plane:
            course.lay_out(plane, kept)
            for all_nodes in samplings[: 1 if not course.pods else None]:
                for scheduler in options.schedulers:
                    put_back(plane, kept)
                    flags = course.gate_flags
                    yield heat.run(plane, course, scheduler, all_nodes=all_nodes, flags=flags)


def _courses(options: argparse.Namespace) -> Iterator[Course]:
    for size in options.nodes:
        for workload in options.workloads:
            # Devices multiply the objects; upstream's largest size with devices has 500 nodes. Gangs that
            # evict have 100 nodes, one for each member.
            nodes = min(size, find_workload(workload).nodes)
            init, pods = SIZES[workload]
            pods = pods if options.pods is None else options.pods
            # No two of these pods share a node.
            if workload == "SchedulingPodAntiAffinity":
                pods = min(pods, nodes - round(init * nodes))
            elif workload == "Preemption":
                pods = min(pods, nodes)
            yield Course(workload, nodes, round(init * nodes), pods)
        if options.start:
            yield Course("SchedulingBasic", size, START_PODS * size, 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance.racing", description=__doc__)
    parser.add_argument("--nodes", type=_numbers, default=[5000, 1000], help="cluster sizes: 5000,1000")
    parser.add_argument("--pods", type=int, help="pods that wait, instead of each workload's own number")
    parser.add_argument(
        "--workloads", type=_workloads, default=list(SIZES), help=f"of {', '.join(SIZES)}; by commas"
    )
    parser.add_argument("--sampling", choices=("default", "all", "both"), default="both")
    parser.add_argument(
        "--schedulers",
        type=lambda text: text.split(","),
        default=[THEIRS, OURS],
        help="which schedulers run, in order",
    )
    parser.add_argument(
        "--no-start", dest="start", action="store_false", help="without the race to the start"
    )
    parser.add_argument("--json", type=Path, help="a file to which one JSON object a heat is appended")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _workloads(text: str) -> list[str]:
    chosen = [name for name in text.split(",") if name]
    for name in chosen:
        if name not in SIZES:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(SIZES)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
