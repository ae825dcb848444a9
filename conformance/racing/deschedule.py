"""`make race-deschedule`: a cycle of descheduler v0.36 and of bayplan by upstream's decisions, side by side.

Both read the same cluster (nodes, 50,000 pods) and run the same policy with one strategy. The limit of
evictions in a namespace is 0, so that each strategy looks at all of its candidates in every cycle, no request
is sent, and nothing changes from cycle to cycle.

descheduler runs every second against the embedded server, with its informers synced. Its CPU time is that of
the process in the cycles after the first, its wall time `strategy_duration` of its metrics. Of bayplan it is
`Runner.cycle`, as in `bayplan deschedule run`, on the same objects: reading what the informers have, columns,
strategy. Then the time of a plan of `decision: scheduler` for 1,000 candidates (`--plan`) is measured. With
`--strategies` and no name after it, only that: this needs no Go.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bayplan.answers.whatif import Cluster
from bayplan.api.decode import decode_object
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.config import Decision, DescheduleConfiguration
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.eviction import Answer
from bayplan.deschedule.planner import Planner
from bayplan.deschedule.policy import parse_policy
from bayplan.deschedule.running import Runner
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import NODES, PODS
from conformance.harness.process import free_ports
from conformance.harness.programs import MissingError, obtain_descheduler

Raw = dict[str, Any]
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
TICKS: Final = os.sysconf("SC_CLK_TCK")
STRATEGIES: Final[dict[str, Raw]] = {
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]
    },
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 50},
    "PodLifeTime": {"maxPodLifeTimeSeconds": 86400},
    "RemoveFailedPods": {},
    "RemoveDuplicates": {},
    "RemovePodsViolatingTopologySpreadConstraint": {},
    "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 40}},
    "HighNodeUtilization": {"thresholds": {"cpu": 20}},
}
BALANCE: Final = frozenset(list(STRATEGIES)[6:])


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a cycle, in seconds."""

    cpu: float
    wall: float


def policy(strategy: str) -> Raw:
    point = "balance" if strategy in BALANCE else "deschedule"
    profile = {
        "name": "race",
        "pluginConfig": [{"name": strategy, "args": STRATEGIES[strategy]}],
        "plugins": {point: {"enabled": [strategy]}},
    }
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    return {**head, "maxNoOfPodsToEvictPerNamespace": 0, "profiles": [profile]}


def node(i: int) -> Raw:
    """Every tenth has a taint, every fifth is nearly empty."""
    taints = [{"key": "maintenance", "effect": "NoSchedule"}] if i % 10 == 3 else []
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"node-{i:05}",
            "uid": f"node-{i}",
            "labels": {HOSTNAME: f"node-{i:05}", ZONE: f"zone-{i % 3}", "disk": "ssd" if i % 2 else "hdd"},
        },
        "spec": {"taints": taints},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(i: int, nodes: int) -> Raw:
    """Of 500 ReplicaSets in 20 namespaces; some have affinity, anti-affinity or a spread constraint."""
    owner, number = i % 500, i % nodes
    if number % 5 == 4 and i % 3:
        number -= 1
    app = f"app-{owner}"
    selector = {"matchLabels": {"app": app}}
    spec: Raw = {"nodeName": f"node-{number:05}", "schedulerName": "default-scheduler"}
    if owner % 10 == 1:
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    elif owner % 10 == 2:
        terms = [{"topologyKey": HOSTNAME, "labelSelector": selector}]
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    elif owner % 10 == 3:
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    spec["containers"] = [{"name": "main", "image": f"{app}:1", "resources": resources}]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    restarts = [{"name": "main", "restartCount": i % 60, "ready": True, "image": "", "imageID": ""}]
    started = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{i:05}",
            "namespace": f"team-{owner % 20}",
            "uid": f"pod-{i}",
            "labels": {"app": app},
            "creationTimestamp": started,
            "ownerReferences": [reference],
        },
        "spec": spec,
        "status": {
            "phase": "Failed" if i % 97 == 0 else "Running",
            "startTime": started,
            "containerStatuses": restarts,
        },
    }


# descheduler


def theirs(program: Path, kubeconfig: Path, strategy: str, cycles: int) -> Cost:
    """The mean of some cycles of descheduler after its first."""
    with tempfile.TemporaryDirectory(prefix="bayplan-race-") as folder:
        path = Path(folder, "policy.json")
        path.write_text(json.dumps(policy(strategy)))
        (port,) = free_ports(1)
        command = [str(program), "--policy-config-file", str(path), "--kubeconfig", str(kubeconfig)]
        command += [
            "--descheduling-interval",
            "1s",
            "--secure-port",
            str(port),
            "--cert-dir",
            folder,
            "-v",
            "0",
        ]
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            first = _after_cycles(process, port, 1)
            last = _after_cycles(process, port, first[0] + cycles)
        finally:
            process.terminate()
            process.wait()
    count = last[0] - first[0]
    return Cost((last[2] - first[2]) / count, (last[1] - first[1]) / count)


