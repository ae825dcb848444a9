"""A pod between decision and binding, and the results of plugins on that path.

If a plugin returns None or success, the attempt continues; a rejection raises `RejectedError`, anything else
`AttemptError`. The texts are upstream's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import PreBindPlugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status, describe, wrong_result
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.profile import METHODS, PointStep, Profile
from bayplan.runtime.search import Search
from bayplan.runtime.timing import AttemptTimer, PointObserver
from bayplan.scheduler.observing import PRE_FLIGHT
from bayplan.scheduler.waiting import PreBinding, WaitingPod
from bayplan.scheduling_queue.queued import QueuedPod

_LATE: Final = (Point.PRE_BIND, Point.BIND)
"""Points after which no event can requeue the pod."""


class Attempt(msgspec.Struct, eq=False):
    """A pod between decision and binding."""

    info: QueuedPod
    pod: Pod
    profile: Profile
    search: Search
    node_name: str
    started: float
    """By the loop's clock, when its scheduling cycle began."""
    points: PointObserver | None = None
    """Measures the extension points that are measured in every attempt; None if metrics are off."""
    timer: AttemptTimer | None = None
    """Measures the others, if this attempt is sampled."""
    waiting: WaitingPod | None = None
    pre_binds: Collection[PointStep[PreBindPlugin]] = ()
    """PreBind plugins that have work to do for this pod."""
    pre_binding: PreBinding | None = None
    """Set while they run."""
    running_tasks: Sequence[asyncio.Task[None]] = ()
    """PreBind plugins that are running now, in parallel. Those that finish without waiting have no task."""

    @property
    def assigned_pod(self) -> Pod:
        """The pod with its node."""
        return replace(self.pod, spec=replace(self.pod.spec, node_name=self.node_name))


class RejectedError(BayplanError):
    """A plugin rejected the pod after a node had been found, at an extension point or while the pod waited.

    `late`: at PreBind or Bind. That is reported as a rejection, but the pod is requeued as after an error.
    """

    def __init__(self, status: Status, point: str = "") -> None:
        super().__init__(status.message)
        self.status = status
        self.point = point

    @property
    def late(self) -> bool:
        return self.point in _LATE


class NoBinderError(AttemptError):
    """All Bind plugins returned SKIP. No plugin is to blame, and there is no message."""

    def __init__(self) -> None:
        super().__init__("", point=Point.BIND)


def check(step: PointStep[Any], point: Point, answer: object) -> None:
    """Raises if the answer ends the attempt."""
    if answer is None:
        return
    if not isinstance(answer, Status):
        method, more = METHODS[point], " or Wait(seconds)" if point is Point.PERMIT else ""
        expected = f'return None, unschedulable("reason"), failure("text"){more}'
        raise plugin_error(step, point, wrong_result(method, answer, expected))
    if answer.is_success:
        return
    if answer.is_rejection:
        raise RejectedError(answer.by(step.name), point)
    raise plugin_error(step, point, answer.message or f"{point} gave {answer.code.label}")


def plugin_error(step: PointStep[Any], point: str, problem: str | Exception) -> AttemptError:
    """The attempt failed because of a plugin."""
    text = describe(problem, step.plugin) if isinstance(problem, Exception) else problem
    kind = "" if point == PRE_FLIGHT else "plugin "
    return AttemptError(f'running {point} {kind}"{step.name}": {text}', step.name, point)


def code_of(error: RejectedError | AttemptError) -> Code:
    """The result code of the point at which an attempt ended."""
    if isinstance(error, RejectedError):
        return error.status.code
    return Code.SKIP if isinstance(error, NoBinderError) else Code.ERROR
