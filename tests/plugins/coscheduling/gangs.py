"""A scheduler with groups of pods, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.api.workloads import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from bayplan.config import KubeSchedulerConfiguration
from bayplan.errors import APIError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.state import CycleState
from bayplan.framework.status import SKIP, Status, failure
from bayplan.plugins.library.coscheduling import (
    Coscheduling,
)
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_pod


def make_group(name: str = "g", wanted: int = 3, timeout: int | None = None) -> PodGroup:
    spec = PodGroupSpec(min_member=wanted, schedule_timeout_seconds=timeout)
    return PodGroup(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def make_member(number: int, group: str = "g", **fields: Any) -> Pod:
    """Takes a whole cpu; four of them fill a node."""
    fields.setdefault("cpu", "1")
    return make_pod(f"{group}-{number}", labels={POD_GROUP_LABEL: group}, **fields)


def make_members(count: int, group: str = "g", **fields: Any) -> list[Pod]:
    return [make_member(number, group, **fields) for number in range(count)]


class Breaks(Plugin):
    """Raises when a pod of one of these names has been given a node."""

    names: ClassVar[set[str]] = set()

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return failure("broken") if pod.name in self.names else SKIP

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


class Gangs(MemoryCluster):
    """The cluster, and the scheduler that is at work on it."""

    def __init__(self, *objects: Object, config: KubeSchedulerConfiguration | None = None) -> None:
        super().__init__(MemoryStore(clock=current_loop().wall_time))
        self.api_errors: list[APIError] = []
        """Answers to the first bindings."""
        self.announcing: dict[str, float] = {}
        """How many seconds it takes to write a pod's status, by name."""
        self.attempts = 0
        self.on_attempt: dict[str, Callable[[], None]] = {}
        """Called at the first decision about a pod."""
        self.add(*objects)
        self.scheduler = Scheduler(
            self, config, plugins=[Breaks, Coscheduling], observers=Observers(decided=self._decided)
        )

    def _decided(self, decision: Decision) -> None:
        self.attempts += 1
        self.on_attempt.pop(decision.pod.name, lambda: None)()

    def add(self, *objects: Object) -> None:
        for item in objects:
            self.store.create(item)

    def remove(self, name: str) -> None:
        self.store.delete(Pod, name, "default")

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        if self.api_errors:
            raise self.api_errors.pop(0)
        await super().bind(pod, node_name, annotations)

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        # No API server answers at once.
        await asyncio.sleep(self.announcing.get(pod.name, 0))
        await super().patch_pod_status(pod, patch)

    def pod(self, name: str) -> Pod:
        return self.store.get(Pod, name, "default")

    def bound(self, group: str = "g") -> int:
        """How many pods of the group are on a node."""
        return sum(
            pod.labels.get(POD_GROUP_LABEL) == group and bool(pod.spec.node_name)
            for pod in self.store.list(Pod)
        )

    @property
    def held(self) -> int:
        """Places that are taken by pods which are not bound."""
        return self.scheduler.context.cache.assumed_count

    def reason(self, name: str) -> str:
        """Why the pod waits, as the event reports it."""
        return next((c.message for c in self.pod(name).status.conditions if c.type == "PodScheduled"), "")


@asynccontextmanager
async def gangs(*objects: Object, config: KubeSchedulerConfiguration | None = None) -> AsyncIterator[Gangs]:
    cluster = Gangs(*objects, config=config)
    running = asyncio.ensure_future(cluster.scheduler.run())
    await quiescent()
    try:
        yield cluster
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await quiescent()


Test = Callable[[], Coroutine[Any, Any, None]]


def virtual(test: Test) -> Callable[[], None]:
    """Runs a test in virtual time."""

    def run() -> None:
        run_virtual(test())

    run.__doc__ = test.__doc__
    run.__name__ = test.__name__
    return run


def make_without_claim(number: int) -> Pod:
    """A member that is rejected without this plugin: its claim is missing."""
    return make_member(number, claims=["nowhere"])