def _after_cycles(process: subprocess.Popen[bytes], port: int, least: int) -> tuple[int, float, float]:
    """Number of cycles, their time and the CPU time of the process, as soon as there are enough cycles."""
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"descheduler has ended with {process.returncode}")
        count, seconds = _strategy_duration(port)
        if count >= least:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            return count, seconds, (int(fields[11]) + int(fields[12])) / TICKS
        time.sleep(0.2)


def _strategy_duration(port: int) -> tuple[int, float]:
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(
            f"https://127.0.0.1:{port}/metrics", context=context, timeout=30
        ) as found:
            text = found.read().decode()
    except OSError:
        return 0, 0.0
    name = "^descheduler_strategy_duration_seconds"
    count = re.search(rf"{name}_count\S* (\S+)", text, re.M)
    total = re.search(rf"{name}_sum\S* (\S+)", text, re.M)
    return (0, 0.0) if count is None or total is None else (int(float(count[1])), float(total[1]))


# bayplan


@dataclass(slots=True)
class _Objects:
    """What informers have (`executing.EvictionAPI`)."""

    held: Sequence[Object]

    async def load(self) -> Cluster:
        raise AssertionError("upstream's rules need no copy")

    async def objects(self) -> Sequence[Object]:
        return list(self.held)

    async def pods(self, namespace: str) -> Sequence[Pod]:
        raise AssertionError("nothing is moved")

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        raise AssertionError("nothing is evicted")


def ours(objects: Sequence[Object], strategy: str, cycles: int) -> Cost:
    """The mean of some cycles of bayplan after its first."""
    descheduler = Descheduler(parse_policy(json.dumps(policy(strategy)), "policy.yaml", lambda _: None))
    settings = DescheduleConfiguration(decision=Decision.UPSTREAM)
    runner = Runner(_Objects(objects), descheduler, settings)

    async def run() -> Cost:
        await runner.cycle()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(cycles):
            await runner.cycle()
        return Cost((time.process_time() - cpu) / cycles, (time.perf_counter() - wall) / cycles)

    return asyncio.run(run())


def plan_cost(objects: Sequence[Object], candidates: int) -> tuple[int, Cost]:
    """A plan with so many candidates: pods on tainted nodes."""
    content = {**policy("RemovePodsViolatingNodeTaints"), "maxNoOfPodsToEvictTotal": candidates}
    del content["maxNoOfPodsToEvictPerNamespace"]
    descheduler = Descheduler(parse_policy(json.dumps(content), "policy.yaml", lambda _: None))
    planner = Planner(Cluster.from_objects(objects), descheduler, time.time())
    planner.table()
    cpu, wall = time.process_time(), time.perf_counter()
    made = planner.plan()
    return len(made.moves), Cost(time.process_time() - cpu, time.perf_counter() - wall)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.racing.deschedule", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--cycles", type=int, default=5, help="measured cycles of each")
    parser.add_argument(
        "--strategies", nargs="*", metavar="NAME", default=list(STRATEGIES), help="none: only the plan"
    )
    parser.add_argument("--plan", type=int, default=1000, metavar="N", help="a plan for N candidates, too")
    options = parser.parse_args()
    if unknown := set(options.strategies) - STRATEGIES.keys():
        parser.error(f"unknown strategies: {', '.join(sorted(unknown))}")
    try:
        program = obtain_descheduler() if options.strategies else None
    except MissingError as error:
        print(f"the race: SKIPPED, {error}")
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for nodes in options.nodes:
        asyncio.run(_race(console, program, nodes, options))
    console.print(f"{os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}")
    return 0


async def _race(console: Console, program: Path | None, nodes: int, options: argparse.Namespace) -> None:
    raw = [*map(node, range(nodes)), *(pod(i, nodes) for i in range(options.pods))]
    objects = [one for item in raw if (one := decode_object(item)) is not None]
    console.print(f"{nodes:,} nodes, {options.pods:,} pods; seconds of CPU and wall time of a cycle")
    if program is not None:
        await _compare(console, program, raw, objects, options)
    moves, made = plan_cost(objects, options.plan)
    console.print(f"  plan of {moves:,} moves: {made.cpu:.2f} s of CPU, {made.wall:.2f} s")


async def _compare(
    console: Console, program: Path, raw: list[Raw], objects: list[Object], options: argparse.Namespace
) -> None:
    async with EmbeddedServer() as server:
        for item in raw:
            kind = NODES if item["kind"] == "Node" else PODS
            server.api.restore(kind, item, item["metadata"].get("namespace", ""))
        with tempfile.TemporaryDirectory(prefix="bayplan-race-") as folder:
            kubeconfig = Path(folder, "kubeconfig")
            server.write_kubeconfig(kubeconfig)
            for strategy in options.strategies:
                cost = await asyncio.to_thread(theirs, program, kubeconfig, strategy, options.cycles)
                own = await asyncio.to_thread(ours, objects, strategy, options.cycles)
                console.print(
                    f"  {strategy:<44} descheduler {cost.cpu:7.3f} {cost.wall:7.3f}   "
                    f"bayplan {own.cpu:7.3f} {own.wall:7.3f}   CPU {cost.cpu / own.cpu:5.1f} times"
                )


if __name__ == "__main__":
    sys.exit(main())
