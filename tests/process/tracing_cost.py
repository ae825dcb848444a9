"""Measures what traces cost: `python -m tests.process.tracing_cost`. docs/tracing.md has results.

CPU time of this process for each pod, with metrics as in `bayplan run`, and with the thread that makes and
sends spans; the receiver is another process. The rounds of all rates alternate, and the median is printed:
other work disturbs single ones. It takes about 5 s of CPU.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import time
from multiprocessing.connection import Connection

from bayplan.metrics import SchedulerMetrics
from bayplan.process.tracing import MAX_RATE, Tracing, TracingConfiguration, make_processor
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import observed_by
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.testing import make_node, make_pod

PODS, NODES, ROUNDS = 1000, 500, 5
RATES = (None, 1_000, 10_000, 100_000, MAX_RATE)


def receive(pipe: Connection) -> None:
    """Another process: a receiver, until it is terminated."""
    from .test_tracing import over_grpc

    with over_grpc() as (endpoint, _):
        pipe.send(endpoint)
        pipe.recv()


class Bound:
    """An observer that counts the pods that are bound."""

    def __init__(self) -> None:
        self.count = 0
        self.all = asyncio.Event()

    def decided(self, decision: Decision) -> None:
        pass

    def progressed(self, progress: BindingProgress) -> None:
        self.count += progress.step is BindingStep.BOUND
        if self.count == PODS:
            self.all.set()


async def schedule(endpoint: str, rate: int | None) -> float:
    """Seconds of CPU for each pod; without a rate there is no tracing."""
    counted = Bound()
    store = MemoryStore()
    for number in range(NODES):
        store.create(make_node(f"n{number}", cpu="16"))
    traces = None
    if rate is not None:
        config = TracingConfiguration(endpoint, rate)
        traces = Tracing(config, make_processor(config), random.Random(0))
    scheduler = Scheduler(
        MemoryCluster(store),
        metrics=SchedulerMetrics(),
        observers=observed_by([counted] if traces is None else [counted, traces]),
    )
    if traces is not None:
        traces.observe(scheduler)
    running = asyncio.ensure_future(scheduler.run())
    await asyncio.sleep(0.1)
    pods = [make_pod(f"p{number}", cpu="100m") for number in range(PODS)]
    began = time.process_time()
    for pod in pods:
        store.create(pod)
    await counted.all.wait()
    await scheduler.drain_bindings(60)
    if traces is not None:
        await asyncio.to_thread(traces.close)
    used = time.process_time() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return used / PODS


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs,), daemon=True)
    process.start()
    endpoint = ours.recv()
    found: dict[int | None, list[float]] = {rate: [] for rate in RATES}
    for _ in range(ROUNDS):
        for rate in RATES:
            found[rate].append(asyncio.run(schedule(endpoint, rate)))
    process.terminate()
    for rate, values in found.items():
        name = "no tracing" if rate is None else f"{rate / MAX_RATE:.1%} sampled"
        print(f"{name}: {statistics.median(values) * 1e6:.0f} us of CPU per pod")


if __name__ == "__main__":
    main()
