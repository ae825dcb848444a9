"""What a scheduler has to survive: found by the fault run, one test for each.

Each test is a seed of `tests.faults` reduced to the fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.selectors import HOSTNAME
from bayplan.errors import APIError, ConflictError, UnknownOutcomeError
from bayplan.framework.plugin_api import Plugin, Wait
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status, failure
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod, make_pod_affinity, make_pod_term


class Cluster(MemoryCluster):
    """A cluster some of whose responses a test replaces."""

    def __init__(self, *objects: Object) -> None:
        super().__init__(MemoryStore(clock=current_loop().wall_time))
        self.bind_seconds = 0.0
        self.delete_seconds = 0.0
        """The delay of the response to a deletion."""
        self.when_deleted: dict[str, Callable[[], object]] = {}
        """Called at the moment at which a pod is deleted."""
        self.api_errors: list[APIError] = []
        """Answers to the first bindings, which are not done."""
        self.lost_answers: list[APIError] = []
        """The same, but they are done."""
        for item in objects:
            self.store.create(item)

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        if self.bind_seconds:
            await asyncio.sleep(self.bind_seconds)
        if self.api_errors:
            raise self.api_errors.pop(0)
        await super().bind(pod, node_name, annotations)
        if self.lost_answers:
            raise self.lost_answers.pop(0)

    async def delete_pod(self, pod: Pod) -> None:
        await super().delete_pod(pod)
        seconds = self.delete_seconds
        self.when_deleted.pop(pod.name, lambda: None)()
        await asyncio.sleep(seconds)

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


@pytest.fixture(autouse=True)
def nothing_is_found_impossible(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """None of this is an error: the scheduler continues."""
    yield
    records = caplog.get_records("call")
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


def test_a_failed_binding_is_tried_again_without_another_event() -> None:
    """The loop was asleep when the pod came back, and no timer was set to the end of the backoff."""

    async def main() -> None:
        cluster = Cluster(make_node("n"), make_pod("p"))
        cluster.api_errors.append(ConflictError("not now"))
        cluster.bind_seconds = 1
        async with scheduling(cluster):
            await asyncio.sleep(5)
            assert cluster.node_of("p") == "n"

    run_virtual(main())


def test_a_binding_whose_answer_was_lost_is_read_back() -> None:
    """The room was given to another pod although the pod had been bound."""

    async def main() -> None:
        cluster = Cluster(make_node("n", pods=1), make_pod("p"), make_pod("q"))
        cluster.lost_answers.append(UnknownOutcomeError("no answer"))
        async with scheduling(cluster):
            assert [cluster.node_of("p"), cluster.node_of("q")] == ["n", ""]

    run_virtual(main())


def test_a_preemption_that_begins_before_the_last_one_was_answered() -> None:
    """The end of the first was taken for the end of the second, which then failed."""

    async def main() -> None:
        small = [make_pod(f"small-{i}", cpu="1", node="n", priority=0) for i in range(2)]
        cluster = Cluster(make_node("n", cpu="4"), make_pod("large", cpu="2", node="n", priority=-1), *small)
        cluster.delete_seconds = 5

        def another_is_faster() -> None:
            cluster.store.create(make_pod("faster", cpu="2", priority=20))
            cluster.delete_seconds = 6

        cluster.when_deleted["large"] = another_is_faster
        async with scheduling(cluster) as scheduler:
            cluster.store.create(make_pod("first", cpu="2", priority=10))
            await asyncio.sleep(30)
            assert [cluster.node_of("first"), cluster.node_of("faster")] == ["n", "n"]
            assert not scheduler.context.queue.nominations.preemptions

    run_virtual(main())


def test_a_preemptor_whose_last_victim_is_deleted_before_the_others() -> None:
    """It was gated while the others were evicted, and nothing was left that could have requeued it."""

    async def main() -> None:
        small = [make_pod(f"small-{i}", cpu="1", node="n", priority=0) for i in range(2)]
        cluster = Cluster(make_node("n", cpu="4"), make_pod("large", cpu="2", node="n", priority=-1), *small)
        cluster.delete_seconds = 5
        cluster.when_deleted["small-1"] = lambda: cluster.store.delete(Pod, "large", "default")
        async with scheduling(cluster):
            cluster.store.create(make_pod("preemptor", cpu="4", priority=10))
            await asyncio.sleep(30)
            assert cluster.node_of("preemptor") == "n"

    run_virtual(main())


class HesitatesAndBreaks(Plugin):
    """Lets the pod wait for a permit, and raises before the waiting begins."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Wait:
        return Wait(60)

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return failure("broken")

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        raise AssertionError("it does not come to this")


