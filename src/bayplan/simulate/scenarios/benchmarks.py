"""Performs the operations of a scheduler_perf workload, one after the other."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from msgspec.structs import replace

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import ConflictError
from bayplan.simulate.scenarios.owners import Owner
from bayplan.simulate.scenarios.pods import SimulatedPod
from bayplan.simulate.scenarios.scheduler_perf import (
    Barrier,
    Benchmark,
    Churn,
    CreateObjects,
    CreatePods,
    Sleep,
)
from bayplan.simulate.scenarios.schema import SchedulerPerf
from bayplan.simulate.scenarios.times import drawing, generator
from bayplan.simulate.scenarios.world import World


class Unscheduled(Owner):
    """Counts pods until all of them are scheduled, or gone."""

    def __init__(self) -> None:
        self._pods: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, pod: SimulatedPod) -> None:
        self._pods.add(pod.uid)
        self._none.clear()

    def scheduled(self, pod: SimulatedPod) -> None:
        self._pods.discard(pod.uid)
        if not self._pods:
            self._none.set()

    def lost(self, pod: SimulatedPod) -> None:
        self.scheduled(pod)

    async def all_scheduled(self) -> None:
        await self._none.wait()


class BenchmarkRun:
    """A workload of scheduler_perf in a simulation."""

    def __init__(self, world: World, benchmark: Benchmark, wanted: SchedulerPerf, seed: int) -> None:
        self._world = world
        self._benchmark = benchmark
        self._draw = None if wanted.run_time is None else drawing(wanted.run_time)
        self._rng = generator(seed, "schedulerPerf", "runTime")
        self._all = Unscheduled()
        self._churning: list[asyncio.Future[None]] = []
        self.operations = benchmark.operations
        self.done = 0
        """The number of operations that are over."""

    async def run(self) -> None:
        try:
            for operation in self.operations:
                match operation:
                    case CreateObjects():
                        self._create(operation)
                    case CreatePods():
                        await self._create_pods(operation)
                    case Churn():
                        self._churning.append(asyncio.ensure_future(self._churn(operation)))
                    case Sleep():
                        await asyncio.sleep(operation.seconds)
                    case Barrier():
                        await self._all.all_scheduled()
                self.done += 1
            if self._churning:
                await asyncio.wait(self._churning)
        finally:
            for churning in self._churning:
                churning.cancel()
            await asyncio.gather(*self._churning, return_exceptions=True)

    def _create(self, operation: CreateObjects) -> None:
        for item in operation.objects:
            if isinstance(item, Node):
                self._world.add_node(item, "")
            else:
                # As upstream, an object that exists already is used.
                with suppress(ConflictError):
                    self._world.store.create(item)

    async def _create_pods(self, operation: CreatePods) -> None:
        batch = Unscheduled()
        for namespace in operation.namespaces:
            template = _in_namespace(operation.template, namespace)
            for index in range(operation.count):
                # A pod that nothing waits for counts for barriers only.
                self._create_pod(template, operation.name, index, batch if operation.waits else self._all)
        await batch.all_scheduled()

    async def _churn(self, operation: Churn) -> None:
        templates = [_in_namespace(template, operation.namespace) for template in operation.templates]
        rounds = range(operation.number) if operation.number else itertools.count()
        for index in rounds:
            for place, template in enumerate(templates):
                self._create_pod(template, f"{operation.name}-{place}", index, Unscheduled())
            await asyncio.sleep(operation.seconds)

    def _create_pod(self, template: Pod, name: str, index: int, owner: Unscheduled) -> None:
        pod = self._world.create_pod(
            template,
            f"{name}-{index}",
            workload=f"{self._benchmark.name}: {name}",
            owner=owner,
            run_seconds=None if self._draw is None else self._draw(self._rng),
        )
        owner.add(pod)


def _in_namespace(template: Pod, namespace: str) -> Pod:
    return replace(template, metadata=replace(template.metadata, namespace=namespace))
