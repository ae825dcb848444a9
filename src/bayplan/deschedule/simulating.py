"""Descheduling in virtual time: `bayplan simulate run --deschedule policy.yaml`.

The same scenario runs three times, each with a `SimulatedDescheduling` beside its scheduler: without
evictions, with those of upstream's rules, and with the moves that the scheduler decides. The same values are
measured in all of them, at every interval: how many pods the policy would evict, and how full the fullest
node is.

The planner, the executor and the room that is kept for replacements are those of `bayplan run --deschedule`.
Only the eviction API is different: it deletes the pods of the simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.config import Decision, DescheduleConfiguration, KubeSchedulerConfiguration, Mode
from bayplan.deschedule.budgets import Budget, Budgets
from bayplan.deschedule.companion import WATCHED
from bayplan.deschedule.copies import ClusterCopy, objects_of, pods_of
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.eviction import NOT_FOUND, TOO_MANY_REQUESTS, Answer, Request
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.planner import evict_by_rules, make_table
from bayplan.deschedule.running import Runner
from bayplan.deschedule.table import ClusterTable, Flag, PodColumns
from bayplan.deschedule.times import Times
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.reservations import Reservations
from bayplan.scheduler.tasks import cancel_all, first_to_end
from bayplan.simulate.scenarios.figures import Figures
from bayplan.simulate.scenarios.pods import Outcome
from bayplan.simulate.scenarios.result import Descheduling, rounded, summarized, waiting_times
from bayplan.simulate.scenarios.world import World
from bayplan.simulate.virtual_time import current_loop

NONE: Final = "none"
"""Instead of a decision: pods are only counted."""
DELAY_SECONDS: Final = 1.0
"""Cycles begin this long after the measurement."""
NO_SURGE: Final = "Descheduling: mode surge is not simulated; pods are evicted."
NOT_RUN: Final = "Descheduling: {error}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The cluster at the start of an interval."""

    time: float
    candidates: int
    fullest: float
    empty: int


