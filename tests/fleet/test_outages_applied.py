"""What `fleet drain`, `fleet lose` and `fleet place` say is done on three clusters of different shape.

Each has its own scheduler and controllers, and every number is counted by its API server.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from bayplan.api.documents import Document
from bayplan.api.meta import Content
from bayplan.embedded.kubelets import make_nodes
from bayplan.embedded.server import kubeconfig
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import NODES, PODS
from bayplan.embedded.server.subresources import evict
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.errors import APIError
from tests.commands import bayplan
from tests.fleet.fleets import anti_affinity, deployment, spread, write

pytestmark = pytest.mark.long

SHAPES: Mapping[str, dict[str, Any]] = {
    "east": {"count": 4, "zones": 2, "capacity": {"cpu": "4", "memory": "16Gi", "pods": "20"}},
    "west": {"count": 2, "zones": 2, "capacity": {"cpu": "8", "memory": "32Gi", "pods": "20"}},
    "edge": {"count": 1, "zones": 1, "capacity": {"cpu": "2", "memory": "8Gi", "pods": "3"}},
}
WEB = deployment("web", replicas=4, **anti_affinity("web"))
API = deployment("api", replicas=6, cpu="1500m", **spread("api"))
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "api", "namespace": "shop"},
    "spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "api"}}},
}
AGENT = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "agent", "namespace": "shop"},
    "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "c", "image": "c"}]},
        },
    },
}
BARE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bare", "namespace": "shop"},
    "spec": {"containers": [{"name": "c", "image": "c"}]},
}


class Fleet:
    """Clusters on this loop, in one kubeconfig."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.clusters: dict[str, LocalCluster] = {}
        self.stacks: dict[str, AsyncExitStack] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.clusters):
            await self.stop(name)

    async def start(self, name: str, *objects: Content) -> None:
        """Starts a cluster, or starts it again with the objects that it had."""
        settings = LocalSettings(data_dir=self.directory / name, stop_seconds=0.0)
        stack = AsyncExitStack()
        cluster = await stack.enter_async_context(LocalCluster(settings, Outcomes()))
        self.clusters[name], self.stacks[name] = cluster, stack
        kubeconfig.add(self.kubeconfig, cluster.server.endpoint, name)
        await cluster.apply([Document(one, "test", None) for one in objects])

    async def stop(self, name: str) -> None:
        del self.clusters[name]
        await self.stacks.pop(name).aclose()

    def pods(self, name: str, app: str) -> list[Content]:
        """As its API server lists them."""
        return [
            pod
            for pod in self.clusters[name].server.api.list(PODS, "shop")
            if pod["metadata"].get("labels", {}).get("app") == app
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def bound(self, name: str, app: str) -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.pods(name, app))

    def unschedulable(self, name: str, app: str) -> int:
        return sum(
            any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
            for pod in self.pods(name, app)
        )

    async def scale(self, name: str, workload: Content, replicas: int) -> tuple[int, int]:
        """Gives a cluster replicas. Returns how many its scheduler has bound, and for how many it found no
        node."""
        app = workload["metadata"]["name"]
        content = {**workload, "spec": {**workload["spec"], "replicas": replicas}}
        await self.clusters[name].apply([Document(content, "test", None)])
        await until(lambda: len(self.pods(name, app)) == replicas)
        await until(lambda: self.bound(name, app) + self.unschedulable(name, app) == replicas)
        return self.bound(name, app), self.unschedulable(name, app)

    async def evict(self, name: str, app: str) -> Counter[str]:
        """Evicts all pods from cordoned nodes: how often the API server did it, and how often not."""
        api = self.clusters[name].server.api
        answers: Counter[str] = Counter()
        for node in api.list(NODES):
            api.update(NODES, {**node, "spec": {**node["spec"], "unschedulable": True}})
        for pod in self.pods(name, app):
            try:
                evict(api, pod["metadata"]["name"], "shop", DeleteOptions())
            except APIError:
                answers["rejected"] += 1
            else:
                answers["evicted"] += 1
        for node in api.list(NODES):
            api.update(NODES, {**node, "spec": {**node["spec"], "unschedulable": False}})
        return answers

    async def ask(self, *arguments: str) -> dict[str, Any]:
        """A command over all clusters that run."""
        live = [word for name in self.clusters for word in ("--context", name)]
        command = ["fleet", *arguments, *live, "--kubeconfig", str(self.kubeconfig), "-q", "-o", "json"]
        ended = await asyncio.to_thread(bayplan, *command)
        assert ended.status in (0, 1), ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    async def snapshot(self, name: str) -> Path:
        file = self.directory / f"{name}.json"
        of = ["--kubeconfig", str(self.kubeconfig), "--context", name]
        ended = await asyncio.to_thread(bayplan, "snapshot", *of, "--to", str(file))
        assert ended.status == 0, ended.stderr
        return file


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


