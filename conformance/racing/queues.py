"""`python -m conformance.racing.queues`: bayplan and other schedulers drain the same queues, in turns.

Every team has a queue, with applications of ten pods whose labels are YuniKorn's. Another scheduler is any
program that reads the ConfigMap yunikorn/yunikorn-configs and schedules pods with schedulerName yunikorn:

    python -m conformance.racing.queues --other 'NAME=COMMAND ARGUMENTS'

It finds the API server by KUBECONFIG and by `.kube/config` in its HOME. Since nothing is known of it, time
and CPU are measured from the start of the process, and from the first binding that a watch reports.

With `--quota 0.5` the maxima of the queues have room for half of the pods: the rest has to wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bayplan.api.quantity import resource_amount
from conformance.harness import objects
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ControlPlane
from conformance.harness.process import Process
from conformance.harness.programs import MissingError, obtain
from conformance.harness.schedulers import configuration, start_bayplan
from conformance.racing.course import put_back
from conformance.racing.heat import QPS, Counting
from conformance.racing.table import OURS

NAMESPACE: Final = "yunikorn"
CONFIG_MAP: Final = "yunikorn-configs"
PODS_AN_APPLICATION: Final = 10
POD: Final = {"cpu": "100m", "memory": "200Mi"}
NODE: Final = {"cpu": "32", "memory": "64Gi", "pods": "110"}
SETTLE_SECONDS: Final = 5.0
"""After the last binding that is expected, to see whether more follow."""


@dataclass(frozen=True, slots=True)
class QueueCourse:
    """Teams with equal queues, and a backlog of pods in them."""

    nodes: int
    pods: int
    teams: int
    quota: float
    """The share of its pods that the maximum of a queue has room for; 1 or more: all of them."""
    qps: int = QPS
    """Requests per second that a scheduler may send, and at once."""

    @property
    def _each(self) -> int:
        return self.pods // self.teams

    @property
    def allowed(self) -> int:
        """How many pods of each queue may run."""
        return min(self._each, int(self._each * self.quota))

    @property
    def expected(self) -> int:
        return self.allowed * self.teams

    def configuration(self) -> str:
        """The queues.yaml. Half of what a queue may use is guaranteed."""
        most = int(self._each * self.quota) * resource_amount("cpu", POD["cpu"])
        queues = [
            {
                "name": _team(number),
                "resources": {"guaranteed": {"vcore": f"{most // 2}m"}, "max": {"vcore": f"{most}m"}},
            }
            for number in range(self.teams)
        ]
        partition = {"name": "default", "queues": [{"name": "root", "submitacl": "*", "queues": queues}]}
        return yaml.safe_dump({"partitions": [partition]}, sort_keys=False)

    def config_map(self) -> objects.Raw:
        rates = {"kubernetes.qps": str(self.qps), "kubernetes.burst": str(self.qps)}
        return {"metadata": {"name": CONFIG_MAP}, "data": {"queues.yaml": self.configuration(), **rates}}

    def items(self) -> Iterator[objects.Raw]:
        """Nodes and pods. The teams create their applications in turns."""
        for number in range(self.nodes):
            yield objects.node(f"n{number:05d}", **NODE)
        for number in range(self._each * self.teams):
            application, member = divmod(number, PODS_AN_APPLICATION)
            labels = {
                "applicationId": f"app-{application:05d}",
                "queue": f"root.{_team(application % self.teams)}",
            }
            name = f"app-{application:05d}-{member}"
            cpu, memory = POD["cpu"], POD["memory"]
            yield objects.pod(name, cpu=cpu, memory=memory, labels=labels, schedulerName="yunikorn")

    async def create(self, plane: ControlPlane) -> None:
        async with Admin(plane.access()) as admin:
            await admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            # Not of a kind that bayplan has records for.
            await admin.send("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", self.config_map())
            await admin.create_all(self.items())


def _team(number: int) -> str:
    return f"team-{number:03d}"


@dataclass(frozen=True, slots=True)
class Drained:
    """What one scheduler did."""

    scheduler: str
    nodes: int
    pods: int
    expected: int
    bound: int
    first_s: float
    """From the start of the process to the first binding."""
    seconds: float
    """From the first binding to the last."""
    cpu_s: float
    """User and system time of the process until the last binding."""
    cpu_after_first_s: float
    memory_mb: int
    queues: dict[int, int]
    """How many queues have this number of running pods."""
    crowded_nodes: int
    """Nodes whose pods request more than the node has."""
    load: float

    def as_json(self) -> dict[str, Any]:
        rates = {
            "pods_per_s": round(self.bound / (self.first_s + self.seconds), 1),
            "cpu_us_per_pod": round(self.cpu_s / max(self.bound, 1) * 1e6),
            "cpu_us_per_pod_after_first": round(self.cpu_after_first_s / max(self.bound, 1) * 1e6),
        }
        return {**asdict(self), **rates}


def start(plane: ControlPlane, name: str, command: str, qps: int = QPS) -> Process:
    """Starts bayplan, or another scheduler by its command line."""
    if name == OURS:
        config = configuration(
            plane,
            user="admin",
            qps=qps,
            profiles=[{"schedulerName": "default-scheduler"}, {"schedulerName": "yunikorn"}],
        )
        own = plane.directory / "bayplan.yaml"
        queues = {"dialect": "yunikorn", "configMap": f"{NAMESPACE}/{CONFIG_MAP}"}
        own.write_text(
            json.dumps({"apiVersion": "bayplan/v1", "kind": "BayplanConfiguration", "queues": queues})
        )
        return start_bayplan(plane, config, flags=[f"--bayplan-config={own}"])
    home = plane.directory / "home"
    kubeconfig = home / ".kube" / "config"
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(plane.kubeconfig(), kubeconfig)
    environment = {"HOME": str(home), "KUBECONFIG": str(kubeconfig), "NAMESPACE": NAMESPACE}
    log = plane.directory / f"{name}.log"
    log.unlink(missing_ok=True)
    return Process(name, shlex.split(command), log, environment)


def run(plane: ControlPlane, course: QueueCourse, name: str, command: str = "") -> Drained:
    """Lets one scheduler drain the queues of a control plane that has the course."""
    return asyncio.run(_run(plane, course, name, command))


async def _run(plane: ControlPlane, course: QueueCourse, name: str, command: str) -> Drained:
    load = round(os.getloadavg()[0], 2)
    async with Admin(plane.access()) as admin:
        counting = Counting(admin.cluster.requests)
        await counting.start()
        with start(plane, name, command, course.qps) as process:
            await counting.until(1, process)
            began, first_cpu = time.monotonic(), process.cpu_seconds()
            _, ended = await counting.until(course.expected, process)
            cpu, memory = process.cpu_seconds(), process.memory_bytes()
            await asyncio.sleep(SETTLE_SECONDS)
            bound, _ = await counting.until(0, process)
        await counting.stop()
        pods = [pod for pod in await admin.list("Pod", "default") if pod["spec"].get("nodeName")]
    by_queue = Counter(pod["metadata"]["labels"]["queue"] for pod in pods)
    by_node = Counter(pod["spec"]["nodeName"] for pod in pods)
    most = min(
        int(NODE["pods"]),
        *(resource_amount(kind, NODE[kind]) // resource_amount(kind, POD[kind]) for kind in POD),
    )
    return Drained(
        scheduler=name,
        nodes=course.nodes,
        pods=course.pods,
        expected=course.expected,
        bound=bound,
        first_s=round(began - process.started, 2),
        seconds=round((ended or began) - began, 2),
        cpu_s=round(cpu, 2),
        cpu_after_first_s=round(cpu - first_cpu, 2),
        memory_mb=round(memory / 1e6),
        queues=dict(Counter(by_queue.values())),
        crowded_nodes=sum(count > most for count in by_node.values()),
        load=load,
    )


def main() -> int:
    options = _options()
    course = QueueCourse(options.nodes, options.pods, options.teams, options.quota, options.qps)
    commands = {OURS: "", **dict(each.split("=", 1) for each in options.other)}
    try:
        programs = obtain()
    except MissingError as error:
        print(f"the race in queues: SKIPPED, {error}")
        return 0
    complete = True
    with tempfile.TemporaryDirectory(prefix="bayplan-queues-") as directory:
        kept, running = Path(directory) / "kept", Path(directory) / "plane"
        running.mkdir()
        with ControlPlane(programs, running) as plane:
            asyncio.run(course.create(plane))
            plane.stop()
            shutil.copytree(plane.store, kept)
            for _ in range(options.rounds):
                for name, command in commands.items():
                    put_back(plane, kept)
                    result = run(plane, course, name, command)
                    print(json.dumps(result.as_json()), flush=True)
                    complete = complete and result.bound == course.expected
    print(f"{os.cpu_count()} cores, shared with the API server")
    return 0 if complete else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance.racing.queues", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--teams", type=int, default=10, help="queues, with an equal number of pods each")
    parser.add_argument(
        "--quota", type=float, default=2.0, help="the part of its pods that may run in a queue"
    )
    parser.add_argument("--qps", type=int, default=QPS, help="requests per second of each scheduler")
    parser.add_argument("--rounds", type=int, default=2, help="how often each scheduler runs, in turns")
    parser.add_argument(
        "--other", action="append", default=[], metavar="NAME=COMMAND", help="another scheduler; repeatable"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
