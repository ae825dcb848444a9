"""Metrics that releases count differently."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bayplan.metrics import SchedulerMetrics
from bayplan.plugin import Reject
from bayplan.releases import V1_36, V1_37, Release
from bayplan.simulator.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod

from .running import plugin, running


def scrape_after_a_flush(release: Release) -> str:
    """A pod is rejected once, no event helps it, and it is scheduled after the periodic flush."""
    attempts: list[str] = []

    def reject_first(state: Any, pod: Any, nodes: Any) -> Any:
        attempts.append(pod.name)
        return [Reject(nodes.unschedulable | True, "not yet")] if len(attempts) == 1 else ()

    once = plugin("Once", filter=reject_first, events_to_register=lambda: ())
    metrics = SchedulerMetrics(random.Random(1))

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
