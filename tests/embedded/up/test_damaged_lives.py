"""Lives of a whole cluster whose data directory was damaged: rejected by name, or right from then on."""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from bayplan.api.documents import Document, parse_documents
from bayplan.api.node import Node
from bayplan.api.quantity import milli_value
from bayplan.api.releases import V1_36
from bayplan.embedded.server.database import DamagedError, StorageError
from bayplan.embedded.server.kinds import NODES
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from tests.embedded.server.damage import DAMAGES, restore_older

LIVES = int(os.environ.get("BAYPLAN_DAMAGED_LIVES", "4"))
SECONDS = 120
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: c, image: web, resources: {{requests: {{cpu: "{cpu}"}}}}}}]}}
"""

requests_of = V1_36.accounting.assigned_requests


def pods(prefix: str, count: int) -> list[Document]:
    """More than three nodes of 8 CPUs can take."""
    text = "---".join(POD.format(name=f"{prefix}{number}", cpu=1 + number % 3) for number in range(count))
    return list(parse_documents(text.encode()))


def cluster(directory: Path, *, salvages: bool = False) -> LocalCluster:
    return LocalCluster(LocalSettings(nodes=3, data_dir=directory, salvages=salvages), Outcomes())


@cache
def kept() -> tuple[Path, ...]:
    """The data directory of a cluster, as kill -9 leaves it and after an orderly end."""
    root = Path(mkdtemp(prefix="bayplan-lives-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)

    async def live() -> None:
        async with cluster(root / "closed") as running:
            await running.apply(pods("first", 15))
            await running.idle()
            await running.server.api.store.durable()
            shutil.copytree(root / "closed", root / "killed")

    asyncio.run(asyncio.wait_for(live(), SECONDS))
    return root / "closed", root / "killed"


async def check(running: LocalCluster) -> None:
    """It schedules, nothing breaks, and no node is given more than it has."""
    await running.apply(pods("second", 6))
    working = asyncio.ensure_future(running.failure())
    idle = asyncio.ensure_future(running.idle())
    done, _ = await asyncio.wait((working, idle), return_when=asyncio.FIRST_COMPLETED)
    assert idle in done, working.exception()
    working.cancel()
    requested: Counter[str] = Counter()
    for pod in running.pods():
        requested[pod.spec.node_name] += requests_of(pod).get("cpu", 0)
    pending = requested.pop("", 0)
    nodes = [document.record(Node) for document in running.server.api.documents(NODES)]
    room = {node.name: milli_value(node.status.allocatable["cpu"]) for node in nodes}
    assert set(requested) <= set(room)
    assert {name: cpu for name, cpu in requested.items() if cpu > room[name]} == {}
    smallest = min(
        (requests_of(pod)["cpu"] for pod in running.pods() if not pod.spec.node_name),
        default=0,
    )
    assert not pending or all(room[name] - requested[name] < smallest for name in room), "a pod would fit"


async def live(directory: Path) -> str:
    try:
        async with cluster(directory) as running:
            await check(running)
        return "whole"
    except DamagedError:
        pass
    except StorageError as error:
        if "is not known" not in str(error):  # the number of the format is damaged
            raise
        return "rejected"
    async with cluster(directory, salvages=True) as running:
        await check(running)
    async with cluster(directory) as running:
        await check(running)
    return "salvaged"


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_damaged_life_continues_or_is_rejected(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    directory = shutil.copytree(rng.choice(kept()), tmp_path / "data")
    # An older copy of another store would be no damage that happens.
    rng.choice([damage for damage in DAMAGES if damage is not restore_older])(directory, rng)
    assert asyncio.run(asyncio.wait_for(live(directory), SECONDS)) in ("whole", "salvaged", "rejected")
