"""Objects as an API server might send them, through client and scheduler, in virtual time.

Beside the mutated objects there are a few sound ones, apart from the others. Whatever the others are like,
the scheduler lives, these pods are bound, nothing is bound twice, and no node gets more than it has room for.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final

import msgspec

from bayplan.api.kinds import KINDS
from bayplan.client.http import KubernetesCluster
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from tests.fuzz import samples
from tests.fuzz.mutation import Mutator
from tests.fuzz.oracle import FindingError
from tests.fuzz.targets.api_server import FakeConnections, FakeServer

WITNESS_NODE: Final = "witness-node"
WITNESSES: Final = ("default/witness-0", "default/witness-1")
LATE_WITNESS: Final = "default/witness-2"
LATER_SECONDS: Final = 700.0
"""Until every backoff is over and pods have been tried again though nothing happened."""


class Raw(msgspec.Struct, frozen=True):
    """A document in a collection."""

    collection: str
    key: str
    data: bytes
    change: str = ""


class Life(msgspec.Struct, frozen=True):
    """What is there at first, and what happens then."""

    listed: list[Raw]
    watched: list[Raw]
    streams: bool


class Scheduling:
    name = "scheduling"
    input_type = Life

    def make(self, rng: random.Random) -> Life:
        mutator = Mutator(rng)
        objects = [_identified(item, number) for number, item in enumerate(samples.cluster(rng))]
        listed, watched = [], []
        for item in objects:
            changed = mutator.document(item) if rng.random() < 0.35 else item
            listed.append(_raw(item, changed))
        for _ in range(rng.randrange(8)):
            item = rng.choice(objects)
            change = rng.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED"))
            newer = mutator.document(_identified(item, 1000 + rng.randrange(1000), new=False))
            watched.append(_raw(item, newer, change))
        return Life(listed, watched, rng.random() < 0.5)

    def run(self, given: Life) -> None:
        run_virtual(_live(given))


async def _live(given: Life) -> None:
    server = FakeServer(streams=given.streams)
    for raw in (*given.listed, *map(_raw_witness, _witnesses())):
        server.put(raw.collection, raw.key, raw.data)
    loop = current_loop()
    async with KubernetesCluster(FakeConnections(server), qps=-1, now=loop.wall_time) as cluster:
        scheduler = Scheduler(cluster, settings=LoopSettings(eager=False))
        running = asyncio.ensure_future(scheduler.run())
        try:
            await _happen(server, given, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    problems = [*server.problems, *_lost_pods(server)]
    if problems:
        raise FindingError("\n".join(problems), problems[0].partition(":")[0].partition(" ")[2])


async def _happen(server: FakeServer, given: Life, running: asyncio.Future[None]) -> None:
    late = _identified(_witness_pod(LATE_WITNESS.partition("/")[2]), 5000)
    for raw in (*given.watched, _raw(late, late, "ADDED")):
        await asyncio.sleep(1.0)
        await quiescent()
        server.put(raw.collection, raw.key, raw.data, raw.change)
    await asyncio.wait([running], timeout=LATER_SECONDS)
    if running.done():
        running.result()
        raise FindingError("the scheduler has ended")


def _lost_pods(server: FakeServer) -> list[str]:
    pods = server.pods()
    # One that was evicted for a pod of higher priority is gone.
    there = [pods[key] for key in (*WITNESSES, LATE_WITNESS) if key in pods]
    return [f"{pod['metadata']['name']} is not bound" for pod in there if not pod["spec"].get("nodeName")]


def _witnesses() -> list[dict[str, Any]]:
    node = samples.node(WITNESS_NODE, zone="witness-zone", cpu="1000", memory="1Ti")
    node["metadata"]["labels"] = {"kubernetes.io/hostname": WITNESS_NODE, "witness": "yes"}
    node["spec"] = {"taints": [{"key": "witness", "effect": "NoSchedule"}]}
    pods = [_witness_pod(key.partition("/")[2]) for key in WITNESSES]
    return [_identified(item, 4000 + number) for number, item in enumerate([node, *pods])]


def _witness_pod(name: str) -> dict[str, Any]:
    pod = samples.plain_pod(name)
    pod["metadata"]["labels"] = {"witness": "yes"}
    pod["spec"] |= {
        "priority": 2_000_000_000,
        "nodeSelector": {"witness": "yes"},
        "tolerations": [{"key": "witness", "operator": "Exists"}],
    }
    return pod


def _identified(item: dict[str, Any], number: int, *, new: bool = True) -> dict[str, Any]:
    """The object as a server would have it: with identity, version and defaults."""
    metadata = {**item["metadata"], "resourceVersion": str(number + 1)}
    if new:
        metadata |= {"uid": f"uid-{number}", "creationTimestamp": samples.STARTED}
    made = {**item, "metadata": metadata}
    if item["kind"] == "Pod":
        made["spec"] = {"schedulerName": "default-scheduler", **item["spec"]}
    return made


def _raw(item: dict[str, Any], changed: Any, change: str = "") -> Raw:
    """A document under its name: whatever else is wrong, a server keeps no object under another one."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    key = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
    if isinstance(changed, dict) and isinstance(changed.get("metadata"), dict):
        names = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
        changed = {**changed, "metadata": {**changed["metadata"], **names}}
    # No API server sends half a character.
    data = json.dumps(changed, ensure_ascii=False).encode(errors="replace")
    return Raw(KINDS[item["kind"]].collection(), key, data, change)


def _raw_witness(item: dict[str, Any]) -> Raw:
    return _raw(item, item)
