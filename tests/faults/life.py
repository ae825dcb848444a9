"""One life of a cluster and its scheduler in a fault run, from its seed to the violations at the end.

1  the cluster changes while requests fail, watches break and the scheduler crashes
2  nothing fails any more, but everything is still slow, and a few last changes happen: an event missed now
   would have no later one to make up for it
3  time passes until everything is quiescent; then the invariants are checked (`checks.py`)
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.config import KubeSchedulerConfiguration
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.recorder import EventOutput
from bayplan.simulate.memory.store import MemoryStore
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.simulate.virtual_time import VirtualLoop, VirtualTimeError, current_loop, run_virtual
from tests.faults import groups, trees
from tests.faults import queues as with_queues
from tests.faults.checks import Oversight, misplaced, oversights, untidiness
from tests.faults.cluster import SPOILED, LastingClient, Ledger, WatchedCluster
from tests.faults.devices import DeviceWorld, claim_problems, has_devices
from tests.faults.expensive import ExpensiveClaims, Probes, SlowSearches, has_expensive_claims
from tests.faults.faulty_cluster import Fault, FaultyCluster
from tests.faults.groups import BoundGangs, GroupWorld, waiting_groups
from tests.faults.plugins import Hazard, InjectedError, SlowExtender, requeue_on_any_event
from tests.faults.trees import BoundTrees, TreeWorld, waiting_trees
from tests.faults.workload import World

QUIET_SECONDS: Final = 170.0
"""After this time everything is quiescent: no backoff, permit, pause or grace period is longer."""

PERMIT_SECONDS: Final = 300.0
"""But for members of a gang at Permit: so long they wait for one that failed between cycle and Permit."""

PAUSE_SECONDS: Final = 60.0
"""Unless groups compete, which never become quiescent. But after this time again each has been tried, and a
forgotten pod has not been found yet: that happens after five minutes."""

FLUSH_SECONDS: Final = 170.0
"""After this time again it has. Hints decide what requeues a pod; they are upstream's and do not cover
everything. Such pods are late, but not lost."""

MAX_SECONDS: Final = 100.0
"""How long the cluster changes."""

SLOWNESS: Final = (Fault.SLOW_REQUEST, Fault.SLOW_ANSWER, Fault.SLOW_WATCH)

CONTROLLER_SECONDS: Final = 7.0
"""How often the claim controller acts by itself."""

SETTLING_SECONDS: Final = 10.0
"""After this time nothing is slow any more."""

MAX_ACTIONS: Final = 60
MAX_LAST_ACTIONS: Final = 15
MAX_CRASHES: Final = 8
"""Starting a scheduler takes as long as several decisions."""


@dataclass(slots=True)
class Report:
    """The result of one seed."""

    seed: int
    problems: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Pods that were scheduled only because every pod is tried again after five minutes."""
    trace: list[str] = field(default_factory=list)
    faults: Counter[Fault] = field(default_factory=Counter)
    crashes: int = 0
    bindings: int = 0
    decisions: int = 0


def play(seed: int, *, with_groups: bool = False, with_trees: bool = False, queues: str = "") -> Report:
    """Runs one seed; with pod groups of Kubernetes, with composite groups, too, or with capacity queues of a
    dialect, it is another life."""
    report = Report(seed)
    with logged_errors(report.problems), TemporaryDirectory(prefix="bayplan-faults-") as folder:
        try:
            run_virtual(
                _Run(report, with_groups or with_trees, with_trees, queues, Path(folder)).main(),
                limit=2 * (MAX_SECONDS + QUIET_SECONDS + PERMIT_SECONDS + PAUSE_SECONDS + FLUSH_SECONDS),
            )
        except VirtualTimeError as error:
            report.problems.append(f"it never ends: {error}")
    return report


@contextmanager
def logged_errors(problems: list[str]) -> Iterator[None]:
    """Adds every error that is logged to the problems, and shows nothing of the log."""
    handler = _LoggedErrors(problems)
    loggers = [logging.getLogger(name) for name in ("bayplan", "asyncio")]
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, (propagates, level) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagates
            logger.setLevel(level)


