"""Lives with descheduling on: nothing is lost, budgets are kept, and moves end.

    python -m tests.faults.descheduling --first 1 --seeds 300

ReplicaSets keep their numbers of pods on a few nodes, whose taints change. The scheduler and the descheduler
run in one process, as with `bayplan run --deschedule`: they have the same informers, whose watches break, and
they are killed at random moments, in the middle of a plan as well. Evictions are rejected by budgets, fail,
get no response, or take effect without one. Then the faults end. After some cycles

- every ReplicaSet has its number of pods, and all of them are ready on nodes that they tolerate
- no eviction has left fewer ready pods than a budget demands
- nothing moves any more, no room is kept for a replacement, and the scheduler is as tidy as without moves.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Condition, LabelSelector, Object, ObjectMeta
from bayplan.api.node import Node, Taint
from bayplan.api.pod import Pod
from bayplan.api.workloads import LabelSelectorSpec, PodDisruptionBudget, ReplicaSet
from bayplan.config import DescheduleConfiguration, default_config
from bayplan.controllers.pods import is_ready
from bayplan.deschedule.companion import WATCHED
from bayplan.deschedule.copies import ClusterCopy, objects_of, pods_of
from bayplan.deschedule.eviction import Answer
from bayplan.deschedule.executing import Outcome, Step
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.running import Runner
from bayplan.deschedule.times import Times
from bayplan.errors import ConflictError, NotFoundError
from bayplan.framework.args import Duration
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.recorder import DiscardedEvents, EventOutput
from bayplan.scheduler.reservations import Reservations
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.memory.writes import end_after_grace_period
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.testing.builders import make_node, make_owner, make_pdb, make_pod
from tests.deschedule.situations import descheduler
from tests.faults.checks import untidiness
from tests.faults.faulty_cluster import Dice, Fault, FaultyCluster
from tests.faults.life import logged_errors

POLICY: Final[dict[str, Any]] = {
    "RemovePodsViolatingNodeTaints": {},
    "RemoveDuplicates": {},
    "LowNodeUtilization": {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 60}},
}
MAINTENANCE: Final = Taint(key="maintenance", effect="NoSchedule")
INTERVAL_SECONDS: Final = 20.0
SETTINGS: Final = DescheduleConfiguration(
    interval=Duration.of(seconds=int(INTERVAL_SECONDS)),
    evictions_per_minute=60,
    replacement_timeout=Duration.of(seconds=15),
)
QUIET_SECONDS: Final = 900.0
"""So long nothing changes from outside at the end; in the last third nothing may move."""
READ_FAULTS: Final = (
    Fault.DUPLICATE_EVENT,
    Fault.SLOW_WATCH,
    Fault.BREAK_WATCH,
    Fault.EXPIRE_WATCH,
    Fault.REJECT_WATCH,
    Fault.FAIL_READ,
)
EVICTION_FAULTS: Final = (
    Fault.SERVER_ERROR,
    Fault.TIMEOUT_BEFORE,
    Fault.TIMEOUT_AFTER,
    Fault.SLOW_REQUEST,
    Fault.SLOW_ANSWER,
)


@dataclass(slots=True)
class Report:
    """The result of one seed."""

    seed: int
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Controllers:
    """ReplicaSets, budgets and kubelets, which act every half second."""

    def __init__(self, store: MemoryStore, replicas: dict[str, int], least: dict[str, int]) -> None:
        self._store = store
        self.replicas = replicas
        self.least = least
        """Of each budget: the number of pods that have to be ready."""
        self._created = 0
        self._sets = {
            name: store.create(
                ReplicaSet(
                    metadata=ObjectMeta(name=name, namespace="default"),
                    spec=LabelSelectorSpec(selector=LabelSelector(match_labels={"app": name})),
                )
            )
            for name in replicas
        }

    async def run(self) -> None:
        while True:
            self.act()
            await asyncio.sleep(0.5)

    def act(self) -> None:
        for name, wanted in self.replicas.items():
            for _ in range(wanted - len(self.pods(name))):
                self._created += 1
                owner = make_owner("ReplicaSet", name, uid=self._sets[name].uid)
                self._store.create(
                    make_pod(f"{name}-{self._created}", owner=owner, labels={"app": name}, cpu="1")
                )
        for pod in self._store.list(Pod):
            if pod.spec.node_name and not pod.is_terminating and not is_ready(pod):
                ready = Condition(type="Ready", status="True")
                conditions = (*pod.status.conditions, ready)
                self._store.update(
                    replace(pod, status=replace(pod.status, phase="Running", conditions=conditions))
                )
        for budget in self._store.list(PodDisruptionBudget):
            allowed = max(self.ready(budget.name) - self.least[budget.name], 0)
            self._store.update(replace(budget, status=replace(budget.status, disruptions_allowed=allowed)))

    def pods(self, owner: str) -> list[Pod]:
        return [pod for pod in self._store.list(Pod) if pod.labels["app"] == owner and not pod.is_terminating]

    def ready(self, owner: str) -> int:
        return sum(map(is_ready, self.pods(owner)))


class FaultyEvictions:
    """The eviction API of one life of the process."""

    def __init__(
        self, store: MemoryStore, scheduler: Scheduler, controllers: Controllers, dice: Dice, report: Report
    ) -> None:
        self._store, self._scheduler, self._controllers = store, scheduler, controllers
        self._dice, self._report = dice, report
        self._copy = ClusterCopy(default_config())

    async def load(self) -> Cluster:
        return self._copy.update(objects_of(self._scheduler))

    async def objects(self) -> Sequence[Object]:
        return objects_of(self._scheduler)

    async def pods(self, namespace: str) -> Sequence[Pod]:
        return pods_of(self._scheduler, namespace)

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        dice = self._dice
        if dice.strikes(Fault.SLOW_REQUEST):
            await dice.delay()
        if dice.strikes(Fault.SERVER_ERROR):
            return Answer(500, "injected fault")
        if dice.strikes(Fault.TIMEOUT_BEFORE):
            await dice.delay()
            return Answer(-1, "injected fault")
        answer = self._evict(pod)
        if dice.strikes(Fault.TIMEOUT_AFTER):
            await dice.delay()
            return Answer(-1, "injected fault")
        if dice.strikes(Fault.SLOW_ANSWER):
            await dice.delay()
        return answer

    def _evict(self, pod: Pod) -> Answer:
        owner = pod.labels["app"]
        if owner in self._controllers.least:
            budget = self._store.get(PodDisruptionBudget, owner, "default")
            allowed = budget.status.disruptions_allowed
            if allowed <= 0:
                self._report.counts["evictions rejected by budgets"] += 1
                return Answer(429, "Cannot evict pod as it would violate the pod's disruption budget.")
            self._store.update(
                replace(budget, status=replace(budget.status, disruptions_allowed=allowed - 1))
            )
        try:
            self._store.delete(Pod, pod.name, pod.namespace, uid=pod.uid)
        except (NotFoundError, ConflictError) as error:
            return Answer(404, str(error))
        self._report.counts["evictions"] += 1
        least = self._controllers.least.get(owner, 0)
        if self._controllers.ready(owner) < least:
            self._report.problems.append(f"{owner} has fewer than {least} ready pods after an eviction")
        return Answer()


class Life:
    """One seed in progress."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._rng = random.Random(report.seed)
        self._steps: list[tuple[float, Step]] = []

    async def main(self) -> None:
        rng, loop = self._rng, current_loop()
        self._store = MemoryStore(
            clock=loop.wall_time, seed=rng.getrandbits(32), kubelet=end_after_grace_period
        )
        nodes = rng.randint(3, 6)
        for i in range(nodes):
            self._store.create(make_node(f"n{i}", cpu=16))
        replicas = {f"app{i}": rng.randint(1, 5) for i in range(rng.randint(1, 4))}
        least = {name: rng.randint(0, count) for name, count in replicas.items() if rng.random() < 0.6}
        for name in least:
            self._store.create(make_pdb(name, {"app": name}, allowed=0))
        self._controllers = Controllers(self._store, replicas, least)
        share = rng.choice((0.0, 0.5, 1.0))
        self._rates = {
            fault: rng.choice((0.02, 0.1, 0.3))
            for fault in (*READ_FAULTS, *EVICTION_FAULTS)
            if rng.random() < share
        }
        controlling = asyncio.ensure_future(self._controllers.run())
        self._start()
        crashes = rng.choice((0, 2, 6))
        for _ in range(rng.randint(10, 30)):
            self._change(nodes)
            await asyncio.sleep(rng.expovariate(1 / 15.0))
            if crashes and rng.random() < 0.3:
                crashes -= 1
                await self._crash()
        for fault in (*READ_FAULTS, *EVICTION_FAULTS):
            self._faulty.off(fault)
        self._dice.off(())
        self._taint(())
        self._taint({f"n{rng.randrange(nodes)}"})
        await asyncio.sleep(QUIET_SECONDS)
        await loop.quiescent()
        self._check()
        for task in (controlling, self._running):
            task.cancel()
        await asyncio.gather(controlling, self._running, return_exceptions=True)

    def _start(self) -> None:
        rng = self._rng
        self._faulty = FaultyCluster(
            MemoryCluster(self._store), seed=rng.getrandbits(32), rates=self._rates, delay_seconds=3.0
        )
        self._dice = Dice(rng.getrandbits(32), self._rates, 3.0)
        self._scheduler = scheduler = Scheduler(
            self._faulty,
            settings=LoopSettings(seed=rng.getrandbits(32)),
            events=EventOutput(DiscardedEvents(), hostname="here"),
            kinds=WATCHED,
        )
        self._room = Reservations(scheduler)
        api = FaultyEvictions(self._store, scheduler, self._controllers, self._dice, self._report)
        loop = current_loop()
        runner = Runner(
            api,
            descheduler(POLICY),
            SETTINGS,
            now=loop.wall_time,
            room=self._room,
            in_thread=at_once,
            on_step=lambda step: self._steps.append((loop.time(), step)),
        )

        async def run() -> None:
            scheduling = asyncio.ensure_future(scheduler.run())
            try:
                await scheduler.synced()
                await runner.run(Times(INTERVAL_SECONDS))
            finally:
                scheduling.cancel()
                await asyncio.gather(scheduling, return_exceptions=True)

        self._running = asyncio.ensure_future(run())

    async def _crash(self) -> None:
        for _ in range(self._rng.randint(0, 40)):
            # The clock does not move, but ready tasks take a step.
            await asyncio.sleep(0)
        self._report.counts["crashes"] += 1
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._count_faults()
        await asyncio.sleep(self._rng.choice((0.0, 1.0, 10.0)))
        self._start()

    def _change(self, nodes: int) -> None:
        rng = self._rng
        if rng.random() < 0.7:
            count = rng.randint(0, nodes - 2)
            self._taint({f"n{i}" for i in rng.sample(range(nodes), count)})
            return
        unlimited = sorted(self._controllers.replicas.keys() - self._controllers.least.keys())
        if unlimited:
            self._controllers.replicas[rng.choice(unlimited)] += rng.choice((0, 1))

    def _taint(self, names: Iterable[str]) -> None:
        """These nodes have the taint, and no others."""
        for node in self._store.list(Node):
            taints = (MAINTENANCE,) if node.name in names else ()
            self._store.update(replace(node, spec=replace(node.spec, taints=taints)))

    def _check(self) -> None:
        problems, now = self._report.problems, current_loop().time()
        tainted = {node.name for node in self._store.list(Node) if node.spec.taints}
        for owner, wanted in self._controllers.replicas.items():
            pods = self._controllers.pods(owner)
            if len(pods) != wanted or not all(map(is_ready, pods)):
                problems.append(f"{owner} has {len(pods)} pods instead of {wanted}, or not all are ready")
            is_limited = self._controllers.least.get(owner, 0) >= wanted
            left = [pod.key for pod in pods if pod.spec.node_name in tainted]
            if left and not is_limited:
                problems.append(f"{left} were not moved from tainted nodes")
        late = [step for time, step in self._steps if time > now - QUIET_SECONDS / 3]
        moved = [step for step in late if step.outcome is not Outcome.SKIPPED]
        if moved:
            problems.append(f"pods are still moved: {moved[0]}")
        if self._running.done():
            problems.append(f"descheduling has ended: {self._running}")
        problems.extend(untidiness(self._scheduler, self._store))
        self._report.counts.update(str(step.outcome) for _, step in self._steps)
        self._count_faults()

    def _count_faults(self) -> None:
        self._report.counts["faults"] += self._faulty.counts.total() + self._dice.counts.total()


async def at_once(make: Any) -> Plan:
    plan: Plan = make()
    return plan


def play(seed: int) -> Report:
    """Runs one seed."""
    report = Report(seed)
    with logged_errors(report.problems):
        run_virtual(Life(report).main())
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.descheduling", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to play")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        report = play(seed)
        counts += report.counts
        failed += bool(report.problems)
        for problem in report.problems:
            print(f"seed {seed}: {problem}", flush=True)
    found = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    print(f"{options.seeds} seeds, {failed} failed: {found}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
