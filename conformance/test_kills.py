"""kill -9 at random moments, under load: every pod ends bound once, and no node is overcommitted.

Pods keep coming in while `bayplan run` is started, and killed before or soon after it has begun to bind, or
when a certain pod is bound (on a slow machine the other moments may all be before the first binding). The
nodes have hardly more room than all pods together need, so that a scheduler that lost a binding would
overload a node. `BAYPLAN_KILLS` sets how often (50), `BAYPLAN_SEED` repeats the moments.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

from bayplan.api.quantity import milli_value
from conformance.harness.admin import Admin, Raw
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.objects import node, pod
from conformance.harness.schedulers import HANDLERS_SYNCED, configuration, start_bayplan

KILLS = int(os.environ.get("BAYPLAN_KILLS", "50"))
SEED = int(os.environ.get("BAYPLAN_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)

PODS_A_LIFE = 30
PODS_A_NODE = 20
MAX_SECONDS = 0.4
"""How long a scheduler runs before it is killed: about as long as its pods take."""
BEFORE_IT_BEGINS = 0.2
"""How many of the lives end earlier than that."""
AFTER_A_BINDING = 0.2
"""How many of the lives end when one of their pods is bound."""


async def live_and_die(plane: ControlPlane, admin: Admin, life: int, rng: random.Random) -> None:
    """One scheduler from its start to its kill, while pods are created."""
    coming = [pod(f"pod-{life}-{number}", cpu="100m") for number in range(PODS_A_LIFE)]
    with start_bayplan(plane, configuration(plane)) as scheduler:
        creating = asyncio.ensure_future(admin.create_all(coming))
        moment = rng.random()
        if moment < BEFORE_IT_BEGINS:
            await asyncio.sleep(rng.random())
        elif moment > 1 - AFTER_A_BINDING:
            await wait_until_bound(admin, f"pod-{life}-{rng.randrange(PODS_A_LIFE)}")
        else:
            while HANDLERS_SYNCED not in scheduler.log.read_text():
                scheduler.check()
                await asyncio.sleep(0.01)
            await asyncio.sleep(rng.random() * MAX_SECONDS)
        scheduler.check()
        scheduler.kill()
        await creating


async def wait_until_bound(admin: Admin, name: str) -> None:
    """Waits until a pod has a node."""
    async with asyncio.timeout(120):
        while True:
            found = await admin.find("Pod", name, "default")
            if found is not None and "nodeName" in found["spec"]:
                return
            await asyncio.sleep(0.01)


async def all_bound(plane: ControlPlane, admin: Admin) -> list[Raw]:
    """All pods, once an undisturbed scheduler has scheduled them."""
    with start_bayplan(plane, configuration(plane)) as scheduler:
        async with asyncio.timeout(120):
            while True:
                pods = await admin.list("Pod")
                if all(item["spec"].get("nodeName") for item in pods):
                    return pods
                scheduler.check()
                await asyncio.sleep(0.2)


def test_every_pod_is_bound_once_and_no_node_overcommitted(plane: ControlPlane) -> None:
    print(f"seed {SEED}: BAYPLAN_SEED={SEED} repeats it")
    rng = random.Random(SEED)
    pods = KILLS * PODS_A_LIFE
    nodes = pods // PODS_A_NODE + 1

    async def main() -> tuple[int, list[Raw]]:
        async with Admin(plane.access()) as admin:
            room = f"{100 * PODS_A_NODE}m"
            await admin.create_all(node(f"n{number}", cpu=room) for number in range(nodes))
            for life in range(KILLS):
                await live_and_die(plane, admin, life, rng)
            by_the_killed = sum("nodeName" in item["spec"] for item in await admin.list("Pod"))
            return by_the_killed, await all_bound(plane, admin)

    by_the_killed, bound = asyncio.run(main())
    used: Counter[str] = Counter()
    for item in bound:
        used[item["spec"]["nodeName"]] += milli_value(
            item["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        )
    bindings = Counter(
        entry["objectRef"]["name"]
        for entry in plane.requests(KUBE_SCHEDULER)
        if entry.get("objectRef", {}).get("subresource") == "binding"
        and entry["responseStatus"]["code"] == 201
    )
    assert by_the_killed > 0, "they were killed at work"
    assert len(bound) == pods
    assert {name: amount for name, amount in used.items() if amount > 100 * PODS_A_NODE} == {}
    # Some that took effect have no response, because the client was killed; none has two.
    assert set(bindings.values()) == {1}