class _LoggedErrors(logging.Handler):
    """Every failed assertion in the scheduler is a violation."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if SPOILED in message or InjectedError.__name__ in message:
            return
        self._problems.append(f"{record.name}: {self.format(record)}")


class _Run:
    """One seed in progress."""

    def __init__(
        self, report: Report, with_groups: bool, with_trees: bool, queues: str, folder: Path
    ) -> None:
        self._report = report
        self._with_groups = with_groups
        self._with_trees = with_trees
        self._queues = queues
        self._folder = folder
        self._config: KubeSchedulerConfiguration | None = None
        self._rng = random.Random(report.seed)

    @property
    def _release(self) -> Release:
        if self._with_trees:
            return trees.RELEASE
        return groups.RELEASE if self._with_groups else DEFAULT_RELEASE

    async def main(self) -> None:
        rng, loop = self._rng, current_loop()
        self._loop: VirtualLoop = loop
        self._store = MemoryStore(
            clock=loop.wall_time,
            seed=rng.getrandbits(32),
            history=rng.choice((10, 100, 50_000)),
            kubelet=end_after_grace_period if rng.random() < 0.7 else None,
        )
        self._ledger = Ledger(self._store)
        self._rates = self._draw_rates()
        self._delay = rng.choice((0.02, 0.1, 1.0, 5.0))
        self._hazard_rate = rng.choice((0.0, 0.02, 0.1))
        self._hazard = type("Hazard", (Hazard,), {"rate": self._hazard_rate})
        self._extender_rate = rng.choice((None, None, None, 0.0, 0.1))
        self._with_hints = rng.random() < 0.5
        world = self._make_world(random.Random(rng.getrandbits(32)))
        self._gangs = (BoundTrees if self._with_trees else BoundGangs)(self._store)
        self._spoiled = world.spoiled
        world.begin()
        controller = self._add_devices(world)
        self._add_expensive_claims(world)
        self._ledger.check()
        self._start()
        probing = asyncio.ensure_future(self._probes.run())
        crashes = asyncio.ensure_future(self._crash_now_and_then())
        pace = rng.choice((0.05, 0.3, 2.0))
        for _ in range(rng.randint(5, MAX_ACTIONS)):
            if loop.time() > MAX_SECONDS:
                break
            await self._act(world, pace)
        await self._stop(crashes)
        await self._end_faults()
        world.mend_for_good()
        for _ in range(rng.randint(0, MAX_LAST_ACTIONS)):
            await self._act(world, pace)
        world.clear_orphans()
        await asyncio.sleep(SETTLING_SECONDS)
        world.clear_orphans()
        if self._expensive is not None:
            self._expensive.give_up()
        self._hurry()
        await asyncio.sleep(QUIET_SECONDS + (PERMIT_SECONDS if self._with_groups else 0))
        await self._stop(controller)
        await self._stop(probing)
        await loop.quiescent()
        self._report.problems.extend(self._probes.problems())
        if self._searches is not None:
            self._report.problems.extend(self._searches.problems(self._report.crashes + 1))
        self._report.problems.extend(self._ledger.problems)
        self._report.problems.extend(claim_problems(self._store, self._ledger.ours))
        if self._running.done():
            self._report.problems.append("the scheduler has ended")
        self._report.problems.extend(self._gangs.problems)
        self._report.problems.extend(untidiness(self._scheduler, self._store))
        self._check_queues()
        await self._check_for_missed_pods()
        self._report.bindings = self._ledger.bindings.total()
        self._report.faults += self._faulty.counts
        await self._stop(self._running)

    def _make_world(self, rng: random.Random) -> World:
        if self._queues:
            world = with_queues.WORLDS[self._queues](self._store, rng, self._trace, self._folder)
            self._config = world.config
            return world
        kind = TreeWorld if self._with_trees else GroupWorld if self._with_groups else World
        return kind(self._store, rng, self._trace)

    def _add_devices(self, world: World) -> asyncio.Future[None]:
        """Devices and claims for some seeds, and the controller of claims."""
        devices = DeviceWorld(self._store, random.Random(self._report.seed), self._trace)

        async def control() -> None:
            while True:
                await asyncio.sleep(CONTROLLER_SECONDS)
                devices.tidy_claims()

        if has_devices(self._report.seed):
            devices.begin()
            world.add_actions(devices.actions)
        return asyncio.ensure_future(control())

    def _add_expensive_claims(self, world: World) -> None:
        """Claims whose searches take long, for some seeds."""
        self._probes = Probes(self._loop)
        self._expensive: ExpensiveClaims | None = None
        self._searches: SlowSearches | None = None
        if has_expensive_claims(self._report.seed):
            self._expensive = ExpensiveClaims(self._store, random.Random(self._report.seed), self._trace)
            self._searches = SlowSearches(self._loop)
            self._expensive.begin()
            world.add_actions(self._expensive.actions)

    async def _act(self, world: World, pace: float) -> None:
        """The cluster changes, and some time passes; often none."""
        world.act()
        self._ledger.check()
        self._gangs.observe()
        self._check_queues()
        await asyncio.sleep(self._rng.expovariate(1 / pace) if self._rng.random() < 0.7 else 0)

    async def _check_for_missed_pods(self) -> None:
        """Pods that could run but do not: for a while, until they are found late, or forever."""
        report = self._report
        waiting = {oversight.subject for oversight in self._oversights()}
        if not waiting:
            return
        for oversight in await self._oversights_after(PAUSE_SECONDS, waiting):
            excused = self._with_hints and oversight.may_be_hints
            (report.late if excused else report.problems).append(oversight.text)
        if report.late:
            remaining = await self._oversights_after(FLUSH_SECONDS, waiting)
            report.problems.extend(f"{oversight.text}, and that for good" for oversight in remaining)

    async def _oversights_after(self, seconds: float, known: Collection[str]) -> list[Oversight]:
        await asyncio.sleep(seconds)
        await self._loop.quiescent()
        found = self._oversights()
        return [oversight for oversight in found if oversight.subject in known]

    def _check_queues(self) -> None:
        """What queues count is right at any time, and so after every restart."""
        if self._queues and not self._watched.is_dead:
            self._report.problems.extend(with_queues.miscounted(self._scheduler))

    def _oversights(self) -> Iterator[Oversight]:
        for oversight in oversights(self._scheduler, self._store):
            if not self._queues or with_queues.counts(self._scheduler, self._store, oversight):
                yield oversight
        if self._with_groups:
            yield from waiting_groups(self._scheduler, self._store)
        if self._with_trees:
            yield from waiting_trees(self._scheduler, self._store)

    def _draw_rates(self) -> dict[Fault, float]:
        """No faults, a few, all of them, or a slow API server."""
        rng = self._rng
        share = rng.choice((0.0, 0.3, 1.0, None))
        if share is None:
            return dict.fromkeys(SLOWNESS, 1.0)
        return {fault: rng.choice((0.02, 0.1, 0.3)) for fault in Fault if rng.random() < share}

    # The scheduler's lives

    def _start(self) -> None:
        rng = self._rng
        self._watched = WatchedCluster(self._store, self._ledger, self._spoiled, self._trace)
        self._faulty = FaultyCluster(
            self._watched,
            seed=rng.getrandbits(32),
            rates=self._rates,
            delay_seconds=self._delay,
            bind_late=self._watched.bind_late,
        )
        client = LastingClient(
            self._faulty, self._store, random.Random(rng.getrandbits(32)), rng.choice((0.0, 0.5))
        )
        seed, eager, cache = rng.getrandbits(32), rng.random() < 0.7, rng.random() < 0.7
        self._extender = None
        if self._extender_rate is not None:
            # There are no sockets in virtual time, so it cannot be in a configuration.
            self._extender = SlowExtender(random.Random(rng.getrandbits(32)), self._extender_rate)
        self._scheduler = Scheduler(
            client,
            self._config,
            plugins=[self._hazard] if self._with_groups else [self._hazard, Coscheduling],
            release=self._release,
            settings=LoopSettings(seed=seed, eager=eager, cache=cache, search_clock=self._searches),
            observers=Observers(decided=self._decided),
            events=EventOutput(hostname="here"),
            extenders=self._extender,
        )
        if not self._rates and not self._hazard_rate and self._extender is None:
            # Otherwise members fail after their cycle, and those that do not are bound all the same.
            self._watched.on_bind = partial(self._gangs.bound, self._scheduler)
        if not self._with_hints:
            requeue_on_any_event(self._scheduler)
        self._running = asyncio.ensure_future(self._scheduler.run())

    async def _end_faults(self) -> None:
        """Faults end. A dead scheduler is started again."""
        self._trace("faults are over")
        if self._watched.is_dead:
            await self._stop(self._running)
            self._start()
        self._faulty.off(*(fault for fault in Fault if fault not in SLOWNESS))
        if self._extender is not None:
            self._extender.breaks = False
        for framework in self._scheduler.core.frameworks.values():
            for plugin in framework.profile.all_plugins():
                if isinstance(plugin, Hazard):
                    plugin.over()

    def _hurry(self) -> None:
        """Nothing is slow any more, so that quiescence is reached."""
        self._trace("nothing is slow any more")
        self._faulty.off()
        if self._extender is not None:
            self._extender.is_slow = False

    async def _crash_now_and_then(self) -> None:
        rng = random.Random(self._rng.getrandbits(32))
        pause = rng.choice((1.0, 10.0, 50.0, 1000.0))
        while self._report.crashes < MAX_CRASHES:
            await asyncio.sleep(rng.expovariate(1 / pause))
            for _ in range(rng.randint(0, 40)):
                # The clock does not move, but ready tasks take a step.
                await asyncio.sleep(0)
            self._trace("the scheduler dies")
            self._report.crashes += 1
            self._watched.is_dead = True
            await self._stop(self._running)
            self._report.faults += self._faulty.counts
            await asyncio.sleep(rng.choice((0.0, 0.0, 1.0, 5.0)))
            self._trace("the scheduler starts")
            self._start()

    async def _stop(self, task: asyncio.Future[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    # The trace

    def _trace(self, what: str) -> None:
        self._report.trace.append(f"{self._loop.time():8.3f}  {what}")

    def _decided(self, decision: Decision) -> None:
        self._report.decisions += 1
        nominated = decision.nomination.node_name if decision.nomination is not None else ""
        text = decision.node_name or f"{decision.message}{f' -> {nominated}' if nominated else ''}"
        self._trace(f"    {decision.pod.name}: {text}")
        if decision.found is not None and self._queues and self._extender is None:
            self._report.problems.extend(with_queues.over_limit(self._scheduler, decision.pod))
        if decision.found is not None and self._extender is None:
            self._report.problems.extend(misplaced(self._scheduler, decision.pod, decision.node_name))
