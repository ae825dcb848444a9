"""Clusters of pods with priorities, and a filter that only counts cpu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from bayplan.framework.outcome import PASS, NodeStatuses, Reasons, collect
from bayplan.framework.status import Code, Status
from bayplan.plugin import Cluster, Pod, Reject, failure, unschedulable
from bayplan.plugin.preemption import Hypothesis
from bayplan.preemption.victims import DryRun, FilterHypothesis, dry_run
from bayplan.testing.builders import make_node, make_pod

START = datetime(2026, 1, 1, tzinfo=UTC)

FULL = Status(Code.UNSCHEDULABLE, ("Insufficient cpu",), "Cpu")


def at(minutes: float | None) -> datetime | None:
    return None if minutes is None else START + timedelta(minutes=minutes)


def low(
    name: str,
    priority: int = 0,
    *,
    cpu: int = 1,
    started: float | None = 0,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
) -> Pod:
    """A possible victim."""
    return make_pod(name, cpu=cpu, priority=priority, started=at(started), labels=labels, namespace=namespace)


def crowded(**pods: Sequence[Pod]) -> Cluster:
    """A node of 4 cpus for each name, with these pods."""
    cluster = Cluster()
    for name, here in pods.items():
        cluster.set_node(make_node(name, cpu=4))
        for pod in here:
            cluster.add_pod(pod, name)
    return cluster


def room_for(cpu: int, broken: Sequence[str] = ()) -> FilterHypothesis:
    """A filter that requires so many cpus, and fails on some nodes."""
    reasons = {0: Reasons("Cpu")}

    def filter_hypothesis(view: Hypothesis) -> NodeStatuses:
        node_statuses = NodeStatuses(
            np.full(len(view), PASS, dtype=np.int8), np.zeros(len(view), dtype=np.int64), reasons
        )
        short = view.allocatable("cpu") - view.requested("cpu") < 1000 * cpu
        rejects = [Reject(short, unschedulable("Insufficient cpu"))]
        rejects.extend(Reject(view.is_named(name), failure("broke")) for name in broken)
        found = collect(rejects, reasons[0], len(view))
        if found is not None:
            node_statuses.add(0, found)
        return node_statuses

    return filter_hypothesis


def run(cluster: Cluster, priority: int, filter_hypothesis: FilterHypothesis) -> DryRun:
    return dry_run(cluster, priority, cluster.order, filter_hypothesis)


def victims(cluster: Cluster, found: DryRun) -> dict[str, list[str]]:
    """Names of the victims on each node where evicting helps."""
    result = {}
    for index, row in enumerate(found.rows):
        if found.fits[index]:
            pods = [cluster.pods.pod[slot] for slot in found.victims_of(index)]
            result[cluster.nodes.name[int(row)]] = [pod.name for pod in pods if pod is not None]
    return result


def statuses_without_victims(cluster: Cluster, found: DryRun) -> dict[str, Status]:
    return {
        cluster.nodes.name[int(row)]: found.statuses[int(found.status_id[index])]
        for index, row in enumerate(found.rows)
        if found.status_id[index] >= 0
    }
