"""Measures the embedded control plane: creates nodes and pods over HTTPS in `bayplan up`, until all pods run.

    python benchmarks/embedded_cluster.py --nodes 5000 --pods 20000

prints one JSON object: creations and bindings per second, the delay of watch events after a creation, and CPU
and memory of the process, which is cluster and scheduler in one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bayplan.api.kinds import KINDS
from bayplan.api.pod import Pod
from bayplan.client.http import KubernetesCluster
from bayplan.client.kubeconfig import load_access

AT_ONCE = 32


class WatchEvents:
    """The events of a watch."""

    def __init__(self) -> None:
        self.added: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}

    async def watch(self, cluster: KubernetesCluster, version: str) -> None:
        async for batch in cluster.watch(Pod, version):
            now = time.perf_counter()
            for event in batch:
                if event.object is not None:
                    self._take(event.object, now)

    def _take(self, pod: Pod, now: float) -> None:
        self.added.setdefault(pod.name, now)
        if pod.spec.node_name:
            self.bound.setdefault(pod.name, now)
        if pod.status.phase == "Running":
            self.running.setdefault(pod.name, now)


async def create_all(cluster: KubernetesCluster, pods: int) -> dict[str, float]:
    """Creates pods; returns when each was acknowledged."""
    done: dict[str, float] = {}
    waiting = iter([f"p{number}" for number in range(pods)])
    path = KINDS.of(Pod).collection("default")

    async def work() -> None:
        for name in waiting:
            await cluster.requests.send("POST", path, pod_body(name), repeatable=False)
            done[name] = time.perf_counter()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return done


def pod_body(name: str) -> bytes:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    spec = {"containers": [{"name": "c", "image": "example.com/web", "resources": resources}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": spec,
    }
    return json.dumps(pod).encode()


async def measure(kubeconfig: Path, pods: int) -> dict[str, Any]:
    seen = WatchEvents()
    async with KubernetesCluster(load_access(str(kubeconfig)), qps=-1) as cluster:
        _, version = await cluster.list(Pod)
        watching = asyncio.ensure_future(seen.watch(cluster, version))
        began = time.perf_counter()
        created = await create_all(cluster, pods)
        creating = time.perf_counter() - began
        while len(seen.running) < pods:
            await asyncio.sleep(0.05)
        watching.cancel()
    late = sorted(max(seen.added[name] - at, 0.0) * 1e3 for name, at in created.items())
    return {
        "creates_per_s": round(pods / creating, 1),
        "binds_per_s": round(pods / (max(seen.bound.values()) - began), 1),
        "running_after_s": round(max(seen.running.values()) - began, 2),
        "watch_latency_p50_ms": round(statistics.median(late), 2),
        "watch_latency_p99_ms": round(late[int(len(late) * 0.99)], 2),
    }


def cost(pid: int) -> dict[str, float]:
    """CPU seconds and memory of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / 100, "peak_rss_mb": round(peak / 1024, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        command = [sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", str(options.nodes)]
        started = time.perf_counter()
        with subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        ) as process:
            try:
                while not kubeconfig.exists():
                    time.sleep(0.01)
                start = time.perf_counter() - started
                before = cost(process.pid)
                found = asyncio.run(measure(kubeconfig, options.pods))
                after = cost(process.pid)
            finally:
                process.terminate()
    found |= {
        "nodes": options.nodes,
        "pods": options.pods,
        "start_s": round(start, 2),
        "cpu_ms_per_pod": round((after["cpu_s"] - before["cpu_s"]) / options.pods * 1e3, 3),
        "peak_rss_mb": after["peak_rss_mb"],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
