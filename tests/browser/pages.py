"""Pages to look at: the tour's cluster, live, and generated clusters of any size."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.api.meta import Object, OwnerReference
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.manifests import read_manifests_or_snapshots
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.watched_files import WatchedDevices
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.testing import make_node, make_pod
from bayplan.ui.hub import Hub
from bayplan.ui.questions import Subject
from bayplan.ui.serving import Address, PageOfCluster, link_of, listen
from bayplan.ui.sources import from_loaded

ROOT = Path(__file__).parents[2]
TOUR = [
    str(ROOT / "examples" / "tour" / name)
    for name in ("1-platform.yaml", "2-workloads.yaml", "3-urgent.yaml")
]


@dataclass(frozen=True)
class Served:
    """A page that is served."""

    link: Callable[[], str]
    """Logs in; another one each time."""
    hub: Hub
    cluster: LocalCluster | None = None

    @property
    def root(self) -> str:
        return self.link().partition("login")[0]


@asynccontextmanager
async def served(subject: Subject, hub: Hub) -> AsyncIterator[Served]:
    address = Address()
    async with listen(subject, hub, address) as page:
        yield Served(lambda: link_of(page, address), hub)


@asynccontextmanager
async def tour(files: list[str] = TOUR, nodes: int = 12, *, writes: bool = False) -> AsyncIterator[Served]:
    """The cluster of `make run` with a viewer from the start, after everything has been scheduled."""
    page = PageOfCluster()
    devices = WatchedDevices(ROOT / "examples" / "gpus.yaml")
    settings = LocalSettings(nodes=nodes, plain=page.plain, plugins=(Coscheduling,), devices=devices)
    async with LocalCluster(settings, Outcomes()) as cluster:
        hub = page.attach(cluster, settings, "bayplan", writes=writes)
        async with hub.viewing():
            for documents in read_manifests_or_snapshots(files):
                await cluster.apply(documents)
                await cluster.idle()
            yield Served(page.link, hub, cluster)
        await hub.close()


def objects(nodes: int, pods: int, seed: int = 7) -> Iterator[Object]:
    """A cluster in three zones and three pools, unevenly full, with pending pods."""
    rng = random.Random(seed)
    pools: tuple[tuple[str, str, str, dict[str, str]], ...] = (
        ("general", "16", "64Gi", {}),
        ("memory", "32", "256Gi", {}),
        ("gpu", "64", "512Gi", {"nvidia.com/gpu": "8"}),
    )
    left = []
    for number in range(nodes):
        name, cpu, memory, more = pools[0 if number % 10 < 6 else 1 if number % 10 < 9 else 2]
        zone = "eu-a" if number % 50 < 21 else "eu-b" if number % 50 < 39 else "eu-c"
        taints = ["nvidia.com/gpu:NoSchedule"] if more else []
        yield make_node(
            f"ip-10-{number // 62500}-{number // 250 % 250}-{number % 250}",
            cpu=cpu,
            memory=memory,
            resources={"cpu": cpu, "memory": memory, "pods": "110", **more},
            labels={
                "topology.kubernetes.io/zone": zone,
                "pool": name,
                "kubernetes.io/hostname": f"h{number}",
            },
            taints=taints,
            unschedulable=number % 211 == 7,
        )
        left.append(int(cpu) * rng.choice((1.0, 1.0, 0.9, 0.8, 0.55, 0.3, 0.1)))
    made, number = 0, 0
    while made < pods and number < 60 * pods:
        row, size = number % nodes, rng.choice((0.25, 0.5, 1, 1, 2, 4))
        number += 1
        if left[row] < size:
            continue
        left[row] -= size
        made += 1
        owner = OwnerReference(
            api_version="apps/v1",
            kind="ReplicaSet",
            name=f"app-{made % 400}",
            uid=f"u{made % 400}",
            controller=True,
        )
        yield make_pod(
            f"app-{made % 400}-{made}",
            namespace=f"team-{made % 20}",
            cpu=f"{int(size * 1000)}m",
            memory=f"{int(size * 3)}Gi",
            node=f"ip-10-{row // 62500}-{row // 250 % 250}-{row % 250}",
            owner=owner,
        )
    for number in range(500):
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="train", controller=True)
        yield make_pod(
            f"train-{number}", namespace="ml", requests={"cpu": "8", "nvidia.com/gpu": "16"}, owner=owner
        )
    yield make_pod("gated", namespace="ml", cpu="1", gates=["example.com/quota"])


@asynccontextmanager
async def large(nodes: int, pods: int) -> AsyncIterator[Served]:
    """A generated cluster that does not change."""
    loaded = LoadedCluster("prod-eu", tuple(objects(nodes, pods)))
    subject, hub = await asyncio.to_thread(from_loaded, loaded, time.time)
    async with served(subject, hub) as found:
        yield found


@asynccontextmanager
async def files(*names: str, config: str = "") -> AsyncIterator[Served]:
    """Examples."""
    examples = ROOT / "examples"
    options = SourceOptions(
        files=tuple(str(examples / name) for name in names),
        config_file=str(examples / config) if config else None,
    )
    subject, hub = await asyncio.to_thread(lambda: from_loaded(load_cluster(options), time.time))
    async with served(subject, hub) as found:
        yield found
