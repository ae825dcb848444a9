"""SIGUSR2: compares the scheduler's cache with the API server and logs its contents.

Use it if you suspect an inconsistency. Nodes and bound pods are compared with the informers' copies; then the
usage of every node and the pending pods are logged. Nothing is scheduled meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from bayplan.api.node import Node
from bayplan.process.logs import log
from bayplan.scheduler.loop import Scheduler
from bayplan.state.nodes import CPU, MEMORY

MAX_NAMED: Final = 100
"""The number of pending pods that are listed."""

_log = logging.getLogger(__name__)


def log_all(scheduler: Scheduler) -> None:
    """Logs the differences between cache and API server, and the contents of the cache."""
    mismatches = {"nodes": _node_mismatch(scheduler), "pods": _pod_mismatch(scheduler)}
    for what, (missed, redundant) in mismatches.items():
        if missed or redundant:
            log(_log, logging.WARNING, "Cache mismatch", of=what, missed=missed, redundant=redundant)
    if not any(missed or redundant for missed, redundant in mismatches.values()):
        log(_log, logging.INFO, "Cache and API server agree", **_sizes(scheduler))
    log(_log, logging.INFO, "Dump of cached NodeInfo", nodes="\n".join(_node_lines(scheduler)))
    queue = scheduler.context.queue
    waiting = [pod.key for pod in queue.pending_pods()]
    log(_log, logging.INFO, "Dump of scheduling queue", summary=queue.dump(), pods=waiting[:MAX_NAMED])


def _sizes(scheduler: Scheduler) -> dict[str, int]:
    cache = scheduler.context.cache
    return {"nodes": cache.node_count, "pods": cache.pod_count, "assumed": cache.assumed_count}


def _node_mismatch(scheduler: Scheduler) -> tuple[list[str], list[str]]:
    """Nodes that are missing from the cache, and nodes that only the cache has."""
    known = {
        item.name for informer in scheduler.informers if informer.kind is Node for item in informer.all()
    }
    nodes = scheduler.context.cluster.nodes
    cached = {name for name, row in nodes.row_of.items() if nodes.node[row] is not None}
    return sorted(known - cached), sorted(cached - known)


def _pod_mismatch(scheduler: Scheduler) -> tuple[list[str], list[str]]:
    """Pods with a node that the cache lacks or has on another node, and pods that only the cache has.

    Assumed pods are not confirmed yet, so they do not count as a difference.
    """
    cache, cluster = scheduler.context.cache, scheduler.context.cluster
    known = {pod.uid: pod for pod in scheduler.pods.all() if pod.spec.node_name}
    missed = [pod.key for uid, pod in known.items() if cache.node_of(uid) != pod.spec.node_name]
    redundant = [
        pod.key
        for row in cluster.nodes.row_of.values()
        for pod in cluster.pods_on(row)
        if pod.uid not in known and not cache.is_assumed(pod.uid)
    ]
    return sorted(missed), sorted(redundant)


def _node_lines(scheduler: Scheduler) -> Iterable[str]:
    nodes = scheduler.context.cluster.nodes
    cpu, memory = nodes.resource(CPU), nodes.resource(MEMORY)
    for name, row in sorted(nodes.row_of.items()):
        note = "" if nodes.node[row] is not None else " (the node was deleted)"
        yield (
            f"{name}{note}: {nodes.pod_count.cell[row]} of {nodes.allowed_pods.cell[row]} pods, "
            f"cpu {cpu.requested.cell[row]}m of {cpu.allocatable.cell[row]}m, "
            f"memory {memory.requested.cell[row]} of {memory.allocatable.cell[row]}"
        )