def test_a_pod_that_fails_before_it_waits_for_its_permit() -> None:
    """It was still found among the pods that wait, and so kept its room on the node when it was deleted."""

    async def main() -> None:
        cluster = Cluster(make_node("n"), make_pod("p"))
        async with scheduling(cluster, [HesitatesAndBreaks]) as scheduler:
            assert len(scheduler.context.waiting) == 0

    run_virtual(main())


class SlowPreBind(Plugin):
    """Whose work takes a while."""

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        await asyncio.sleep(1)
        return None


def test_a_pod_that_is_preempted_before_its_pre_bind_has_begun() -> None:
    """It was neither bound nor requeued, and kept its room forever.

    The preemptor waits for a node. It backs off when one comes, so that the other pod is tried before it.
    """

    async def main() -> None:
        cluster = Cluster(make_node("small", cpu="1"), make_pod("preemptor", cpu="2", priority=10))
        async with scheduling(cluster, [SlowPreBind]) as scheduler:
            cluster.store.create(make_node("n", cpu="2"))
            cluster.store.create(make_pod("victim", cpu="2"))
            await asyncio.sleep(20)
            assert cluster.node_of("preemptor") == "n"
            assert scheduler.context.cache.assumed_count == 0
            assert scheduler.context.queue.find("default/victim") is not None

    run_virtual(main())


def test_a_victim_that_has_given_way_to_another_is_not_deleted() -> None:
    """It was back in the queue, waiting for nothing but another node, when its second eviction began.

    The first preemptor takes it while it is being bound; the second waits for others to be deleted before it
    turns to this one, and for its going, which had been.
    """

    async def main() -> None:
        started = datetime(2025, 1, 1, tzinfo=UTC)
        running = [make_pod(name, cpu="2", node="n", priority=0, started=started) for name in ("w", "y")]
        cluster = Cluster(make_node("n", cpu="6"), *running, make_pod("victim", cpu="2", priority=0))
        cluster.delete_seconds = 5
        async with scheduling(cluster, [SlowPreBind]):
            await asyncio.sleep(0.5)
            cluster.store.create(make_pod("first", cpu="2", priority=20))
            cluster.store.create(make_pod("second", cpu="4", priority=10))
            await asyncio.sleep(30)
            assert [cluster.node_of(name) for name in ("first", "second", "victim")] == ["n", "n", ""]

    run_virtual(main())


def test_a_pod_that_changes_while_it_is_being_bound() -> None:
    """No event reported that another pod's anti-affinity no longer matches it."""

    async def main() -> None:
        apart = make_pod_affinity(anti_required=[make_pod_term(HOSTNAME, {"app": "web"})])
        cluster = Cluster(make_node("n", labels={HOSTNAME: "n"}), make_pod("web", labels={"app": "web"}))
        cluster.bind_seconds = 1
        async with scheduling(cluster):
            cluster.store.create(make_pod("shy", affinity=apart))
            await asyncio.sleep(0.5)
            web = cluster.store.get(Pod, "web", "default")
            cluster.store.update(replace(web, metadata=replace(web.metadata, labels={"app": "batch"})))
            await asyncio.sleep(20)
            assert [cluster.node_of("web"), cluster.node_of("shy")] == ["n", "n"]

    run_virtual(main())


def test_a_pod_that_another_client_binds_elsewhere() -> None:
    """What it had been given here was free, without an event."""

    async def main() -> None:
        cluster = Cluster(make_node("n", pods=1), make_pod("p"))
        cluster.bind_seconds = 1
        async with scheduling(cluster):
            cluster.store.create(make_pod("q"))
            await asyncio.sleep(0.5)
            cluster.store.bind("p", "default", "elsewhere")
            await asyncio.sleep(20)
            assert [cluster.node_of("p"), cluster.node_of("q")] == ["elsewhere", "n"]

    run_virtual(main())
