"""Preemption between capacity queues in generated clusters whose victims come back, as those of a Deployment.

Whatever the queues are: who evicts pods gets a node afterwards, evicts once, and takes nothing from queues
within their guarantee. Evictions end, because a victim cannot take back what was freed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod, PodStatus
from bayplan.api.requests import fit_requests
from bayplan.framework.outcome import Eviction
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import QueueConfigError
from bayplan.scheduler.failure import Evictions
from bayplan.simulate.memory.writes import Kubelet, end_after_grace_period
from bayplan.testing.builders import make_node, make_pdb
from tests.effort import examples
from tests.queues.building import queued_pod, queues_config, queues_file

from .running import World, running, virtual

Config = dict[str, Any]


class Generated:
    """A random tree of queues, and pods for them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        while True:
            tops = [self._queue(name, 1) for name in "abc"[: rng.randint(2, 3)]]
            self.text = json.dumps(
                {
                    "partitions": [
                        {"name": "default", "queues": [{"name": "root", "submitacl": "*", "queues": tops}]}
                    ]
                }
            )
            try:
                load(self.text)
            except QueueConfigError:
                continue
            break
        self.guaranteed: dict[str, int] = {}
        self.leaves: list[str] = []
        for path, queue in all_queues(tops):
            if guaranteed := queue["resources"].get("guaranteed"):
                self.guaranteed[path] = 1000 * guaranteed["vcore"]
            if "queues" not in queue:
                self.leaves.append(path.removeprefix("root."))
        self._count = 0

    def _queue(self, name: str, depth: int) -> Config:
        rng, resources, properties = self.rng, {}, {}
        if rng.random() < 0.5:
            resources["guaranteed"] = {"vcore": rng.randint(1, 4)}
        if rng.random() < 0.4:
            resources["max"] = {"vcore": rng.randint(2, 8)}
        if rng.random() < 0.2:
            properties["priority.offset"] = str(rng.choice((-5, 5, 100)))
        if rng.random() < 0.1:
            properties["priority.policy"] = "fence"
        made: Config = {"name": name, "resources": resources, "properties": properties}
        if rng.random() < 0.2:
            made["limits"] = [{"limit": "ann", "users": ["ann"], "maxresources": {"vcore": 2}}]
        if depth == 1 and rng.random() < 0.5:
            properties["preemption.policy"] = rng.choice(("default", "default", "fence"))
            made["queues"] = [self._queue(name + child, 2) for child in "xyz"[: rng.randint(2, 3)]]
        else:
            properties["preemption.delay"] = rng.choice(("1s", "5s"))
            properties["application.sort.policy"] = rng.choice(("fifo", "fair"))
            properties["preemption.policy"] = rng.choice(("default",) * 6 + ("fence", "disabled"))
            if rng.random() < 0.1:
                made["maxapplications"] = 1
        return made

    def pod(self) -> Pod:
        rng = self.rng
        self._count += 1
        leaf, number = rng.choice(self.leaves), rng.randint(0, 2)
        notes = {"yunikorn.apache.org/allow-preemption": "false"} if rng.random() < 0.1 else {}
        made = queued_pod(
            f"p{self._count}",
            leaf,
            rng.choice((1, 1, 1, 2, 3)),
            f"{leaf}-{number}",
            "bob" if number else "ann",
            priority=rng.choice((0, 0, 0, 10)),
            annotations=notes,
        )
        kept = {"kept": "yes"} if rng.random() < 0.2 else {}
        return replace(made, metadata=replace(made.metadata, labels={**made.labels, **kept}))

    def again(self, pod: Pod) -> Pod:
        """The replacement of a victim."""
        self._count += 1
        meta = replace(pod.metadata, name=f"p{self._count}", uid="", creation_timestamp=None)
        return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus())


def all_queues(queues: list[Config], above: str = "root") -> Iterator[tuple[str, Config]]:
    for queue in queues:
        path = f"{above}.{queue['name']}"
        yield path, queue
        yield from all_queues(queue.get("queues", []), path)


def _paths(pod: Pod) -> list[str]:
    """The queues on the path of a pod, without the root."""
    names = pod.labels["queue"].split(".")
    return [".".join(names[: count + 1]) for count in range(1, len(names))]


class Watched:
    """Notes every eviction, and what was wrong with it."""

    def __init__(self, world: World, generated: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
        self.problems: list[str] = []
        self.evicted: dict[str, list[str]] = {}
        """By preemptor: its victims."""
        self.victims: dict[str, Pod] = {}
        self._world, self._generated = world, generated
        start = Evictions.start

        def watched(evictions: Evictions, preemptor: Pod, eviction: Eviction, plugin: str) -> None:
            self._check(
                preemptor,
                [pod for pod in eviction.victims if pod.name not in self.victims and not pod.is_terminating],
            )
            return start(evictions, preemptor, eviction, plugin)

        monkeypatch.setattr(Evictions, "start", watched)

    def _check(self, preemptor: Pod, victims: list[Pod]) -> None:
        if not victims:
            return  # others evict them already
        if preemptor.name in self.evicted:
            self.problems.append(f"{preemptor.name} evicts again")
        self.evicted[preemptor.name] = [pod.name for pod in victims]
        self.victims |= {pod.name: pod for pod in victims}
        used: Counter[str] = Counter()
        for pod in self._world.store.list(Pod):
            if pod.spec.node_name and pod.name not in self.victims and not pod.is_terminating:
                used.update({path: fit_requests(pod)["cpu"] for path in _paths(pod)})
        for path in {path for pod in victims for path in _paths(pod)} - set(_paths(preemptor)):
            if used[path] < self._generated.guaranteed.get(path, 0):
                self.problems.append(f"{preemptor.name} leaves {path} {used[path]}m")


@pytest.mark.parametrize("kubelet", [None, end_after_grace_period], ids=["at once", "after 30 s"])
@pytest.mark.parametrize("seed", range(20, 20 + examples(60)))
@virtual
async def test_nothing_is_evicted_in_vain(
    seed: int, kubelet: Kubelet | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    generated = Generated(rng)
    nodes = [make_node(f"n{number}", cpu=rng.randint(1, 5)) for number in range(rng.randint(1, 3))]
    config = queues_config(queues_file(tmp_path, generated.text))
    budget = make_pdb("b", labels={"kept": "yes"}, allowed=1)
    async with running(*nodes, budget, config=config, kubelet=kubelet) as world:
        watched, replaced = Watched(world, generated, monkeypatch), set[str]()
        for _ in range(rng.randint(3, 7)):
            await world.create(*(generated.pod() for _ in range(rng.randint(2, 8))))
            await world.after(rng.choice((0, 3, 20)))
            if rng.random() < 0.4 and (bound := sorted(world.bound())):
                await world.delete(rng.choice(bound))
        for _ in range(5):
            gone = watched.victims.keys() - replaced - set(world.names())
            await world.create(*(generated.again(watched.victims[name]) for name in sorted(gone)))
            replaced |= gone
            await world.after(30)
        count = len(watched.evicted)
        await world.after(900)
        waiting = set(world.names()) - world.bound()
        in_vain = {name: victims for name, victims in watched.evicted.items() if name in waiting}
        assert (watched.problems, in_vain, len(watched.evicted)) == ([], {}, count)
