"""What a scheduler has to survive: found by the fault run, told here one by one.

Each test is a seed of `bayplan.simulator.fault_run` boiled down to what was wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, UnknownOutcomeError
from bayplan.framework.plugin_api import Plugin
from bayplan.scheduler.loop import Scheduler
from bayplan.server.memory import MemoryCluster, MemoryStore
from bayplan.simulator.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod


class Cluster(MemoryCluster):
    """A cluster some of whose answers a test replaces."""

    def __init__(self, *objects: Object) -> None:
        super().__init__(MemoryStore(clock=current_loop().wall_time))
        self.bind_seconds = 0.0
        self.refusals: list[APIError] = []
        """Answers to the first bindings, which are not done."""
        self.lost_answers: list[APIError] = []
        """The same, but they are done."""
        for item in objects:
            self.store.create(item)

    async def bind(self, pod: Pod, node_name: str) -> None:
        if self.bind_seconds:
            await asyncio.sleep(self.bind_seconds)
        if self.refusals:
            raise self.refusals.pop(0)
        await super().bind(pod, node_name)
        if self.lost_answers:
            raise self.lost_answers.pop(0)

    def node_of(self, name: str) -> str:
        return self.store.get(Pod, name, "default").spec.node_name


@asynccontextmanager
async def scheduling(cluster: Cluster, plugins: Iterable[type[Plugin]] = ()) -> AsyncIterator[Scheduler]:
    """A scheduler at work, which has done all that there is to do when this is entered."""
    scheduler = Scheduler(cluster, plugins=plugins)
    running = asyncio.ensure_future(scheduler.run())
    await quiescent()
    try:
        yield scheduler
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_failed_binding_is_tried_again_without_another_event() -> None:
    """The loop was asleep when the pod came back, and nobody set its alarm to the end of the backoff."""

    async def main() -> None:
        cluster = Cluster(make_node("n"), make_pod("p"))
        cluster.refusals.append(ConflictError("not now"))
        cluster.bind_seconds = 1
        async with scheduling(cluster):
            await asyncio.sleep(5)
            assert cluster.node_of("p") == "n"

    run_virtual(main())


def test_a_binding_whose_answer_was_lost_is_read_back() -> None:
    """The room was given to somebody else although the pod had been bound."""

    async def main() -> None:
        cluster = Cluster(make_node("n", pods=1), make_pod("p"), make_pod("q"))
        cluster.lost_answers.append(UnknownOutcomeError("no answer"))
        async with scheduling(cluster):
            assert [cluster.node_of("p"), cluster.node_of("q")] == ["n", ""]

    run_virtual(main())
