"""Whatever happens to Volcano's queues, their use is that of a recount, and no limit is exceeded."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.pod import Pod
from bayplan.clock import Changes
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.conf import load
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.state.cluster import Cluster
from bayplan.state.objects import Objects
from bayplan.testing.builders import make_pod

CONF = """
actions: "enqueue, allocate, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: PLUGIN}]
"""
NAMES = ("a", "b", "c")
CPUS = 20


class History:
    """Queues with pods that come, run and go, while Queue objects and PodGroups change."""

    def __init__(self, seed: int, plugin: str) -> None:
        self.random = random.Random(seed)
        changes = Changes()
        self.objects = Objects(changes)
        self.queues = VolcanoQueues(
            load(CONF.replace("PLUGIN", plugin)),
            Cluster().pod_infos.of,
            lambda: {"cpu": CPUS * 1000, "pods": 100},
            self.objects,
            changes,
        )
        self.running: dict[str, Pod] = {}
        self.numbers = 0

    def queue(self) -> None:
        limited = self.random.random() < 0.5
        capability: ResourceList = {"cpu": self.random.randint(1, CPUS)} if limited else {}
        spec = volcano.QueueSpec(weight=self.random.randint(1, 3), capability=capability)
        self.objects.put(volcano.Queue(metadata=ObjectMeta(name=self.random.choice(NAMES)), spec=spec))
        self.queues.objects_changed()

    def group(self) -> None:
        meta = ObjectMeta(name=f"g{self.random.randint(0, 4)}", namespace="default")
        spec = volcano.PodGroupSpec(queue=self.random.choice((*NAMES, "gone")))
        self.objects.put(volcano.PodGroup(metadata=meta, spec=spec))
        self.queues.objects_changed()

    def pod(self) -> None:
        self.numbers += 1
        pod = make_pod(f"p{self.numbers}", cpu=self.random.randint(1, 3))
        notes = {volcano.GROUP_ANNOTATION: f"g{self.random.randint(0, 4)}"}
        pod = replace(pod, metadata=replace(pod.metadata, annotations=notes, uid=f"u{self.numbers}"))
        info = QueuedPod(pod, pod.key, 0.0, self.numbers)
        info.sort_key = (self.numbers,)
        self.queues.push(info, info.sort_key)

    def pop(self) -> None:
        info = self.queues.pop()
        if info is None:
            return
        assert isinstance(info, QueuedPod)
        pod = info.pod
        assert self.queues.blocking(pod) is None, "a pod was popped that has no room"
        self.queues.charge(pod, "n")
        self.running[pod.uid] = pod

    def end(self) -> None:
        if self.running:
            uid = self.random.choice(sorted(self.running))
            del self.running[uid]
            self.queues.pod_ended(uid)
            self.queues.refund(uid)

    def check(self) -> None:
        self.queues.refresh()
        counted: dict[str, int] = {}
        for pod in self.running.values():
            path = self.queues.group_of(pod).queue.path
            counted[path] = counted.get(path, 0) + self.queues.amounts_of(pod)["cpu"]
        for account in self.queues.accounts.values():
            assert account.allocated.get("cpu", 0) == counted.get(account.queue.path, 0)
        self.check_deserved()

    def check_deserved(self) -> None:
        """What was changed queue by queue is what a distribution of the whole cluster gives."""
        kept = {name: account.deserved for name, account in self.queues.accounts.items()}
        self.queues.capacity_changed()
        self.queues.refresh()
        for name, account in self.queues.accounts.items():
            assert kept[name].get("cpu", 0) == pytest.approx(account.deserved.get("cpu", 0))


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
def test_histories(plugin: str) -> None:
    for seed in range(60):
        history = History(seed, plugin)
        steps = [history.queue, history.group, *[history.pod] * 5, *[history.pop] * 5, *[history.end] * 2]
        for number in range(80):
            history.random.choice(steps)()
            if number % 8 == 0:
                history.check()
        history.check()
        assert history.running, "nothing ran"


def queue_of(name: str, **spec: Any) -> volcano.Queue:
    return volcano.Queue(metadata=ObjectMeta(name=name), spec=volcano.QueueSpec(**spec))


def charged(history: History, name: str, notes: dict[str, str], **meta: Any) -> Pod:
    pod = make_pod(name, cpu=1, node="n")
    pod = replace(pod, metadata=replace(pod.metadata, annotations=notes, uid=name, **meta))
    history.queues.charge(pod, "n")
    return pod


def test_a_pod_without_group_keeps_its_queue() -> None:
    """Also when queues change, and it is placed again."""
    history = History(0, "capacity")
    history.objects.put(queue_of("a"))
    history.queues.refresh()
    charged(history, "p", {volcano.QUEUE_ANNOTATION: "a"})
    history.objects.put(queue_of("b"))
    history.queues.refresh()
    assert history.queues.accounts["a"].allocated == {"cpu": 1000, "pods": 1}


def test_victims_stay_victims_when_queues_change() -> None:
    history = History(0, "capacity")
    history.objects.put(queue_of("a"))
    history.queues.refresh()
    charged(history, "p", {volcano.QUEUE_ANNOTATION: "a"}, deletion_timestamp=datetime.now(UTC))
    for _ in range(2):
        assert history.queues.accounts["a"].queue.leaving == {"cpu": 1000, "pods": 1}
        history.objects.put(queue_of("b"))
        history.queues.refresh()


def test_a_pod_of_a_job_whose_queue_does_not_exist_has_a_reason() -> None:
    """Its siblings still run; it is listed as waiting, and told why."""
    history = History(0, "capacity")
    notes = {volcano.GROUP_ANNOTATION: "g"}
    meta = ObjectMeta(name="g", namespace="default")
    history.objects.put(volcano.PodGroup(metadata=meta, spec=volcano.PodGroupSpec(queue="gone")))
    history.queues.refresh()
    charged(history, "running", notes)
    pod = make_pod("waiting", cpu=1)
    info = QueuedPod(replace(pod, metadata=replace(pod.metadata, annotations=notes)), pod.key, 0.0, 1)
    history.queues.push(info, (1,))
    assert history.queues.pop() is None
    assert [each.key for each in history.queues] == ["default/waiting"]
    assert history.queues.reason(info.pod, info) == "queue gone does not exist"
    assert [text for _, text in history.queues.take_notices()] == ["queue gone does not exist"]


def test_a_change_of_objects_makes_no_pod_ready() -> None:
    """Where nothing is active, the scheduling queue must not miss the timer of a pod that backs off."""
    history = History(0, "capacity")
    history.objects.put(queue_of("a"))
    history.queues.objects_changed()
    assert history.queues.count == len(history.queues) == 0
