"""Metrics that releases count differently."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.errors import APIError
from bayplan.metrics import SchedulerMetrics
from bayplan.plugin import Reject, unschedulable
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod
from tests.metrics.scrape import values

from .running import plugin, running


def scrape_after_a_flush(release: Release) -> str:
    """A pod is rejected once, no event helps it, and it is scheduled after the periodic flush."""
    attempts: list[str] = []

    def reject_first(state: Any, pod: Any, nodes: Any) -> Any:
        attempts.append(pod.name)
        return [Reject(nodes.unschedulable | True, unschedulable("not yet"))] if len(attempts) == 1 else ()

    once = plugin("Once", filter=reject_first, events_to_register=lambda: ())
    metrics = SchedulerMetrics(random.Random(1), release=release)

    async def live() -> bytes:
        async with running(make_node("n"), plugins=[once], metrics=metrics, release=release) as world:
            await world.create(make_pod("p"))
            await world.after(400)
            return metrics.exposition()

    return run_virtual(live()).decode()


@pytest.mark.parametrize(("release", "flushed", "queues"), [(V1_36, 0, False), (V1_37, 1, True)], ids=str)
def test_flushed_pods_and_queues_of_groups(release: Release, flushed: int, queues: bool) -> None:
    text = scrape_after_a_flush(release)
    values = dict(line.rpartition(" ")[::2] for line in text.splitlines() if not line.startswith("#"))
    assert (
        values['scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'] == "1.0"
    )
    assert float(values.get("scheduler_pod_scheduled_after_flush_total", 0)) == flushed
    for queue in ("incomplete", "pending"):
        assert (values.get(f'scheduler_pending_pods{{queue="{queue}"}}') == "0.0") is queues


def scrape_of_a_small_cluster(release: Release) -> str:
    """One pod fits, one is too big, one is gated; then another node comes. So does a pod that preempts."""
    metrics = SchedulerMetrics(random.Random(1), release=release)

    async def live() -> bytes:
        async with running(make_node("n", cpu="2"), metrics=metrics, release=release) as world:
            await world.create(make_pod("fits", cpu="2"))
            await world.create(make_pod("big", cpu="1000"))
            await world.create(make_pod("gated", gates=["wait"]))
            await world.after(2)
            world.cluster.will_answer("delete", APIError("no"))
            await world.create(make_pod("high", cpu="2", priority=10))
            return metrics.exposition()

    return run_virtual(live()).decode()


@pytest.mark.parametrize(
    ("release", "add", "results"),
    [(V1_36, "UnschedulablePodAdd", ["success"]), (V1_37, "UnscheduledPodAdd", ["error", "success"])],
    ids=str,
)
def test_queues_and_evictions(release: Release, add: str, results: list[str]) -> None:
    """The entities are as a live kube-scheduler v1.37.1 counts them: not after a failed attempt."""
    text = scrape_of_a_small_cluster(release)
    pods = values(text, "scheduler_queue_incoming_pods_total")
    assert pods[add, "active"] == 3
    assert pods[add, "unschedulable"] == 1
    assert pods["ScheduleAttemptFailure", "unschedulable"] >= 1
    entities = values(text, "scheduler_queue_incoming_entities_total")
    queued = values(text, "scheduler_queued_entities")
    if release is V1_36:
        assert entities == queued == {}
    else:
        assert entities[add, "active", "pod"] == 3
        assert entities[add, "unschedulable", "pod"] == 1
        assert ("ScheduleAttemptFailure", "unschedulable", "pod") not in entities
        assert queued["gated", "pod"] == 1
        assert queued["unschedulable", "pod"] == 1
    evictions = values(text, "scheduler_preemption_goroutines_execution_total")
    assert sorted(result for (result,) in evictions) == results
