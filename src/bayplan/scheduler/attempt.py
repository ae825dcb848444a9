"""A pod on its way to the node that was found for it, and what plugins on the way may say.

A plugin answers with None or success and the pod goes on, with a rejection (`RejectedError`), or with
anything else, which means that the attempt broke (`AttemptError`). The texts are upstream's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.calls import AttemptError, describe
from bayplan.framework.framework import Framework
from bayplan.framework.points import Point
from bayplan.framework.search import Search
from bayplan.framework.status import Code, Status
from bayplan.queue.queued import QueuedPod
from bayplan.scheduler.waiting import PreBinding, WaitingPod

PRE_FLIGHT: Final = "PreBindPreFlight"

_LATE: Final = (Point.PRE_BIND, Point.BIND)
"""Points at which nobody waits for the pod any more: no event could help it."""


@dataclass(slots=True)
class Attempt:
    """A pod on its way to a node."""

    info: QueuedPod
    pod: Pod
    framework: Framework
    search: Search
    node_name: str
    started: float
    """By the loop's clock, when its scheduling cycle began."""
    waiting: WaitingPod | None = None
    idle_pre_binds: set[str] = field(default_factory=set)
    """PreBind plugins that have nothing to do for this pod."""
    pre_binding: PreBinding | None = None
    """Set while PreBind plugins are at work."""
    at_work: list[asyncio.Task[None]] = field(default_factory=list)
    """These."""

    def plugins(self, point: Point) -> tuple[Any, ...]:
        return self.framework.profile.plugins[point]

    @property
    def placed(self) -> Pod:
        """The pod as it would be with its node."""
        return replace(self.pod, spec=replace(self.pod.spec, node_name=self.node_name))


class RejectedError(BayplanError):
    """A plugin turned the pod away after a node had been found.

    `late`: when the pod was no longer waited for. That is told as a rejection, but the pod comes back like
    one whose attempt broke.
    """

    def __init__(self, status: Status, *, late: bool = False) -> None:
        super().__init__(status.message)
        self.status = status
        self.late = late


def check(plugin: Any, point: Point, answer: object) -> None:
    """Raises where the answer does not let the pod go on."""
    if answer is None:
        return
    if not isinstance(answer, Status):
        raise broken(plugin, point, f"{point} gave {answer!r}")
    if answer.is_success:
        return
    if answer.is_rejection:
        raise RejectedError(answer.by(plugin.name), late=point in _LATE)
    raise broken(plugin, point, answer.message or f"{point} gave {answer.code.label}")


def broken(plugin: Any, point: str, problem: str | Exception) -> AttemptError:
    """The attempt broke at a plugin."""
    text = describe(problem) if isinstance(problem, Exception) else problem
    kind = "" if point == PRE_FLIGHT else "plugin "
    return AttemptError(f'running {point} {kind}"{plugin.name}": {text}', plugin.name)


def code_of(error: RejectedError | AttemptError) -> Code:
    return error.status.code if isinstance(error, RejectedError) else Code.ERROR
