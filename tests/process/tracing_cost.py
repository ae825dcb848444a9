"""Measures what traces cost: `python -m tests.process.tracing_cost`. docs/tracing.md has results.

Twice: CPU time for each pod of `bayplan run`, beside an API server in this process; and that of a scheduler
without a client, in this process, with metrics as in `bayplan run`. Both include the thread that encodes and
sends spans; the receiver is another process. The rounds of all rates alternate, and the median is printed:
other work disturbs single ones. It takes about two minutes.

`python -m tests.process.tracing_cost RATE`, or `none`, only schedules once, to be counted by valgrind.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import multiprocessing
import os
import random
import selectors
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bayplan.metrics import SchedulerMetrics
from bayplan.process.tracing import MAX_RATE, make_tracing
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import observed_by
from bayplan.scheduler.observing import Watchdog
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.testing import make_node, make_pod
from tests.client.http.api_server import ApiServer

from .running import ALONE, PATIENCE_SECONDS, bound, scheduling, until

PODS, RUN_PODS, NODES, ROUNDS = 5000, 1000, 500, 5
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
    with tempfile.TemporaryDirectory() as directory:
        traces = None if rate is None else make_tracing(write_config(directory, endpoint, rate))
    scheduler = Scheduler(
        MemoryCluster(store),
        metrics=SchedulerMetrics(sampler=random.Random(0)),
        observers=observed_by([counted] if traces is None else [counted, traces]),
    )
    if traces is not None:
        traces.observe(scheduler)
    running = asyncio.ensure_future(scheduler.run())
    await asyncio.sleep(0.1)
    pods = [make_pod(f"p{number}", cpu="100m") for number in range(PODS)]
    # As `bayplan run` does.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    for pod in pods:
        store.create(pod)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await counted.all.wait()
    await scheduler.drain_bindings(60)
    if traces is not None:
        await asyncio.to_thread(traces.close)
    used = time.process_time() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return used / PODS


async def run_process(endpoint: str, rate: int | None) -> float:
    """The same for `bayplan run`. The time that it takes to start is not counted."""
    store, sent = MemoryStore(), RUN_PODS
    for number in range(NODES):
        store.create(make_node(f"n{number}", cpu="16"))
    with tempfile.TemporaryDirectory() as directory:
        flags = list(ALONE)
        if rate is not None:
            flags.append(f"--tracing-config-file={write_config(directory, endpoint, rate)}")
        async with scheduling(ApiServer(store), Path(directory), *flags) as run:
            store.create(make_pod("first", cpu="100m"))
            await until(lambda: len(bound(store)) == 1, run)
            began = cpu_seconds(run.process.pid)
            for number in range(sent):
                store.create(make_pod(f"p{number}", cpu="100m"))
            # Rarely: this process is the API server. The last batch is sent after 5 s.
            while len(bound(store)) <= sent:
                await asyncio.sleep(1)
            await asyncio.sleep(6)
            return (cpu_seconds(run.process.pid) - began) / sent


def steady_clock() -> None:
    """The loop yields and sleeps after the same number of steps, however slow the machine is, and nothing
    runs beside it: otherwise counts of instructions would differ by 3 %. As in `bench/against.py`."""
    ticks, wait = itertools.count(), selectors.DefaultSelector.select
    skipped = 0.0

    def select(selector: Any, timeout: float | None = None) -> Any:
        nonlocal skipped
        ready = wait(selector, timeout and 0)
        skipped += 0.0 if ready else timeout or 0.0
        return ready

    replaced: tuple[tuple[type, str, Callable[..., Any]], ...] = (
        (asyncio.BaseEventLoop, "time", lambda loop: next(ticks) * 2e-5 + skipped),
        (selectors.DefaultSelector, "select", select),
        (Watchdog, "_watch", lambda watchdog: None),
    )
    for owner, name, function in replaced:
        setattr(owner, name, function)


def write_config(directory: str, endpoint: str, rate: int) -> str:
    file = Path(directory, "tracing.yaml")
    file.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
        f"endpoint: {endpoint}\nsamplingRatePerMillion: {rate}\n"
    )
    return str(file)


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process; Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    if sys.argv[1:]:
        steady_clock()
        asyncio.run(schedule("localhost:4317", None if sys.argv[1] == "none" else int(sys.argv[1])))
        return
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs,), daemon=True)
    process.start()
    # So that `recv` fails if the receiver could not start, instead of waiting.
    theirs.close()
    endpoint = ours.recv()
    compare("bayplan run", run_process, endpoint, (None, MAX_RATE), 3)
    compare("scheduler without client", schedule, endpoint, RATES, ROUNDS)
    process.terminate()


def compare(
    title: str,
    measure: Callable[[str, int | None], Coroutine[Any, Any, float]],
    endpoint: str,
    rates: Sequence[int | None],
    rounds: int,
) -> None:
    found: dict[int | None, list[float]] = {rate: [] for rate in rates}
    for _ in range(rounds):
        for rate in rates:
            found[rate].append(asyncio.run(measure(endpoint, rate)))
    print(title, flush=True)
    base = statistics.median(found[None])
    for rate, values in found.items():
        name = "no tracing" if rate is None else f"{rate / MAX_RATE:.1%} sampled"
        median = statistics.median(values)
        print(f"  {name}: {median * 1e6:.0f} us of CPU per pod ({median / base - 1:+.0%})")


if __name__ == "__main__":
    main()
