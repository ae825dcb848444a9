"""What a pod in capacity queues costs does not depend on how many wait: calls are counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from bayplan.bench.queues import QueueSetup
from bayplan.config import QueueDialect
from bayplan.queues.active import CapacityQueues
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
