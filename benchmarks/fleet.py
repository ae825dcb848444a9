"""Measures `bayplan fleet place` over live members: the first answer, which reads them, and the next ones.

    python benchmarks/fleet.py --members 10 --nodes 1000 --pods-per-node 10
    python benchmarks/fleet.py --clusters 1000

prints one JSON object. Another process serves the members, each an embedded API server of its own, so that
CPU times are those of the fleet alone. Every answer is for a Deployment of another shape that is spread over
zones and hosts. `--profile FILE` profiles the next answers. With `--clusters`, Karmada's rules alone are
measured instead: one binding for that many Cluster objects.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from bayplan.answers.sources.loading import SourceOptions
from bayplan.answers.whatif.manifests import Manifests, manifests_of
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import NODES, PODS
from bayplan.fleet.karmada.clusters import ClusterTable
from bayplan.fleet.karmada.kinds import (
    AGGREGATED,
    BindingSpec,
    Cluster,
    Placement,
    ReplicaScheduling,
    decode_karmada,
)
from bayplan.fleet.karmada.schedule import schedule
from bayplan.fleet.members import Member, MemberSource, load_members
from bayplan.fleet.placing import Placer, branches

ZONES: Final = 3
ANSWERS: Final = 9
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
_NOTHING_ELSE: Final = Manifests("", ())
_PLACEMENT: Final = Placement(replica_scheduling=ReplicaScheduling(replica_division_preference=AGGREGATED))


def serve(pipe: Connection, directory: Path, members: int, nodes: int, pods: int) -> None:
    """Another process: the API servers, until something is written to the pipe."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for number in range(members):
                server = await stack.enter_async_context(EmbeddedServer())
                for node in range(nodes):
                    server.api.create(NODES, node_content(f"n{node}", f"z{node % ZONES}"))
                for pod in range(nodes * pods):
                    server.api.create(PODS, pod_content(f"p{pod}", f"n{pod % nodes}"), "default")
                server.write_kubeconfig(directory / f"{number}.kubeconfig")
            pipe.send("ready")
            await asyncio.to_thread(pipe.recv)

    asyncio.run(run())


def node_content(name: str, zone: str) -> dict[str, Any]:
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_content(name: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": f"a{int(name[1:]) % 50}"}},
        "spec": {"nodeName": node, "containers": [container("500m")]},
    }


def container(cpu: str) -> dict[str, Any]:
    return {"name": "c", "image": "example.com/c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}


def deployment(number: int, replicas: int) -> dict[str, Any]:
    """One that is spread over zones, with one replica on a host."""
    labels = {"app": f"new-{number}"}
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    spread = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"new-{number}", "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container(f"{500 + number}m")],
                    "affinity": {
                        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
                    },
                    "topologySpreadConstraints": [spread],
                },
            },
        },
    }


def answer(members: list[Member], number: int, replicas: int) -> None:
    """Places one workload, as the command does."""
    workload = manifests_of(deployment(number, replicas)).objects[0]
    with branches(members):
        placed = Placer(members, default=_PLACEMENT).place(workload, _NOTHING_ELSE)
    assert placed.fits, placed.result.error


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """CPU and wall clock, in seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - cpu, time.perf_counter() - wall


def measure(kubeconfigs: list[Path], replicas: int, profile: Path | None) -> dict[str, Any]:
    sources = [
        MemberSource(file.stem, SourceOptions(kubeconfig=str(file), time_limit=600.0)) for file in kubeconfigs
    ]
    members: list[Member] = []

    def load() -> None:
        found, missing = load_members(sources)
        assert not missing, missing
        members.extend(found)

    reading = timed(load)
    first = timed(lambda: answer(members, 0, replicas))
    profiler = cProfile.Profile()
    if profile is not None:
        profiler.enable()
    following = [timed(lambda n=n: answer(members, n, replicas)) for n in range(1, ANSWERS + 1)]  # type: ignore[misc] # mypy does not infer the default
    if profile is not None:
        profiler.disable()
        profiler.dump_stats(profile)
    return {
        "members": len(members),
        "nodes": sum(len(one.cluster.nodes) for one in members),
        "pods": sum(one.cluster.pod_count for one in members),
        "read_cpu_s": round(reading[0], 2),
        "first_cpu_s": round(reading[0] + first[0], 2),
        "first_wall_s": round(reading[1] + first[1], 2),
        "next_cpu_ms": round(statistics.median(cpu for cpu, _ in following) * 1e3, 1),
        "next_wall_ms": round(statistics.median(wall for _, wall in following) * 1e3, 1),
    }


# Karmada's rules alone


def cluster_content(number: int) -> dict[str, Any]:
    used = number % 37
    return {
        "metadata": {"name": f"c{number}", "labels": {"env": "prod" if number % 2 else "test"}},
        "spec": {"region": f"r{number % 20}", "provider": f"p{number % 3}", "zones": [f"z{number % 60}"]},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}],
            "resourceSummary": {
                "allocatable": {"cpu": "100", "memory": "400Gi", "pods": "1100"},
                "allocated": {"cpu": str(used), "memory": f"{used}Gi", "pods": str(used)},
            },
        },
    }


RULES: Final[dict[str, dict[str, Any]]] = {
    "duplicated": {},
    "aggregated": {"replicaScheduling": {"replicaDivisionPreference": "Aggregated"}},
    "dynamic weights": {
        "replicaScheduling": {
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        }
    },
    "spread by region": {
        "replicaScheduling": {"replicaDivisionPreference": "Aggregated"},
        "spreadConstraints": [
            {"spreadByField": "region", "minGroups": 3, "maxGroups": 10},
            {"spreadByField": "cluster", "minGroups": 5, "maxGroups": 50},
        ],
    },
}


def measure_rules(clusters: int) -> dict[str, Any]:
    """Milliseconds of CPU for one binding by each rule: medians."""
    table = ClusterTable([decode_karmada(Cluster, cluster_content(number)) for number in range(clusters)])
    found: dict[str, Any] = {"clusters": clusters}
    for name, rule in RULES.items():
        placement = {"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}}, **rule}
        content = {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"},
            "replicas": 2000,
            "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
            "clusters": [{"name": f"c{number}", "replicas": 3} for number in range(1, 40, 2)],
            "placement": placement,
        }
        spec = decode_karmada(BindingSpec, content)
        assert schedule(spec, table).reason is None
        times = [timed(lambda: schedule(spec, table))[0] for _ in range(51)]  # noqa: B023 # called at once
        found[name] = {"cpu_ms": round(statistics.median(times) * 1e3, 2)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=60)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--clusters", type=int)
    options = parser.parse_args()
    if options.clusters is not None:
        print(json.dumps(measure_rules(options.clusters)))
        return
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = multiprocessing.Pipe()
        sizes = options.members, options.nodes, options.pods_per_node
        serving = multiprocessing.get_context("spawn").Process(
            target=serve, args=(theirs, Path(directory), *sizes)
        )
        serving.start()
        try:
            ours.recv()
            files = sorted(Path(directory).glob("*.kubeconfig"))
            print(json.dumps(measure(files, options.replicas, options.profile)))
        finally:
            ours.send("end")
            serving.join()


if __name__ == "__main__":
    main()
