"""`make soak`: an embedded cluster with thousands of nodes under churn, killed and restarted now and then.

Prints a line a minute and a JSON object in the end; the status is 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bayplan.api.pod import Pod
from bayplan.client.http import KubernetesCluster
from tests.soak.clients import Churn, connect_and_wait, delete_events, read_slowly, watch
from tests.soak.measurements import Measured, find_problems, percentiles, summary
from tests.soak.program import Program

LIVES: Final = (0.1, 0.1, 0.1, 0.7)
"""Shares of the time until each restart; the last life is long, so that memory can be checked."""
STOPS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
"""How each life but the last ends."""
SAMPLE_SECONDS: Final = 5.0
REPORT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    seconds: float
    nodes: int = 5000
    pods: int = 5000
    """At once; more are deleted, oldest first."""
    scale: float = 1.0
    """Of the rates."""
    watchers: int = 5
    slow: int = 5


async def soak(size: Size, directory: Path) -> tuple[Measured, Program]:
    """Runs all lives of a cluster."""
    measured, program = Measured(), Program(directory, size.nodes)
    churn = Churn(measured, size.pods, size.scale)
    try:
        for share, stop in zip(LIVES, (*STOPS, signal.SIGTERM), strict=True):
            measured.restarts.append(await program.start())
            measured.memory.clear()
            await _live(program, churn, measured, size, share * size.seconds)
            await program.stop(stop)
    finally:
        program.kill()
    return measured, program


async def _live(program: Program, churn: Churn, measured: Measured, size: Size, seconds: float) -> None:
    """One life, from start to stop."""
    access = program.access()
    async with KubernetesCluster(access, qps=-1) as cluster:
        churn.check(list((await cluster.list(Pod))[0]))
        churn.restarted()
        clients = [
            churn.run(cluster),
            delete_events(cluster),
            watch(cluster, measured, churn.seen),
            *(watch(cluster, measured, lambda _: None) for _ in range(size.watchers - 1)),
            *(read_slowly(cluster) for _ in range(size.slow)),
            *(connect_and_wait(access) for _ in range(size.slow)),
        ]
        tasks = [asyncio.ensure_future(client) for client in clients]
        try:
            await _observe(program, churn, measured, tasks, seconds)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        _note_failures(ended, measured)


async def _observe(
    program: Program,
    churn: Churn,
    measured: Measured,
    tasks: Sequence[asyncio.Future[None]],
    seconds: float,
) -> None:
    end = time.monotonic() + seconds
    reported = time.monotonic()
    while time.monotonic() < end:
        await asyncio.sleep(min(SAMPLE_SECONDS, max(end - time.monotonic(), 0.0)))
        if program.has_ended:
            measured.problems.append(f"the cluster has ended:\n{program.last_words()}")
            return
        if any(task.done() for task in tasks):
            return
        measured.memory.append((time.monotonic(), program.memory_bytes()))
        churn.overdue()
        if time.monotonic() - reported >= REPORT_SECONDS:
            reported = time.monotonic()
            _report(program, measured)


def _note_failures(ended: list[BaseException | None], measured: Measured) -> None:
    for error in ended:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is not None and not isinstance(error, asyncio.CancelledError):
            measured.problems.append(f"a client was rejected: {type(error).__name__}: {error}")


def _report(program: Program, measured: Measured) -> None:
    recent = percentiles(measured.latencies[-5000:])
    print(
        f"{measured.created:,} created, {measured.bound:,} bound, {measured.memory[-1][1] / 1e6:.0f} MB, "
        f"{program.cpu_seconds():.0f} s of CPU, create to bound in ms: {recent}, "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5000, help="pods that exist at once")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the rates, 50 and 100 a second")
    parser.add_argument("--log", type=Path, help="where to keep the log of the cluster")
    options = parser.parse_args()
    size = Size(60 * options.minutes, options.nodes, options.pods, options.scale)
    with tempfile.TemporaryDirectory(prefix="bayplan-soak-") as directory:
        measured, program = asyncio.run(soak(size, Path(directory)))
        log = program.log.read_text(errors="replace")
    if options.log:
        options.log.write_text(log)
    problems = find_problems(measured, log)
    found = {"nodes": size.nodes, "minutes": options.minutes, **summary(measured)}
    print(json.dumps({**found, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}))
    for problem in problems:
        print(problem)
    print("FAILED" if problems else "passed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
