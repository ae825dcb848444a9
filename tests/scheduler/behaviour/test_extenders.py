"""A cycle that waits for an extender: time passes, but the cluster does not change meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.errors import ConflictError
from bayplan.framework.status import unschedulable
from bayplan.runtime.search import (
    FilterRequest,
    FilterResponse,
    PreemptRequest,
    PreemptResponse,
    PrioritizeResponse,
)
from bayplan.scheduler.loop import Scheduler
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, running, virtual


class SlowExtenders:
    """In place of webhooks: they accept everything after a while, and check the scheduler meanwhile."""

    filters_or_prioritizes = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 5.0) -> None:
        monkeypatch.setattr("bayplan.scheduler.loop.make_extenders", lambda *_: self)
        self.scheduler: Scheduler | None = None
        self.changes: list[tuple[Any, Any]] = []
        """The state of the scheduler before and after each call, where it differs."""
        self._seconds = seconds

    async def answer(self, request: object) -> object:
        before = self._known()
        await asyncio.sleep(self._seconds)
        after = self._known()
        if before != after:
            self.changes.append((before, after))
        match request:
            case FilterRequest():
                return FilterResponse(tuple(request.node_names))
            case PreemptRequest():
                return PreemptResponse(tuple(request.candidates))
        return PrioritizeResponse()

    async def bind(self, pod: Pod, node_name: str) -> bool:
        return False

    async def close(self) -> None: ...

    def _known(self) -> object:
        if self.scheduler is None:
            return None
        cache = self.scheduler.context.cache
        return cache.pod_count, cache.assumed_count, cache.node_count, dict(cache.cluster.nominated)


@virtual
async def test_events_wait_for_the_end_of_the_cycle_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    extenders = SlowExtenders(monkeypatch)
    async with running(make_node("n")) as world:
        extenders.scheduler = world.scheduler
        await world.create(make_pod("p"))
        await world.create(make_node("m"), make_pod("other", node="n"))
        await world.update_node(make_node("n", unschedulable=True))
        await world.create(make_pod("q"))
        await world.after(60)
        assert extenders.changes == []
        assert (world.node_of("p"), world.node_of("q")) == ("n", "m")
        assert world.counted("other") == "n"


@virtual
async def test_a_binding_that_fails_meanwhile_is_taken_back_after_the_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extenders = SlowExtenders(monkeypatch)
    async with running(make_node("n", cpu="4")) as world:
        extenders.scheduler = world.scheduler
        world.cluster.will_answer("bind", Answer(ConflictError("no"), seconds=7))
        await world.create(make_pod("p", cpu="3"), *(make_pod(f"q{i}", cpu="100m") for i in range(5)))
        await world.after(100)
        assert extenders.changes == []
        assert {world.node_of(name) for name in world.names()} == {"n"}


@virtual
async def test_a_preemption_that_is_given_up_meanwhile_brings_the_pod_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extenders = SlowExtenders(monkeypatch)
    victim = make_pod("victim", cpu="3", node="n", priority=0)
    async with running(make_node("n", cpu="4"), make_node("m", cpu="1"), victim) as world:
        extenders.scheduler = world.scheduler
        world.cluster.will_answer("delete", Answer(ConflictError("no"), seconds=7))
        await world.create(make_pod("p", cpu="3", priority=9))
        await world.create(*(make_pod(f"q{i}", cpu="100m") for i in range(5)))
        await world.after(200)
        assert extenders.changes == []
        assert world.node_of("p") == "n"


@virtual
async def test_a_filtering_extender_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    extenders = SlowExtenders(monkeypatch)
    broken = [FilterResponse(error="the webhook is down")]

    async def answer(request: object) -> object:
        return broken.pop() if broken else FilterResponse(("n",))

    monkeypatch.setattr(extenders, "answer", answer)
    async with running(make_node("n"), make_pod("p")) as world:
        assert world.condition("p") == ("False", "SchedulerError", "the webhook is down")
        assert world.sub_queue("p") == "backoff"
        await world.after(2)
        assert world.node_of("p") == "n"


@virtual
async def test_a_pod_that_extenders_reject_is_requeued_by_any_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extenders = SlowExtenders(monkeypatch)
    rejects = True

    async def answer(request: object) -> object:
        if not isinstance(request, FilterRequest):
            return PrioritizeResponse()
        if rejects:
            return FilterResponse((), {"n": unschedulable("too loud")}, removed=True)
        return FilterResponse(tuple(request.node_names))

    monkeypatch.setattr(extenders, "answer", answer)
    async with running(make_node("n"), make_pod("p")) as world:
        assert world.message("p").startswith("0/1 nodes are available: 1 too loud. ")
        assert world.sub_queue("p") == "unschedulable"
        rejects = False
        await world.update_node(make_node("n", labels={"a": "b"}))
        assert world.node_of("p") == "n"
