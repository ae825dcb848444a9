"""A pod on its way to the node that was found for it, and what plugins on the way may say.

A plugin answers with None or success and the pod goes on, with a rejection (`RejectedError`), or with
anything else, which means that the attempt broke (`AttemptError`). The texts are upstream's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status
from bayplan.queue.queued import QueuedPod
from bayplan.runtime.calls import AttemptError, describe
from bayplan.runtime.search import Search
from bayplan.runtime.timing import PERMITTED, PluginTimer, last_reading
from bayplan.scheduler.observing import PRE_FLIGHT, MeasuredPoints
from bayplan.scheduler.waiting import PreBinding, WaitingPod

BEFORE_PERMIT: Final = (Point.PRE_FILTER, Point.FILTER, Point.PRE_SCORE, Point.SCORE, Point.RESERVE)

_LATE: Final = (Point.PRE_BIND, Point.BIND)
"""Points at which nobody waits for the pod any more: no event could help it."""


@dataclass(slots=True)
class Attempt:
    """A pod on its way to a node."""

    info: QueuedPod
    pod: Pod
    plugins: Mapping[Point, tuple[Any, ...]]
    """Of its profile."""
    search: Search
    node_name: str
    started: float
    """By the loop's clock, when its scheduling cycle began."""
    points: MeasuredPoints | None = None
    """Told how long extension points take."""
    timer: PluginTimer | None = None
    """Told how long single plugins take, if this attempt is looked at closely."""
    told: tuple[str, ...] = ()
    """Points that were told to `points` already."""
    waiting: WaitingPod | None = None
    pre_binds: Collection[Any] = ()
    """PreBind plugins that have something to do for this pod."""
    pre_binding: PreBinding | None = None
    """Set while they are at work."""
    at_work: Collection[asyncio.Task[None]] = ()
    """Those that work side by side right now."""

    def ended_at(self, point: str, code: Code) -> None:
        """The plugins of a point have answered, and not as they usually do."""
        points, readings = self.points, self.search.readings
        if points is not None and point:
            seconds = None if readings is None else points.clock() - last_reading(readings)
            points.observe(point, code, seconds)
            self.told = (*self.told, point)

    def mark(self, place: int) -> None:
        """Writes down when it was so far, if it is one of the few that are timed, as its plugins then are."""
        if self.timer is not None:
            points, readings = self.points, self.search.readings
            assert points is not None
            assert readings is not None
            readings[place] = points.clock()

    def waits(self) -> None:
        """It has been asked to wait at Permit. What it passed is to be seen meanwhile."""
        self.ended_at(Point.PERMIT, Code.WAIT)
        points, readings = self.points, self.search.readings
        if points is None:
            return
        if readings is not None:
            points.go_on(readings, PERMITTED)
        else:
            points.passed_until(Point.PERMIT, self.search.silent is not None, self.told)
            self.told = (*self.told, *BEFORE_PERMIT)

    def ended(self, point: str = "") -> None:
        """The pod is bound, or it was at this point that it was known that it will not be."""
        points, readings = self.points, self.search.readings
        if points is None:
            return
        if readings is not None:
            points.note(readings)
        else:
            points.passed_until(point, self.search.silent is not None, self.told)

    @property
    def placed(self) -> Pod:
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


class NobodyBindsError(AttemptError):
    """All Bind plugins left the pod to somebody else. Nobody broke, and nobody has anything to say."""

    def __init__(self) -> None:
        super().__init__("", point=Point.BIND)


def check(plugin: Any, point: Point, answer: object) -> None:
    """Raises where the answer does not let the pod go on."""
    if answer is None:
        return
    if not isinstance(answer, Status):
        raise broken(plugin, point, f"{point} gave {answer!r}")
    if answer.is_success:
        return
    if answer.is_rejection:
        raise RejectedError(answer.by(plugin.name), point)
    raise broken(plugin, point, answer.message or f"{point} gave {answer.code.label}")


def broken(plugin: Any, point: str, problem: str | Exception) -> AttemptError:
    """The attempt broke at a plugin."""
    text = describe(problem) if isinstance(problem, Exception) else problem
    kind = "" if point == PRE_FLIGHT else "plugin "
    return AttemptError(f'running {point} {kind}"{plugin.name}": {text}', plugin.name, point)


def code_of(error: RejectedError | AttemptError) -> Code:
    """What came of the point at which an attempt ended."""
    if isinstance(error, RejectedError):
        return error.status.code
    return Code.SKIP if isinstance(error, NobodyBindsError) else Code.ERROR
