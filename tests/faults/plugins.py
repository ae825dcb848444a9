"""Plugins that fail, reject and delay pods, and slow extenders.

`requeue_on_any_event` removes upstream's hints, which do not cover everything, so that every pod must be
requeued by every event.
"""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.extender.chain import ExtenderChain
from bayplan.framework.events import Action, Resource, event_with_hint
from bayplan.framework.plugin_api import Handle, Plugin, Wait
from bayplan.framework.state import CycleState
from bayplan.framework.status import SKIP, Status, failure, unschedulable
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.runtime.search import (
    FilterRequest,
    FilterResponse,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
    Request,
)
from bayplan.scheduler.loop import Scheduler

MAX_SECONDS: Final = 4.0


class InjectedError(Exception):
    """The exception of the plugin below."""


class Hazard(Plugin):
    """Rejects no pod for a reason of its own, but fails at random. `rate` is the probability of each of its
    methods.

    Pods that it rejected are requeued when it is `over`: they wait for nothing else.
    """

    name: ClassVar = "Hazard"
    rate: ClassVar = 0.0
    """Set by a subclass, because the scheduler instantiates plugins."""

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._rejected: dict[str, Pod] = {}
        self._is_over = False

    def over(self) -> None:
        """No more failures."""
        self._is_over = True
        assert self.handle is not None
        self.handle.activate(self._rejected.values())

    def _strikes(self, times: float = 1.0) -> bool:
        assert self.handle is not None
        return not self._is_over and self.handle.random.random() < self.rate * times

    def _refuse(self, pod: Pod) -> Status:
        self._rejected[pod.uid] = pod
        return unschedulable("not today")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if self._strikes():
            return self._refuse(pod)
        if self._strikes():
            raise InjectedError("Reserve")
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Must not fail, and does not."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
        if self._strikes():
            return self._refuse(pod)
        if self._strikes():
            raise InjectedError("Permit")
        if self._strikes(2):
            self._rejected[pod.uid] = pod
            self._allow_or_not(pod)
            return Wait(MAX_SECONDS)
        return None

    def _allow_or_not(self, pod: Pod) -> None:
        """Soon, later, or never: then the pod is rejected after its timeout."""
        handle = self.handle
        assert handle is not None

        def decide() -> None:
            waiting = handle.waiting_pod(pod.uid)
            if waiting is not None:
                if handle.random.random() < 0.7:
                    waiting.allow(self.name)
                else:
                    waiting.reject(self.name, "not today")

        handle.call_later(handle.random.random() * 1.5 * MAX_SECONDS, decide)

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if self._strikes(0.3):
            raise InjectedError("PreBindPreFlight")
        return None if self._strikes(4) else SKIP

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        assert self.handle is not None
        await asyncio.sleep(self.handle.random.random() * MAX_SECONDS)
        if self._strikes(3):
            return failure("PreBind")
        if self._strikes(3):
            raise InjectedError("PreBind")
        return None


DEVICE_RESOURCES: Final = (Resource.RESOURCE_CLAIM, Resource.RESOURCE_SLICE, Resource.DEVICE_CLASS)


def requeue_on_any_event(scheduler: Scheduler) -> None:
    """Makes every event requeue every unschedulable pod, except those that wait for their group.

    Coscheduling has to requeue those itself. The general update of a pod requeues none, either: each failed
    attempt makes one, which would make up for any event that was lost.
    """
    hints = scheduler.context.queue.hints
    for plugins in hints._registered.values():
        for name in plugins:
            if name != Coscheduling.name:
                plugins[name] = (
                    event_with_hint(Resource.POD, Action.ALL & ~Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
                    event_with_hint(Resource.NODE, Action.ALL),
                    *(event_with_hint(resource, Action.ALL) for resource in DEVICE_RESOURCES),
                )


class SlowExtender(ExtenderChain):
    """Answers after a delay with everything it was given, or fails."""

    def __init__(self, rng: random.Random, rate: float) -> None:
        super().__init__(())
        self.breaks = True
        self.is_slow = True
        self._rng = rng
        self._rate = rate

    def __bool__(self) -> bool:
        return True

    async def answer(self, request: Request) -> FilterResponse | PrioritizeResponse | PreemptResponse:  # type: ignore[override]
        breaks = self.breaks and self._rng.random() < self._rate
        if self.is_slow and self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.random() * 0.5)
        error = "the extender broke" if breaks else ""
        match request:
            case FilterRequest():
                return FilterResponse(error=error) if error else FilterResponse(tuple(request.node_names))
            case PrioritizeRequest():
                return PrioritizeResponse()
            case PreemptRequest():
                return PreemptResponse(error=error) if error else PreemptResponse(tuple(request.candidates))
