"""What a pod in capacity queues costs does not depend on how many wait: calls are counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from bayplan.api import volcano
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod
from bayplan.bench.queues import QueueSetup
from bayplan.config import QueueDialect, QueuesConfiguration
from bayplan.queues.active import CapacityQueues
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.volcano.preemption import VictimChoice, asking_pod
from bayplan.scheduler.capacity import make_queues
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node, make_pod

POPPED = 100
"""Pods of which the calls are counted."""


class Calls:
    """The number of calls of Python functions in a `with` block."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        def on_call(frame: FrameType, event: str, arg: object) -> None:
            self.count += event == "call"

        sys.setprofile(on_call)
        try:
            yield
        finally:
            sys.setprofile(None)


def filled(setup: QueueSetup, pods: int, tmp_path: Path) -> tuple[CapacityQueues, Callable[[], int]]:
    """Queues with pending pods, and a function that schedules some and returns the calls for each."""
    settings = setup.configure(pods, tmp_path)
    assert settings is not None
    cluster = Cluster()
    cluster.set_node(make_node("n", cpu=1_000_000, pods=1_000_000))
    made = list(setup.queued("m", (make_pod(f"p{number}", cpu="100m") for number in range(pods))))
    for item in [*setup.make_queues(pods), *setup.make_groups(made)]:
        cluster.objects.put(item)
    queues = make_queues(settings, cluster)
    for number, pod in enumerate(made):
        queues.push(QueuedPod(pod, pod.key, float(number), number), (number,))

    def schedule_one() -> None:
        info = queues.pop()
        assert isinstance(info, QueuedPod)
        queues.charge(info.pod, "n")

    def schedule() -> int:
        calls = Calls()
        with calls.counted():
            for _ in range(POPPED):
                schedule_one()
        return calls.count // POPPED

    for _ in range(pods // 2):  # the first pod of an application costs more
        schedule_one()
    return queues, schedule


@pytest.mark.parametrize("dialect", [QueueDialect.BAYPLAN, QueueDialect.VOLCANO])
def test_a_pop_costs_the_same_with_more_pending_pods(dialect: QueueDialect, tmp_path: Path) -> None:
    costs = []
    for pods in (400, 2000):
        _, schedule = filled(QueueSetup(dialect), pods, tmp_path)
        costs.append(schedule())
    few, many = costs
    assert many <= few * 1.1
    assert many < 90


def test_a_pod_that_comes_and_goes_does_not_distribute_the_cluster_again(tmp_path: Path) -> None:
    """With the plugin proportion, while something is left over, a pod changes what its own queue deserves."""
    queues, schedule = filled(QueueSetup(QueueDialect.VOLCANO), 2000, tmp_path)
    schedule()
    pod = next(QueueSetup().queued("m", iter([make_pod("late", cpu="100m")])))
    calls = Calls()
    with calls.counted():
        queues.push(QueuedPod(pod, pod.key, 1e6, 10**6), (-1,))
        queues.pop()
        queues.charge(pod, "n")
        queues.refund(pod.uid)
        queues.refresh()
    assert calls.count < 300


@pytest.mark.parametrize("dialect", [QueueDialect.BAYPLAN, QueueDialect.VOLCANO])
def test_pods_that_change_while_they_wait_leave_nothing_behind(dialect: QueueDialect, tmp_path: Path) -> None:
    """Changing waiting pods again and again takes no memory, and every pod is still popped once."""
    queues, _ = filled(QueueSetup(dialect), 40, tmp_path)
    waiting = list(queues)

    def change_all() -> int:
        for _ in range(500):
            for info in waiting:
                queues.changed(info)
        return sum(len(pods.entries) for info in waiting for pods in info.ticket[-1].group.classes.values())

    assert change_all() < 200 * len(waiting)

    popped = []
    while (info := queues.pop()) is not None:
        popped.append(info)
    assert sorted(info.key for info in popped) == sorted(info.key for info in waiting)


def test_a_choice_of_victims_costs_the_same_with_more_running_pods(tmp_path: Path) -> None:
    """The first decision reads all pods; later ones look at jobs, and at nodes that have changed."""
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(
        'actions: "reclaim"\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: capacity}]\n'
    )
    costs = []
    for count in (400, 4000):
        cluster = Cluster()
        for number in range(count // 10):
            cluster.set_node(make_node(f"n{number}", cpu=10, pods=10))
        for name, cpu in (("greedy", 1), ("owed", 5)):
            spec = volcano.QueueSpec(deserved={"cpu": cpu})
            cluster.objects.put(volcano.Queue(metadata=ObjectMeta(name=name), spec=spec))
        queues = make_queues(QueuesConfiguration(dialect=QueueDialect.VOLCANO, file=str(file)), cluster)
        assert isinstance(queues, VolcanoQueues)
        for number in range(count):
            notes = {volcano.QUEUE_ANNOTATION: "greedy", volcano.GROUP_ANNOTATION: f"g{number % 20}"}
            pod = make_pod(f"p{number}", cpu=1, node=f"n{number % (count // 10)}", annotations=notes)
            cluster.add_pod(pod, pod.spec.node_name)
            queues.charge(pod, pod.spec.node_name)
        queues.refresh()
        asking = make_pod("asking", cpu=1, annotations={volcano.QUEUE_ANNOTATION: "owed"})
        rows = np.arange(count // 10)

        def choose(queues: VolcanoQueues = queues, asking: Pod = asking) -> VictimChoice:
            return VictimChoice(queues, asking_pod(queues, asking, queues.amounts_of(asking)))

        assert len(choose().by_row(cluster, rows)) > count // 2
        cluster.remove_pod(make_pod("p0").uid)
        calls = Calls()
        with calls.counted():
            choose().by_row(cluster, rows)
        costs.append(calls.count)
    few, many = costs
    assert many <= few * 1.1
