"""A live member is a copy that follows its cluster; estimates on it equal those of a fresh copy."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.client.access import Access
from bayplan.fleet.estimator.answers import Estimates
from bayplan.fleet.estimator.live import LiveMember
from bayplan.fleet.estimator.wire import encode_replicas_request
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.testing import make_node, make_pod
from tests.fleet.test_estimator import StillMember

ONE_CORE = encode_replicas_request("a", {"cpu": "1"})


def test_what_changes_in_the_cluster_changes_in_the_copy() -> None:
    """Nodes and pods come, change and go at random; after each step the cached estimate is the fresh one."""
    store = MemoryStore(clock=lambda: 0.0)
    member = LiveMember("a", Access("http://127.0.0.1:1"))
    estimates = Estimates([member])
    rng = random.Random(1)
    store.create(make_node("n0", cpu="8"))

    def step(number: int) -> None:
        nodes, pods = store.list(Node), store.list(Pod)
        match rng.randrange(5):
            case 0:
                store.create(make_node(f"n{number}", cpu=str(rng.randint(1, 8))))
            case 1 if len(nodes) > 1:
                store.delete(Node, rng.choice(nodes).name)
            case 2 if nodes:
                node = rng.choice(nodes)
                unschedulable = not node.spec.unschedulable
                store.update(replace(node, spec=replace(node.spec, unschedulable=unschedulable)))
            case 3 if pods:
                pod = rng.choice(pods)
                store.delete(Pod, pod.name, pod.namespace)
            case _:
                store.create(make_pod(f"p{number}", cpu="1", node=rng.choice(nodes).name))

    async def run() -> list[tuple[int, int]]:
        watching = asyncio.ensure_future(member.watch(MemoryCluster(store), DEFAULT_RELEASE))
        while not member.is_synced:
            await asyncio.sleep(0)
        found = []
        for number in range(1, 60):
            step(number)
            for _ in range(20):
                await asyncio.sleep(0)
            fresh = StillMember("a", Cluster.from_objects([*store.list(Node), *store.list(Pod)]))
            found.append(
                (
                    estimates.max_available_replicas(ONE_CORE),
                    Estimates([fresh]).max_available_replicas(ONE_CORE),
                )
            )
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        return found

    found = asyncio.run(run())
    assert [cached for cached, _ in found] == [fresh for _, fresh in found]
    assert len(set(found)) > 5