@dataclass(slots=True)
class SimulatedDescheduling:
    """Runs beside the scheduler of one simulation.

    Args:
        decision: None: pods are counted and none is evicted.
    """

    descheduler: Descheduler
    settings: DescheduleConfiguration
    config: KubeSchedulerConfiguration
    plugins: Sequence[type[Plugin]]
    decision: Decision | None
    kinds: ClassVar[tuple[type[Object], ...]] = WATCHED
    measured: list[Measured] = field(default_factory=list)
    errors: dict[str, None] = field(default_factory=dict)
    """What strategies could not do, without repetitions."""
    _columns: PodColumns = field(default_factory=PodColumns)

    async def run(self, world: World, scheduler: Scheduler) -> None:
        tasks = [
            asyncio.ensure_future(self._repeat(lambda: self._measure(scheduler))),
            asyncio.ensure_future(self._act(world, scheduler)),
        ]
        try:
            await first_to_end(tasks)
        except asyncio.CancelledError:
            # The end of the simulation is measured, too.
            self._measure(scheduler)
            raise
        finally:
            await cancel_all(tasks)

    async def _act(self, world: World, scheduler: Scheduler) -> None:
        await asyncio.sleep(DELAY_SECONDS)
        if self.decision is Decision.UPSTREAM:
            await self._repeat(lambda: self._evict(world, scheduler))
        elif self.decision is Decision.SCHEDULER:
            await self._runner(world, scheduler).run(Times(self.settings.interval.seconds))
        else:
            await asyncio.Event().wait()

    async def _repeat(self, act: Callable[[], None]) -> None:
        loop, number = current_loop(), 0
        started = loop.time()
        while True:
            # First everything that happens at this time takes its effect.
            await loop.quiescent()
            act()
            number += 1
            await asyncio.sleep(started + number * self.settings.interval.seconds - loop.time())

    def _table(self, scheduler: Scheduler) -> ClusterTable:
        return make_table(self._columns, objects_of(scheduler))

    def _measure(self, scheduler: Scheduler) -> None:
        table, loop = self._table(scheduler), current_loop()
        if self.measured and self.measured[-1].time == loop.time():
            return
        ready = table.is_ready
        share = table.used[:, 0] / np.maximum(table.allocatable[:, 0], 1)
        occupied = np.unique(table.row[table.counted & (table.flags & Flag.DAEMON == 0)])
        fullest = float(share[ready].max()) if ready.any() else 0.0
        evicted, result = evict_by_rules(table, self.descheduler, loop.wall_time())
        self.errors.update(dict.fromkeys(result.errors))
        self.measured.append(
            Measured(loop.time(), len(evicted), rounded(fullest), len(table.nodes) - len(occupied))
        )

    def _evict(self, world: World, scheduler: Scheduler) -> None:
        """A cycle of upstream's rules. Each budget allows as much in a cycle as its status says."""
        table = self._table(scheduler)
        budgets = Budgets.of(table.budgets)

        def send(request: Request) -> Answer:
            budget = budgets.of_pod(request.pod)
            if isinstance(budget, str):
                return Answer(TOO_MANY_REQUESTS, budget)
            if isinstance(budget, Budget):
                budget.left -= 1
            return evict(world, request.pod)

        evict_by_rules(table, self.descheduler, current_loop().wall_time(), send=send)

    def _runner(self, world: World, scheduler: Scheduler) -> Runner:
        api = SimulatedEvictions(world, scheduler, ClusterCopy(self.config, self.plugins))
        settings = replace(self.settings, decision=Decision.SCHEDULER)
        return Runner(
            api,
            self.descheduler,
            settings,
            now=current_loop().wall_time,
            in_thread=_at_once,
            room=Reservations(scheduler),
        )

    def notes(self) -> list[str]:
        """What the simulation does not take into account."""
        found = [NOT_RUN.format(error=one) for one in (*self.descheduler.policy.warnings, *self.errors)]
        return [NO_SURGE, *found] if self.settings.mode is Mode.SURGE else found

    def result(self, figures: Figures) -> Descheduling:
        """The figures of the simulation that it ran in."""
        evicted = [pod for pod in figures.pods if pod.outcome is Outcome.DESCHEDULED]
        replaced = {pod.replaces.uid: pod for pod in figures.pods if pod.replaces is not None}
        found = [(pod.node_name, replaced[pod.uid].node_name) for pod in evicted if pod.uid in replaced]
        times = [one.time for one in self.measured]
        ran = (pod.ended - (pod.scheduled or 0.0) for pod in evicted if pod.ended is not None)
        return Descheduling(
            decision=NONE if self.decision is None else self.decision.value,
            evictions=len(evicted),
            other_node=sum(bool(new) and new != old for old, new in found),
            same_node=sum(new == old for old, new in found),
            no_node=len(evicted) - sum(bool(new) for _, new in found),
            lost_seconds=rounded(sum(ran)),
            candidates=summarized(times, [one.candidates for one in self.measured]),
            candidates_at_end=self.measured[-1].candidates,
            fullest_node=summarized(times, [one.fullest for one in self.measured]),
            empty_nodes=summarized(times, [one.empty for one in self.measured]),
            waiting_time=waiting_times(figures.pods),
            waiting_at_end=figures.waiting,
            placements_digest=figures.placements_digest,
            times=times,
            candidates_series=[one.candidates for one in self.measured],
            fullest_node_series=[one.fullest for one in self.measured],
        )


async def _at_once(make: Callable[[], Plan]) -> Plan:
    return make()


def evict(world: World, pod: Pod) -> Answer:
    """Evicts a pod of the simulation."""
    found = world.pods.get(pod.uid)
    if found is None or found.is_terminating:
        return Answer(NOT_FOUND, f'pods "{pod.name}" not found')
    world.delete_pod(found, Outcome.DESCHEDULED)
    return Answer()


@dataclass(frozen=True, slots=True)
class SimulatedEvictions:
    """The eviction API of a simulation (`executing.EvictionAPI`). Plans respect budgets, so it does not."""

    world: World
    scheduler: Scheduler
    copy: ClusterCopy

    async def load(self) -> Cluster:
        await current_loop().quiescent()
        return self.copy.update(objects_of(self.scheduler))

    async def objects(self) -> Sequence[Object]:
        return objects_of(self.scheduler)

    async def pods(self, namespace: str) -> Sequence[Pod]:
        return pods_of(self.scheduler, namespace)

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        return evict(self.world, pod)
