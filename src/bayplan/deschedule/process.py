"""`bayplan deschedule run` as a process: leader election, the pause switch, the port, and the loop.

watch ─► serve ─► lead (wait for the lease) ─► cycles, by interval or schedule ─► lease released
                                                  └─ paused while the lease has the annotation
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.client.access import Access
from bayplan.client.leader_election import ElectionSettings, LeaderElection, lease_client, make_identity
from bayplan.config import DescheduleConfiguration
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.eviction import BackgroundRequests
from bayplan.deschedule.executing import Step
from bayplan.deschedule.live import COMPONENT, LiveCluster, follow
from bayplan.deschedule.metrics import serve
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.running import PAUSE, Runner
from bayplan.deschedule.surge import make_surge
from bayplan.deschedule.times import Times


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where and how often."""

    access: Access
    loaded: LoadedCluster
    """The cluster as it was read at the start: it has the scheduler settings and what may be watched."""
    times: Times
    dry_run: bool
    election: ElectionSettings | None
    lease: tuple[str, str]
    """Namespace and name of the lease, which also has the pause switch."""
    address: tuple[str, int] | None
    """Where to serve metrics; None: nowhere."""
    background: bool = False
    """Whether pods may be evicted in background, by another component."""


async def run_descheduler(
    options: RunOptions,
    descheduler: Descheduler,
    settings: DescheduleConfiguration,
    on_plan: Callable[[Plan], None],
    on_step: Callable[[Step], None],
) -> None:
    """Runs until SIGTERM or SIGINT, or for one cycle.

    Raises:
        LeadershipLostError: the lease could not be renewed.
        APIError: the only cycle failed.
    """
    task = asyncio.current_task()
    assert task is not None
    stopped: list[bool] = []

    def stop() -> None:
        stopped.append(True)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        async with follow(options.access, options.loaded) as live:
            runner = Runner(
                live,
                descheduler,
                settings,
                options.dry_run,
                is_paused=lambda: live.is_paused(*options.lease, PAUSE),
                read_usage=live.usage.read,
                write_event=live.write_event,
                on_plan=on_plan,
                on_step=on_step,
                background=BackgroundRequests() if options.background else None,
                surge=make_surge(settings, live),
            )
            await _serve_and_run(options, live, runner)
    except asyncio.CancelledError:
        if not stopped:
            raise


async def _serve_and_run(options: RunOptions, live: LiveCluster, runner: Runner) -> None:
    server = None
    try:
        if options.address is not None:
            server = await serve(runner.metrics, lambda: runner.cycles > 0, *options.address)
        if options.election is None:
            await runner.run(options.times)
        else:
            await _lead(live, options.election, runner, options.times)
    finally:
        if server is not None:
            server.close()


async def _lead(live: LiveCluster, settings: ElectionSettings, runner: Runner, times: Times) -> None:
    leases = lease_client(live.connections, settings)
    election = LeaderElection(leases, settings, make_identity(), component=COMPONENT, events=leases.events())
    await election.acquire()
    runner.is_leader = election.may_write
    holding = asyncio.ensure_future(election.hold())
    running = asyncio.ensure_future(runner.run(times))
    try:
        done, _ = await asyncio.wait((holding, running), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (holding, running):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await election.release()
