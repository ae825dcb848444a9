"""Repeated descheduling: read the cluster, plan, evict, wait.

One cycle is `Runner.cycle`; `run` repeats it, from start to start, while this process leads. A cycle is
skipped while the lease has the annotation of the pause switch. Memory and columns live as long as the
process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Final

from bayplan.answers.whatif import Cluster
from bayplan.api.pod import Pod
from bayplan.config import Decision, DescheduleConfiguration
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.eviction import (
    FAILED,
    REQUESTED_BY,
    Answer,
    BackgroundRequests,
    EvictionEvent,
    PodEvictor,
    Request,
    Result,
)
from bayplan.deschedule.executing import EvictionAPI, Executor, Outcome, Rate, Room, Step, Surge
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.metrics import DescheduleMetrics
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.planner import Planner, make_table
from bayplan.deschedule.policy import Policy
from bayplan.deschedule.table import ClusterTable, PodColumns
from bayplan.deschedule.times import Times
from bayplan.deschedule.usage import MeasuredUsage
from bayplan.errors import APIError

PAUSE: Final = "bayplan.dev/deschedule-paused"
"""An annotation of the lease; "true": no pod is evicted."""
LEASE: Final = "bayplan-descheduler"
_REAL: Final = "descheduler"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Runner:
    """Runs a policy against a cluster."""

    api: EvictionAPI
    descheduler: Descheduler
    settings: DescheduleConfiguration
    dry_run: bool = False
    is_leader: Callable[[], bool] = lambda: True
    is_paused: Callable[[], Awaitable[bool]] | None = None
    read_usage: Callable[[MeasuredUsage, Policy], Awaitable[None]] | None = None
    write_event: Callable[[EvictionEvent, float], Awaitable[None]] | None = None
    metrics: DescheduleMetrics = field(default_factory=DescheduleMetrics)
    on_plan: Callable[[Plan], None] | None = None
    on_step: Callable[[Step], None] | None = None
    now: Callable[[], float] = time.time
    background: BackgroundRequests | None = None
    """Evictions in background, if they are allowed; only with upstream's rules."""
    in_thread: Callable[[Callable[[], Plan]], Awaitable[Plan]] = asyncio.to_thread
    """Where plans are made. In virtual time there are no threads."""
    room: Room | None = None
    surge: Surge | None = None
    memory: Memory = field(default_factory=Memory)
    cycles: int = 0
    """Completed cycles."""
    _columns: PodColumns = field(default_factory=PodColumns)
    _usage: MeasuredUsage = field(default_factory=MeasuredUsage)
    _warned: bool = False
    _rate: Rate = field(init=False)

    def __post_init__(self) -> None:
        self._rate = Rate(self.settings.evictions_per_minute)

    async def run(self, times: Times) -> None:
        """Runs cycles until it is cancelled; one cycle if they do not repeat."""
        await asyncio.sleep(times.first(self.now()) - self.now())
        while True:
            started = self.now()
            try:
                await self.cycle()
            except APIError as error:
                _log.error("descheduling cycle failed: %s", error)
                if not times.repeats:
                    raise
            if not times.repeats:
                return
            now = self.now()
            await asyncio.sleep(times.next(started, now) - now)

    async def cycle(self) -> None:
        """One cycle, unless it is paused."""
        if self.is_paused is not None and await self.is_paused():
            _log.info("descheduling is paused: the lease has the annotation %s", PAUSE)
            self.cycles += 1
            return
        started = time.perf_counter()
        if self.read_usage is not None:
            await self.read_usage(self._usage, self.descheduler.policy)
        if self.settings.decision is Decision.UPSTREAM:
            await self._evict_as_upstream(make_table(self._columns, await self.api.objects()))
        else:
            await self._move(await self.api.load())
        self._warn_of_another()
        self.metrics.loop_took(time.perf_counter() - started)
        self.cycles += 1

    async def _move(self, cluster: Cluster) -> None:
        planner = self.planner(cluster)
        plan = await self.in_thread(planner.plan)
        if self.on_plan is not None:
            self.on_plan(plan)
        if self.dry_run:
            return
        executor = Executor(
            self.api,
            self.memory,
            self._rate,
            self.settings.replacement_timeout.seconds,
            self.descheduler.policy.grace_period_seconds,
            self.now,
            self.is_leader,
            self.room,
            self.surge,
        )

        def stepped(step: Step) -> None:
            move, succeeded = step.move, step.outcome in (Outcome.MOVED, Outcome.ELSEWHERE, Outcome.WAITING)
            if step.outcome is not Outcome.SKIPPED:
                namespace = move.pod.partition("/")[0]
                result = "success" if succeeded else "error"
                self.metrics.evicted(result, move.strategy, move.profile, namespace, move.source)
            if self.on_step is not None:
                self.on_step(step)

        pods = {pod.key: pod for pod in cluster.pods}
        steps = await executor.run(plan.moves, stepped)
        await self._report([one for step in steps for one in self._events_of(step, pods)])

    def _events_of(self, step: Step, pods: dict[str, Pod]) -> Iterator[EvictionEvent]:
        """The events that upstream writes about an eviction."""
        pod, move = pods.get(step.move.pod), step.move
        if pod is None or step.outcome is Outcome.SKIPPED:
            return
        note = f"pod eviction from {move.source} node by {REQUESTED_BY}"
        if step.outcome is not Outcome.BLOCKED:
            yield EvictionEvent(pod, "Normal", move.strategy, note)
        elif self.descheduler.policy.reports_failures:
            yield EvictionEvent(pod, "Warning", FAILED, f"{note} failed: {step.why}")

    async def _report(self, events: Iterable[EvictionEvent]) -> None:
        if self.write_event is not None and not self.dry_run:
            for event in events:
                await self.write_event(event, self.now())

    def planner(self, cluster: Cluster) -> Planner:
        return Planner(
            cluster,
            self.descheduler,
            self.now(),
            self.memory,
            self.settings.margin,
            self._usage,
            self._columns,
            nominates=self.room is not None,
        )

    async def _evict_as_upstream(self, table: ClusterTable) -> None:
        """The strategies run in a thread and wait there for each response of the API server."""
        loop = asyncio.get_running_loop()
        policy = self.descheduler.policy
        sending: list[Future[Answer]] = []
        ended = False
        self._sync_background(table.pods)

        async def evict(request: Request) -> Answer:
            await self._rate.wait()
            if not self.is_leader():
                return Answer(-1, "this process is no longer the leader")
            return await self.api.evict(request.pod, request.reason, request.grace_period_seconds)

        def send(request: Request) -> Answer:
            answer = Answer()
            if not self.dry_run:
                sending[:] = [asyncio.run_coroutine_threadsafe(evict(request), loop)]
                if ended:
                    sending[0].cancel()
                try:
                    answer = sending[0].result()
                except CancelledError:
                    return Answer(-1, "descheduling was stopped")
            if not answer.code:
                table.remove(request.slot)
            return answer

        evictor = PodEvictor(
            table,
            send,
            policy.limits,
            policy.grace_period_seconds,
            policy.reports_failures,
            self.dry_run,
            self.background,
            self.now(),
            lambda result, *labels: self.metrics.evicted(result.value, *labels),
        )
        try:
            result = await asyncio.to_thread(
                self.descheduler.cycle,
                table,
                evictor,
                now=self.now(),
                usage=self._usage,
                on_duration=self.metrics.strategy_took,
            )
        finally:
            # The thread must not wait for an answer that never comes, nor evict anything more.
            ended = True
            for one in sending:
                one.cancel()
        await self._report(evictor.events)
        for text in result.errors:
            _log.error("%s", text)
        for attempt in evictor.attempts:
            _log.info(
                "evicted %s from %s (%s): %s",
                attempt.request.pod.key,
                attempt.request.node,
                attempt.request.strategy,
                attempt.answer.message or "ok",
            )

    def _sync_background(self, pods: Sequence[Pod]) -> None:
        if self.background is not None:
            for _, one in self.background.sync(pods, self.now()):
                self.metrics.evicted(Result.OK.value, one.strategy, one.profile, one.namespace, one.node)

    def _warn_of_another(self) -> None:
        """Warns once if another descheduler runs: the two would evict each other's replacements."""
        # Few specs are distinct, and only if one is descheduler's all pods are looked at.
        if self._warned or not any(map(runs_descheduler, self._columns.spec_pods)):
            return
        found = next(filter(is_descheduler, self._columns.pods), None)
        if found is not None:
            self._warned = True
            _log.warning("descheduler runs in this cluster, too (%s): both evict pods", found.key)


def is_descheduler(pod: Pod) -> bool:
    """Whether a pod runs the real descheduler."""
    return not pod.is_finished and runs_descheduler(pod)


def runs_descheduler(pod: Pod) -> bool:
    images = (container.image.rpartition("/")[2] for container in pod.spec.containers)
    return any(image.startswith(f"{_REAL}:") for image in images)
