"""What holds in every history of pods in Volcano's queues; HISTORIES=10000 tries more of them."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.pod import Pod
from bayplan.preemption.units import pods_in
from bayplan.queues.volcano.accounts import Entitlement, QueueSpec, accounts_by_name, open_accounts
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.conf import load
from bayplan.queues.volcano.preemption import VictimChoice, asking_pod
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.testing.builders import make_pod
from tests.effort import examples
from tests.queues import plain_victims

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CONF = """
actions: "enqueue, allocate, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: PLUGIN}]
"""
NAMES = ("a", "b", "c")
CPUS = 20
HISTORIES = int(os.environ.get("HISTORIES") or examples(200, quick=20))
PLUGINS = pytest.mark.parametrize("plugin", ["capacity", "proportion"])


def uids(cluster: Cluster, slots: IdColumn) -> set[str]:
    return {pod.uid for pod in pods_in(cluster, slots.tolist())}


class History:
    """Queues with pods that come, run and go, while Queue objects and PodGroups change."""

    def __init__(self, seed: int, plugin: str, actions: str = "reclaim") -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster()
        self.objects = self.cluster.objects
        self.queues = VolcanoQueues(
            load(CONF.replace("PLUGIN", plugin).replace("reclaim", actions)),
            self.cluster.pod_infos.of,
            lambda: {"cpu": CPUS * 1000, "pods": 100},
            self.objects,
            self.cluster.changes,
        )
        self.running: dict[str, Pod] = {}
        self.active: dict[str, QueuedPod] = {}
        """By uid: pods without a node."""
        self.numbers = 0

    def queue(self) -> None:
        chance = self.random
        capability: ResourceList = {"cpu": chance.randint(6, CPUS)} if chance.random() < 0.5 else {}
        deserved = chance.randint(1, 6)
        spec = volcano.QueueSpec(
            weight=chance.randint(1, 3),
            capability=capability,
            deserved={"cpu": deserved},
            guarantee=volcano.Guarantee(resource={"cpu": chance.randint(0, min(deserved, 2))}),
        )
        self.objects.put(volcano.Queue(metadata=ObjectMeta(name=chance.choice(NAMES)), spec=spec))
        self.queues.objects_changed()

    def group(self) -> None:
        meta = ObjectMeta(name=f"g{self.random.randint(0, 4)}", namespace="default")
        spec = volcano.PodGroupSpec(queue=self.random.choice((*NAMES, "gone")))
        self.objects.put(volcano.PodGroup(metadata=meta, spec=spec))
        self.queues.objects_changed()

    def pod(self) -> None:
        self.numbers += 1
        created = EPOCH + timedelta(seconds=self.numbers)
        cpu, priority = self.random.randint(1, 3), self.random.choice([0, 0, 5])
        pod = make_pod(f"p{self.numbers}", cpu=cpu, priority=priority, created=created)
        notes = {volcano.GROUP_ANNOTATION: f"g{self.random.randint(0, 4)}"}
        if self.random.random() < 0.1:
            notes[volcano.PREEMPTABLE] = "false"
        pod = replace(pod, metadata=replace(pod.metadata, annotations=notes, uid=f"u{self.numbers}"))
        self.push(QueuedPod(pod, pod.key, 0.0, self.numbers))

    def push(self, info: QueuedPod) -> None:
        info.sort_key = (info.sequence,)
        self.active[info.pod.uid] = info
        self.queues.push(info, info.sort_key)

    def pop(self) -> bool:
        info = self.queues.pop()
        if info is None:
            return False
        assert isinstance(info, QueuedPod)
        pod = info.pod
        assert self.queues.blocking(pod) is None, "a pod was popped that has no room"
        self.start(pod)
        del self.active[pod.uid]
        return True

    def start(self, pod: Pod) -> None:
        node = f"n{int(pod.uid[1:]) % 3}"
        self.running[pod.uid] = replace(pod, spec=replace(pod.spec, node_name=node))
        self.queues.charge(self.running[pod.uid], node)
        self.cluster.add_pod(self.running[pod.uid], node)

    def evict(self) -> None:
        """A victim terminates; it counts until it is gone."""
        if self.running:
            uid = self.random.choice(sorted(self.running))
            pod = self.running[uid]
            self.running[uid] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=EPOCH))
            self.queues.charge(self.running[uid], self.running[uid].spec.node_name)
            self.cluster.update_pod(self.running[uid])

    def end(self) -> None:
        if self.running:
            uid = self.random.choice(sorted(self.running))
            del self.running[uid]
            self.queues.pod_ended(uid)
            self.queues.refund(uid)
            self.cluster.remove_pod(uid)

    def check(self) -> None:
        self.queues.refresh()
        counted: Counter[str] = Counter()
        leaving: Counter[str] = Counter()
        for pod in self.running.values():
            path, cpu = self.queues.group_of(pod).queue.path, self.queues.amounts_of(pod)["cpu"]
            counted[path] += cpu
            leaving[path] += cpu * pod.is_terminating
        for account in self.queues.accounts.values():
            path = account.queue.path
            assert account.allocated.get("cpu", 0) == counted[path]
            assert account.staying.get("cpu", 0) == counted[path] - leaving[path]
        self.check_deserved()

    def check_deserved(self) -> None:
        """What was changed queue by queue is what a distribution of the whole cluster gives."""
        kept = {name: account.deserved for name, account in self.queues.accounts.items()}
        self.queues.capacity_changed()
        self.queues.refresh()
        for name, account in self.queues.accounts.items():
            assert kept[name].get("cpu", 0) == pytest.approx(account.deserved.get("cpu", 0))

    def play(self) -> None:
        steps = [self.queue, self.group, self.evict, *[self.pod] * 5, *[self.pop] * 5, *[self.end] * 2]
        for number in range(80):
            self.random.choice(steps)()
            if number % 8 == 0:
                self.check()
        self.check()

    def compare_victims(self) -> int:
        """Returns how often a job of the queue of the asking pod can lose something."""
        queues, cluster, own = self.queues, self.cluster, 0
        for info in self.active.values():
            group = queues.group_if_known(info.pod)
            if group is None or queues.account(group.queue) is None:
                continue
            asking = asking_pod(queues, info.pod, queues.amounts_of(info.pod))
            choice = VictimChoice(queues, asking)
            own += len(choice.own)
            chosen = plain_victims.chosen(queues, asking, choice, self.running.values())
            assert uids(cluster, choice.everywhere(cluster)) == chosen
            rows = np.arange(1, max(1, cluster.nodes.high))
            assert uids(cluster, choice.by_row(cluster, rows)) == {
                uid
                for row in rows.tolist()
                for uid in plain_victims.chosen(queues, asking, choice, cluster.pods_on(row))
            }
        return own

    def copy(self) -> History:
        """What a scheduler that starts now finds."""
        again = History(0, self.queues.kind.value)
        for item in (*self.objects.of(volcano.Queue), *self.objects.of(volcano.PodGroup)):
            again.objects.put(item)
        for pod in self.running.values():
            again.start(pod)
        for info in self.active.values():
            again.push(QueuedPod(info.pod, info.key, info.timestamp, info.sequence))
        return again


def played(seed: int, plugin: str) -> History:
    history = History(seed, plugin)
    history.play()
    return history


@PLUGINS
def test_histories(plugin: str) -> None:
    """Use is that of a recount, no limit is exceeded, and what queues deserve is up to date."""
    ran = sum(bool(played(seed, plugin).running) for seed in range(HISTORIES))
    assert ran > 0.9 * HISTORIES, "in nearly all of them something runs"


@PLUGINS
def test_a_recount_finds_the_same(plugin: str) -> None:
    """A scheduler that starts now has the same use and entitlements."""
    for seed in range(HISTORIES):
        history = played(seed, plugin)
        again = history.copy()
        for each in (history, again):
            each.queues.capacity_changed()
            each.queues.refresh()
        for name, account in history.queues.accounts.items():
            other = again.queues.accounts[name]
            assert account.allocated == other.allocated
            assert account.deserved == pytest.approx(other.deserved)
        assert {info.key for info in history.queues} == {info.key for info in again.queues}


@PLUGINS
def test_nothing_starves(plugin: str) -> None:
    """When everything that runs ends again and again, every pod runs that fits into its empty queue."""
    for seed in range(HISTORIES):
        history = played(seed, plugin)
        for _ in range(len(history.active) + 1):
            while history.pop():
                pass
            while history.running:
                history.end()
        queues = history.queues
        queues.capacity_changed()
        queues.refresh()
        for info in history.active.values():
            assert queues.blocking(info.pod) is not None, f"seed {seed}: {info.key} has room, and waits"


@PLUGINS
def test_victims_leave_every_queue_what_it_deserves(plugin: str) -> None:
    """A queue that loses pods keeps what it deserves, but for a part of the last one, and its guarantee."""
    evicted = 0
    for seed in range(HISTORIES):
        history = played(seed, plugin)
        queues, running = history.queues, history.running
        ending = {uid for uid, pod in running.items() if pod.is_terminating}
        for info in history.active.values():
            group = queues.group_if_known(info.pod)
            if group is None or queues.account(group.queue) is None:
                continue
            asking = asking_pod(queues, info.pod, queues.amounts_of(info.pod))
            choice, cluster = VictimChoice(queues, asking), history.cluster
            chosen = uids(cluster, choice.everywhere(cluster))
            assert ending <= chosen, "pods that are ending make room in any case"
            for account in queues.accounts.values():
                lost = [
                    queues.amounts_of(running[uid])["cpu"]
                    for uid in chosen - ending
                    if queues.group_of(running[uid]).queue is account.queue
                ]
                if lost:
                    evicted += len(lost)
                    left = account.staying["cpu"] - sum(lost)
                    assert account is not asking.job.account, "the action preempt is not configured"
                    assert left + max(lost) > account.deserved.get("cpu", 0)
                    if plugin == "capacity":
                        assert left >= account.guarantee.get("cpu", 0)
    assert evicted, "something is evicted"


@PLUGINS
def test_victims_are_those_of_the_plain_rules(plugin: str) -> None:
    """On each node, and on all of them together, whatever has changed since the last pod asked."""
    own = 0
    for seed in range(HISTORIES):
        history = History(seed, plugin, "reclaim, preempt")
        for _ in range(3):
            history.play()
            own += history.compare_victims()
    assert own, "jobs of the same queue lose pods, too"


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
    assert [notice.message for _, notice in history.queues.take_notices()] == ["queue gone does not exist"]


def test_a_change_of_objects_makes_no_pod_ready() -> None:
    """Where nothing is active, the scheduling queue must not miss the timer of a pod that backs off."""
    history = History(0, "capacity")
    history.objects.put(queue_of("a"))
    history.queues.objects_changed()
    assert history.queues.count == len(history.queues) == 0


def test_the_job_that_was_created_first_is_first() -> None:
    """Its age is that of its PodGroup: pods are created when it is admitted, and again when they fail."""
    history = History(0, "capacity")
    for name, seconds in (("old", 0), ("young", 5)):
        created = EPOCH + timedelta(seconds=seconds)
        meta = ObjectMeta(name=name, namespace="default", creation_timestamp=created)
        history.objects.put(volcano.PodGroup(metadata=meta, spec=volcano.PodGroupSpec()))
    for number, name in enumerate(("young", "old")):
        pod = make_pod(f"of-{name}", cpu=1, created=EPOCH + timedelta(seconds=10 + number))
        pod = replace(pod, metadata=replace(pod.metadata, annotations={volcano.GROUP_ANNOTATION: name}))
        history.push(QueuedPod(pod, pod.key, 0.0, number))
    found = history.queues.pop()
    assert found is not None
    assert found.key == "default/of-old"


def test_a_job_that_moved_is_not_found_in_its_old_queue() -> None:
    """Its position there may be the same as before, and a pod of it would be popped without room."""
    played(51, "proportion")


def test_a_small_part_of_a_device_is_not_nothing() -> None:
    """Of 59 devices, 20 queues could have 2.95 each: one that asks for 3 gets what the others do not need."""
    specs = [QueueSpec(str(number)) for number in range(20)]
    known, _ = accounts_by_name(specs, hierarchy=False)
    for number, account in enumerate(known.values()):
        account.request = {"gpu": 1.0 if number else 3.0}
    open_accounts(list(known.values()), Entitlement.PROPORTION, {"gpu": 59.0})
    assert known["0"].deserved["gpu"] == 3.0


def active(history: History, name: str, notes: dict[str, str], priority: int = 0) -> QueuedPod:
    pod = make_pod(name, cpu=1, priority=priority)
    pod = replace(pod, metadata=replace(pod.metadata, annotations=notes, uid=name))
    info = QueuedPod(pod, pod.key, 0.0, 1)
    info.sort_key = (1,)
    history.queues.push(info, info.sort_key)
    return info


def test_a_pod_whose_queue_goes_before_it_has_its_node_is_counted() -> None:
    """It is assumed on its node when nothing accepts it any more, and counts when its queue is back."""
    history = History(0, "capacity")
    history.objects.put(queue_of("a"))
    info = active(history, "p", {volcano.QUEUE_ANNOTATION: "a"})
    assert history.queues.pop() is info
    history.objects.remove(queue_of("a"))
    history.queues.refresh()
    history.queues.charge(info.pod, "n")
    history.objects.put(queue_of("a"))
    history.queues.refresh()
    assert history.queues.accounts["a"].allocated == {"cpu": 1000, "pods": 1}


def test_a_job_with_nothing_active_has_no_place_in_the_order() -> None:
    """A place without a key cannot be compared with that of another job; the next pod finds it again."""
    history = History(0, "capacity")
    notes = {volcano.GROUP_ANNOTATION: "g"}
    charged(history, "running", notes)
    history.queues.remove(active(history, "gone", notes, priority=5))
    for number in reversed(range(40)):
        others = {volcano.GROUP_ANNOTATION: f"g{number}"}
        charged(history, f"running{number}", others)
        active(history, f"p{number}", others, priority=-number)
    info = active(history, "next", notes, priority=5)
    assert history.queues.pop() is info


def test_what_is_reserved_ends_where_it_began_when_a_job_moves() -> None:
    history = History(0, "capacity")
    notes = {volcano.GROUP_ANNOTATION: "g"}
    for name in ("a", "b"):
        history.objects.put(queue_of(name))
    meta = ObjectMeta(name="g", namespace="default")
    history.objects.put(volcano.PodGroup(metadata=meta, spec=volcano.PodGroupSpec(queue="a")))
    info = active(history, "p", notes)
    history.queues.nominate(info.pod)
    history.objects.put(volcano.PodGroup(metadata=meta, spec=volcano.PodGroupSpec(queue="b")))
    history.queues.refresh()
    history.queues.remove_nomination(info.pod.uid)
    assert not history.queues.nominated
    assert history.queues.pop() is info
