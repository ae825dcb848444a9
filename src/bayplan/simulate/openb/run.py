"""One run of the experiment: pods arrive one after the other and stay; what does not fit is dropped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.status import Code
from bayplan.plugins.library.gpu_sharing import GpuDevices
from bayplan.plugins.library.gpu_sharing.policies import Fragmentation, IntArray
from bayplan.scheduler.core import SchedulingCore
from bayplan.simulate.openb.cluster import arrival_of, make_core, make_node, make_pod, typical_pods
from bayplan.simulate.openb.curves import Curves, Placements, Result
from bayplan.simulate.openb.orders import Orders
from bayplan.simulate.openb.trace import Trace
from bayplan.state.view import NodeColumns

Progress = Callable[[int, int], None]
"""Called now and then with the number of arrivals so far, and of all."""

_PROGRESS_EVERY: Final = 200


def no_progress(done: int, total: int) -> None:
    return None


def run(
    trace: Trace, orders: Orders, policy: str, seed: int, progress: Progress = no_progress
) -> tuple[Result, Curves]:
    """Schedules all arrivals with a policy (`cluster.POLICIES`); the seed is used by the policy Random.

    Raises:
        BayplanError: a decision failed with an error.
    """
    started = time.perf_counter()
    typical = typical_pods(trace.pods)
    core = make_core(policy, seed, typical)
    core.load(make_node(trace.nodes[index]) for index in orders.nodes)
    placements = Placements(trace, orders)
    pods = {index: make_pod(trace.pods[index]) for index in set(orders.arrivals)}
    for number, index in enumerate(orders.arrivals):
        if number % _PROGRESS_EVERY == 0:
            progress(number, len(orders.arrivals))
        row = _schedule(core, arrival_of(pods[index], number))
        if row is not None:
            cpu_milli, _ = core.cluster.free(row)
            placements.record(number, row, cpu_milli, _free_gpus(core, row))
    curves = placements.curves(Fragmentation(typical))
    return curves.result(policy, seed, time.perf_counter() - started), curves


def _free_gpus(core: SchedulingCore, row: int) -> IntArray:
    node = NodeColumns(core.cluster, np.array([row], dtype=np.intp))
    free: IntArray = GpuDevices.of(node).free_milli(node)[0]
    return free


def _schedule(core: SchedulingCore, pod: Pod) -> int | None:
    """The row of the node that the pod gets; None if no node fits."""
    decision = core.place(pod)
    if decision.status.code is Code.ERROR:
        raise BayplanError(f"pod {pod.name}: {decision.message}")
    return core.cluster.nodes.row_of[decision.node_name] if decision.fits else None
