"""`make steady`: what kube-scheduler and bayplan cost per pod when pods arrive at a constant, low rate.

The race drains a backlog, where requests, watch events and decisions come in batches. Most of the
time, most clusters have only a few new pods per second, each of which wakes up the scheduler. That costs more
per pod, and only this benchmark measures it.

Each scheduler is measured twice on the same cluster: idle, then while pods are created. CPU per pod is all
CPU of the scheduler's process in the second period, divided by the pods: idle CPU is not subtracted, but
shown beside it, so that both figures can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.bench.workloads import find_workload
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ControlPlane
from conformance.harness.process import free_ports
from conformance.harness.programs import MissingError, obtain
from conformance.harness.schedulers import SCHEDULERS, configuration, serving_flags
from conformance.racing.course import Course, at_once, create, put_back
from conformance.racing.heat import QPS, Counting, wait_until_started
from conformance.racing.table import OURS, THEIRS

WARM_UP_PODS: Final = 40
"""Scheduled before anything is measured: connections are opened, and Python compiles nothing later on."""
DRAIN_SECONDS: Final = 3.0
"""After start and warm-up, until events are written and the garbage of the start is collected."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many pods, how fast, and for how long the scheduler is watched without any."""

    rate: float
    seconds: float
    idle_seconds: float

    @property
    def pods(self) -> int:
        return round(self.rate * self.seconds)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one scheduler. Both CPU figures are user and system time of its whole process."""

    scheduler: str
    nodes: int
    load: Load
    bound: int
    seconds: float
    """From the first creation to the last binding."""
    cpu_seconds: float
    """In that time."""
    idle_cpu_seconds: float
    """In the idle period before it."""
    late_seconds: float
    """How far the client fell behind its schedule: a busy machine turns a constant rate into bursts."""
    machine_load: float

    def as_json(self) -> dict[str, Any]:
        return {
            "scheduler": self.scheduler,
            "nodes": self.nodes,
            "pods": self.load.pods,
            "bound": self.bound,
            "rate": self.load.rate,
            "pods_per_s": round(self.bound / self.seconds, 1),
            "cpu_us_per_pod": round(self.cpu_seconds / max(self.bound, 1) * 1e6),
            "idle_cpu_ms_per_s": round(self.idle_cpu_seconds / self.load.idle_seconds * 1e3, 2),
            "late_s": round(self.late_seconds, 3),
            "load": self.machine_load,
        }


def main() -> int:
    options = _options()
    try:
        programs = obtain()
    except MissingError as error:
        print(f"steady: SKIPPED, {error}")
        return 0
    course = Course("SchedulingBasic", options.nodes, options.nodes // 5, 0)
    load = Load(options.rate, options.seconds, options.idle_seconds)
    complete = True
    with tempfile.TemporaryDirectory(prefix="bayplan-steady-") as directory:
        kept, running = Path(directory) / "kept", Path(directory) / "plane"
        running.mkdir()
        with ControlPlane(programs, running) as plane:
            course.lay_out(plane, kept)
            for scheduler in options.schedulers:
                put_back(plane, kept)
                cost = run(plane, course, scheduler, load)
                print(json.dumps(cost.as_json()), flush=True)
                complete = complete and cost.bound == load.pods
    print(f"{os.cpu_count()} cores, shared with the API server and the client that creates the pods")
    return 0 if complete else 1


def run(plane: ControlPlane, course: Course, scheduler: str, load: Load) -> Cost:
    """Measures one scheduler on a control plane that holds the cluster of `course`."""
    return asyncio.run(_run(plane, course, scheduler, load))


async def _run(plane: ControlPlane, course: Course, scheduler: str, load: Load) -> Cost:
    pods = iter(find_workload(course.workload).make_pods(WARM_UP_PODS + load.pods))
    flags = serving_flags(plane, free_ports(1)[0])
    async with Admin(plane.access()) as admin:
        counting = Counting(admin.cluster.requests)
        await counting.start()
        with SCHEDULERS[scheduler](plane, configuration(plane, qps=QPS), flags=flags) as process:
            await wait_until_started(process)
            await _arrive(admin, counting, islice(pods, WARM_UP_PODS), load.rate)
            await counting.until(WARM_UP_PODS, process)
            await asyncio.sleep(DRAIN_SECONDS)

            idle_cpu = process.cpu_seconds()
            await asyncio.sleep(load.idle_seconds)
            idle_cpu = process.cpu_seconds() - idle_cpu

            began, cpu = time.monotonic(), process.cpu_seconds()
            late = await _arrive(admin, counting, pods, load.rate)
            bound, ended = await counting.until(WARM_UP_PODS + load.pods, process)
            cpu = process.cpu_seconds() - cpu
        await counting.stop()
    return Cost(
        scheduler=scheduler,
        nodes=course.nodes,
        load=load,
        bound=bound - WARM_UP_PODS,
        seconds=(ended or began) - began,
        cpu_seconds=cpu,
        idle_cpu_seconds=idle_cpu,
        late_seconds=late,
        machine_load=round(os.getloadavg()[0], 2),
    )


async def _arrive(admin: Admin, counting: Counting, pods: Iterable[Pod], rate: float) -> float:
    """Creates pods at a constant rate regardless of response times; returns the largest delay."""

    async def make(pod: Pod) -> None:
        await create(admin, at_once(pod))
        counting.created()

    loop = asyncio.get_running_loop()
    began, late = loop.time(), 0.0
    async with asyncio.TaskGroup() as sending:
        for number, pod in enumerate(pods):
            due = began + number / rate
            await asyncio.sleep(due - loop.time())
            late = max(late, loop.time() - due)
            sending.create_task(make(pod))
    return late


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance.racing.steady", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=20.0, help="pods created per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long pods are created")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="how long the idle period is")
    parser.add_argument(
        "--schedulers", type=lambda text: text.split(","), default=[THEIRS, OURS], help="in this order"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
