"""`whatif --queues` and a scheduler that reads the new file start and evict as many pods of each queue."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SchedulerSettings, with_settings
from bayplan.answers.whatif.cluster import Cluster
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import QueueConfigError
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node
from tests.effort import examples
from tests.queues.building import queued_pod, queues_config, queues_file
from tests.scheduler.behaviour.running import configuration, running
from tests.scheduler.behaviour.test_queue_evictions import Generated, all_queues

Counts = tuple[Counter[str], Counter[str]]
"""Pods that started and that were evicted, by queue."""


def changed(rng: random.Random, text: str) -> str:
    """The same queues with other limits and guarantees."""
    while True:
        config: dict[str, Any] = json.loads(text)
        queues = [queue for _, queue in all_queues(config["partitions"][0]["queues"][0]["queues"])]
        for _ in range(rng.randint(1, 3)):
            queue, kind = rng.choice(queues), rng.choice(("max", "guaranteed", "guaranteed", "none", "apps"))
            if kind == "none":
                queue["resources"] = {}
            elif kind == "apps":
                queue["maxapplications"] = rng.randint(0, 3)
            else:
                queue["resources"][kind] = {"vcore": rng.randint(1, 6)}
        try:
            load(json.dumps(config))
        except QueueConfigError:
            continue
        return json.dumps(config)


def by_queue(pods: Iterable[Pod]) -> Counter[str]:
    return Counter(pod.labels["queue"] for pod in pods)


async def really(seed: int, folder: Path) -> tuple[Sequence[Pod], Sequence[Node], str, Counts]:
    """The cluster before the new file, the file, and what happened when it was loaded."""
    rng = random.Random(seed)
    generated = Generated(rng)
    file, new = queues_file(folder, generated.text), changed(rng, generated.text)
    nodes = [make_node(f"n{number}", cpu=rng.randint(2, 8)) for number in range(rng.randint(1, 3))]
    async with running(*nodes, config=queues_config(file)) as world:
        for _ in range(3):
            await world.create(*(generated.pod() for _ in range(rng.randint(2, 6))))
            await world.after(10)
        await world.after(700)
        before = world.store.list(Pod)
        had, shown = world.bound(), world.store.list(Node)
        file.write_text(new)
        await world.after(700)
        started = by_queue(pod for pod in world.store.list(Pod) if pod.name in world.bound() - had)
        evicted = by_queue(pod for pod in before if pod.name not in world.names())
    return before, shown, new, (started, evicted)


@pytest.mark.parametrize("seed", range(examples(100)))
def test_the_answer_is_what_happens(seed: int, tmp_path: Path) -> None:
    pods, nodes, new, happened = run_virtual(really(seed, tmp_path))
    config = configuration(queues_config(tmp_path / "queues.yaml"))
    loaded = with_settings(LoadedCluster("test", (*pods, *nodes)), SchedulerSettings(config))
    cluster, other = Cluster.from_loaded(loaded), tmp_path / "new.yaml"
    other.write_text(new)
    cluster.use_queues(str(other))
    placements = cluster.schedule()
    by_key = {pod.key: pod for pod in pods}
    started = by_queue(by_key[each.pod] for each in placements if each.node)
    evicted = by_queue(by_key[key] for key in {key for each in placements for key in each.evicted})
    assert (started, evicted) == happened


def test_pods_are_as_old_as_they_are(tmp_path: Path) -> None:
    """What-if runs begin when the newest pod was created, so the delay before preemption passes."""
    text = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues: [{name: a, resources: {guaranteed: {vcore: 2}}}, {name: b}]
"""
    config = configuration(queues_config(queues_file(tmp_path, text)))
    objects = (
        make_node("n", cpu=2),
        queued_pod("x", "b", 2, node="n", created=datetime(2040, 1, 1, tzinfo=UTC)),
        queued_pod("y", "a", 2, created=datetime(2040, 1, 2, tzinfo=UTC)),
    )
    loaded = with_settings(LoadedCluster("test", objects), SchedulerSettings(config))
    (placed,) = (each for each in Cluster.from_loaded(loaded).schedule() if each.pod == "default/y")
    assert (placed.node, placed.evicted) == ("n", ("default/x",))