def workloads(found: dict[str, Any]) -> dict[str, tuple[int, dict[str, int], int]]:
    return {one["object"]: (one["replicas"], one["to"], one["pending"]) for one in found["workloads"]}


async def scenario(fleet: Fleet) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    for name, shape in SHAPES.items():
        nodes = make_nodes(**shape, prefix=f"{name}-")
        here = (WEB, API, BUDGET, AGENT, BARE) if name == "east" else ()
        await fleet.start(name, *nodes, namespace, *here)
    await until(lambda: (fleet.bound("east", "web"), fleet.bound("east", "api")) == (4, 6))
    await until(lambda: fleet.bound("east", "agent") == 4)
    await fleet.clusters["east"].idle()

    # Drain: the API server allows as many evictions as the command says.
    drained = await fleet.ask("drain", "east")
    assert workloads(drained) == {
        "shop/api": (6, {"west": 6}, 0),
        "shop/bare": (1, {}, 1),
        "shop/web": (4, {"west": 2, "edge": 1}, 1),
    }
    (blocked,) = drained["blockedBy"]
    assert (blocked["budget"], blocked["pods"], drained["daemonPods"]) == ("shop/api", 6, 4)
    answers = await fleet.evict("east", "api")
    assert answers == {"evicted": blocked["allowed"], "rejected": blocked["pods"] - blocked["allowed"]}
    await until(lambda: fleet.bound("east", "api") == 6)
    await fleet.clusters["east"].idle()

    # Lose: what is known of the cluster is a snapshot; the others bind exactly what the command says.
    file = await fleet.snapshot("east")
    await fleet.stop("east")
    lost = await fleet.ask("lose", "east", "--cluster", f"east={file}")
    assert workloads(lost) == workloads(drained)
    assert lost["blockedBy"] == []
    for one in lost["workloads"]:
        for name, count in one["to"].items():
            workload = {"shop/web": WEB, "shop/api": API}[one["object"]]
            assert await fleet.scale(name, workload, count) == (count, 0)
    # What stays pending has room nowhere.
    assert await fleet.scale("west", WEB, 3) == (2, 1)
    assert await fleet.scale("edge", WEB, 2) == (1, 1)
    assert await fleet.scale("west", WEB, 2) == (2, 0)
    assert await fleet.scale("edge", WEB, 1) == (1, 0)

    # It comes back with its pods: there are too many replicas, and the command says how many each keeps.
    await fleet.start("east")
    await until(lambda: fleet.bound("east", "web") == 4)
    await fleet.clusters["east"].idle()
    file_of = {"web": write(fleet.directory, "web.yaml", WEB), "api": write(fleet.directory, "api.yaml", API)}
    for app, workload, replicas in (("web", WEB, 4), ("api", API, 15)):
        placed = await fleet.ask("place", "--add", f"{file_of[app]}={replicas}")
        (found,) = placed["workloads"]
        assert found["fits"]
        for one in found["clusters"]:
            assert one["room"]["previous"] == fleet.bound(one["name"], app)
        assert sum(one["replicas"] for one in found["clusters"]) == replicas
        for one in found["clusters"]:
            wanted = one["replicas"]
            assert await fleet.scale(one["name"], workload, wanted) == (wanted, 0)


def test_every_number_holds_when_it_is_done(tmp_path: Path) -> None:
    async def run() -> None:
        async with Fleet(tmp_path) as fleet:
            await scenario(fleet)

    asyncio.run(run())
