"""Pods between decision and binding: those that wait at Permit, and those whose PreBind runs.

A waiting pod has one timer for each plugin that requires it to wait. The first result wins: all plugins allow
it, one rejects it (or its timer expires), or the pod is preempted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bayplan.api.pod import Pod
from bayplan.framework.args import Duration
from bayplan.framework.status import SUCCESS, Code, Status
from bayplan.scheduler.tasks import Parking

REMOVED: Final = "removed"


class WaitingPod:
    """A pod that keeps its assumed node until plugins allow the binding."""

    def __init__(
        self, pod: Pod, node_name: str, seconds: Mapping[str, float], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.pod = pod
        self.node_name = node_name
        self.changed: Callable[[], object] | None = None
        """Called when a plugin has allowed it, and when its result is decided."""
        self._outcome: Parking[Status] = Parking(loop=loop)
        self._timers = {
            plugin: loop.call_later(timeout, self._time_out, plugin, timeout)
            for plugin, timeout in seconds.items()
        }

    @property
    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed it yet."""
        return list(self._timers)

    @property
    def is_decided(self) -> bool:
        return self._outcome.done()

    @property
    def is_rejected(self) -> bool:
        """Whether it will not be bound. It keeps its node until its binding cycle has ended."""
        outcome = self._outcome
        return outcome.done() and (outcome.cancelled() or not outcome.result().is_success)

    @property
    def message(self) -> str:
        """Why it was rejected; empty unless it was, and if the scheduler stops."""
        outcome = self._outcome
        return outcome.result().message if outcome.done() and not outcome.cancelled() else ""

    def allow(self, plugin: str) -> None:
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._decide(SUCCESS)
        elif self.changed is not None:
            self.changed()

    def reject(self, plugin: str, message: str) -> bool:
        """False if the result was already decided."""
        return self._decide(Status(Code.UNSCHEDULABLE, (message,), plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """The pod is preempted. False if the result was already decided."""
        return self._decide(Status(Code.ERROR, (message,), plugin))

    async def outcome(self) -> Status:
        return await self._outcome

    def _time_out(self, plugin: str, timeout: float) -> None:
        waited = Duration.of(timeout)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def _decide(self, status: Status) -> bool:
        if self._outcome.done():
            return False
        for timer in self._timers.values():
            timer.cancel()
        self._outcome.set_result(status)
        if self.changed is not None:
            self.changed()
        return True


class WaitingPods:
    """All waiting pods, of every profile."""

    def __init__(self) -> None:
        self._by_uid: dict[str, WaitingPod] = {}

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> WaitingPod | None:
        return self._by_uid.get(uid)

    def add(self, waiting: WaitingPod) -> None:
        self._by_uid[waiting.pod.uid] = waiting

    def remove(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def reject(self, uid: str) -> bool:
        """Rejects a pod that was deleted. False if it does not wait, or its result was already decided."""
        waiting = self._by_uid.get(uid)
        return waiting is not None and waiting.reject("", REMOVED)


class PreBinding:
    """A pod whose PreBind plugins run: it can still be cancelled until they have finished."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self.cause = ""
        self._done = False

    def cancel(self, message: str) -> bool:
        """False if it is too late."""
        if self._done:
            return False
        if not self.cause:
            self.cause = message
            self._cancel()
        return True

    def finish(self) -> bool:
        """Called when PreBind has finished. False if it was cancelled before."""
        if self.cause:
            return False
        self._done = True
        return True


class BindingStep(Enum):
    WAITING = "waiting at Permit"
    BOUND = "bound"
    REJECTED = "rejected"
    """A plugin rejected the pod."""
    FAILED = "failed"
    """A plugin or the API server failed."""


@dataclass(frozen=True, slots=True)
class BindingProgress:
    """The progress of a pod after a node was found for it, for display (`Observers.progressed`).

    A decision is not a binding: Permit may delay the pod, and Reserve, Permit, PreBind or Bind may reject it.
    """

    pod: Pod
    node_name: str
    step: BindingStep
    point: str = ""
    """The extension point at which it was rejected or failed."""
    plugins: tuple[str, ...] = ()
    """The plugins for which the pod waits at Permit, or the one that rejected it."""
    reason: str = ""
