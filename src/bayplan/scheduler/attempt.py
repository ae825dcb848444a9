"""A pod on its way to the node that was found for it, and what plugins on the way may say.

A plugin answers with None or success and the pod goes on, with a rejection (`RejectedError`), or with
anything else, which means that the attempt broke (`AttemptError`). The texts are upstream's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import PreBindPlugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status
from bayplan.queue.queued import QueuedPod
from bayplan.runtime.calls import AttemptError, describe
from bayplan.runtime.profile import PointStep, Profile
from bayplan.runtime.search import Search
from bayplan.runtime.timing import AttemptTimer
from bayplan.scheduler.observing import PRE_FLIGHT, ExtensionPointMetrics
from bayplan.scheduler.waiting import PreBinding, WaitingPod

_LATE: Final = (Point.PRE_BIND, Point.BIND)
"""Points at which nobody waits for the pod any more: no event could help it."""


@dataclass(slots=True)
class Attempt:
    """A pod on its way to a node."""

    info: QueuedPod
    pod: Pod
    profile: Profile
    search: Search
    node_name: str
    started: float
    """By the loop's clock, when its scheduling cycle began."""
    points: ExtensionPointMetrics | None = None
    """For the extension points that are measured in every attempt; None where nothing is measured."""
    timer: AttemptTimer | None = None
    """Measures the others, if this attempt is sampled."""
    waiting: WaitingPod | None = None
    pre_binds: Collection[PointStep[PreBindPlugin]] = ()
    """PreBind plugins that have something to do for this pod."""
    pre_binding: PreBinding | None = None
    """Set while they are at work."""
    at_work: Collection[asyncio.Task[None]] = ()
    """Those that work side by side right now."""

    def started_point(self) -> None:
        """The plugins of an extension point are about to run."""
        if self.timer is not None:
            self.timer.start()

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        """The plugins of an extension point have run, with this result."""
        if self.timer is not None:
            self.timer.passed(point, code)

    @property
    def assigned_pod(self) -> Pod:
        """The pod as it would be with its node."""
        return replace(self.pod, spec=replace(self.pod.spec, node_name=self.node_name))


class RejectedError(BayplanError):
    """A plugin turned the pod away after a node had been found, at some point or while the pod waited.

    `late`: when the pod was no longer waited for. That is told as a rejection, but the pod comes back like
    one whose attempt broke.
    """

    def __init__(self, status: Status, point: str = "") -> None:
        super().__init__(status.message)
        self.status = status
        self.point = point

    @property
    def late(self) -> bool:
        return self.point in _LATE


class NoBinderError(AttemptError):
    """All Bind plugins left the pod to somebody else. Nobody broke, and nobody has anything to say."""

    def __init__(self) -> None:
        super().__init__("", point=Point.BIND)


def check(plugin: str, point: Point, answer: object) -> None:
    """Raises where the answer does not let the pod go on."""
    if answer is None:
        return
    if not isinstance(answer, Status):
        raise plugin_error(plugin, point, f"{point} gave {answer!r}")
    if answer.is_success:
        return
    if answer.is_rejection:
        raise RejectedError(answer.by(plugin), point)
    raise plugin_error(plugin, point, answer.message or f"{point} gave {answer.code.label}")


def plugin_error(plugin: str, point: str, problem: str | Exception) -> AttemptError:
    """The attempt broke at a plugin."""
    text = describe(problem) if isinstance(problem, Exception) else problem
    kind = "" if point == PRE_FLIGHT else "plugin "
    return AttemptError(f'running {point} {kind}"{plugin}": {text}', plugin, point)


def code_of(error: RejectedError | AttemptError) -> Code:
    """What came of the point at which an attempt ended."""
    if isinstance(error, RejectedError):
        return error.status.code
    return Code.SKIP if isinstance(error, NoBinderError) else Code.ERROR
