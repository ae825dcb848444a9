"""Answers of an extender: with any of them the scheduler runs on and every pod is bound or unschedulable."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final

import msgspec

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.config import default_config
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from tests.extender.webhook import Webhook, make_config
from tests.fuzz import samples
from tests.fuzz.mutation import Mutator
from tests.fuzz.oracle import FindingError

SECONDS: Final = 60.0
"""For one attempt; it takes milliseconds."""
NODES: Final = ("n0", "n1", "n2")


class Answers(msgspec.Struct, frozen=True):
    """What the extender answers to each verb, and how it is configured."""

    answers: dict[str, bytes]
    verbs: list[str]
    cache: bool
    ignorable: bool
    crowded: bool
    """Whether pods have to preempt others."""


class Extenders:
    name = "extenders"
    input_type = Answers

    def make(self, rng: random.Random) -> Answers:
        mutator = Mutator(rng)
        sound = _sound(rng)
        answers = {}
        for verb, answer in sound.items():
            changed = mutator.document(answer) if rng.random() < 0.6 else answer
            data = json.dumps(changed).encode()
            answers[verb] = mutator.damage(data) if rng.random() < 0.1 else data
        verbs = [verb for verb in sound if rng.random() < 0.7] or ["filter"]
        return Answers(answers, verbs, rng.random() < 0.5, rng.random() < 0.3, rng.random() < 0.4)

    def run(self, given: Answers) -> None:
        asyncio.run(_schedule(given))


def _sound(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(NODES, rng.randrange(1, 4))
    nodes = {"kind": "NodeList", "items": [samples.node(name) for name in names]}
    victims = {"pods": [{"uid": "u"}], "numPDBViolations": 0}
    return {
        "filter": {
            "nodenames": names,
            "nodes": nodes if rng.random() < 0.5 else None,
            "failedNodes": {"n2": "no"},
            "failedAndUnresolvableNodes": {},
            "error": "",
        },
        "prioritize": [{"host": name, "score": rng.randrange(11)} for name in names],
        "preempt": {"nodeNameToMetaVictims": dict.fromkeys(names, victims)},
        "bind": {"error": ""},
    }


async def _schedule(given: Answers) -> None:
    store = MemoryStore()
    filler = "8" if given.crowded else "1"
    for name in NODES:
        store.create(_record(samples.node(name)))
        filling = samples.plain_pod(f"filler-{name}", cpu=filler)
        filling["spec"]["nodeName"] = name
        store.create(_record(filling))
    async with Webhook(given.answers) as webhook:
        # Bindings that an extender claims to have made are not made here.
        verbs = [verb for verb in given.verbs if verb != "bind"] or ["filter"]
        extender = make_config(
            webhook.url, *verbs, cache=given.cache, ignorable=given.ignorable, timeout=SECONDS
        )
        config = msgspec.structs.replace(default_config(), extenders=(extender,))
        scheduler = Scheduler(MemoryCluster(store), config)
        running = asyncio.ensure_future(scheduler.run())
        try:
            await scheduler.synced()
            pod = samples.plain_pod("p")
            pod["spec"] |= {"priority": 10, "schedulerName": "default-scheduler"}
            store.create(_record(pod))
            deciding = asyncio.ensure_future(_decided(store))
            await asyncio.wait([running, deciding], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                raise FindingError("the scheduler has ended")
            deciding.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _decided(store: MemoryStore) -> None:
    for _ in range(int(SECONDS / 0.002)):
        pod = store.get(Pod, "p", "default")
        if pod.spec.node_name or any(one.type == "PodScheduled" for one in pod.status.conditions):
            return
        await asyncio.sleep(0.002)
    raise FindingError("no decision")


def _record(item: dict[str, Any]) -> Object:
    record: Object = msgspec.convert(item, KINDS[item["kind"]].record)
    return record
