"""Whom the scheduler reports to: the screen of `bayplan up`, the page, recordings, traces, simulations.

Nothing is called where nobody observes. What one attempt calls, in this order: `popped`, `decided`, then
`progressed` as often as its binding gets further. Metrics are not observers: `observing.py` connects them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from bayplan.scheduler.waiting import BindingProgress
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod

if TYPE_CHECKING:
    from bayplan.scheduler.cycle import Decision
    from bayplan.scheduler.group_cycle import GroupDecision

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Observers:
    """The callbacks of a scheduler. Each may be replaced while it runs."""

    popped: Callable[[QueuedPod], None] | None = None
    """Called with every pod before its scheduling cycle."""
    group: Callable[[QueuedGroup, GroupDecision | None], None] | None = None
    """Called before the cycle of a group, and with its decision after it, before its members are reported."""
    decided: Callable[[Decision], None] | None = None
    """Called with every decision, before it is executed."""
    progressed: Callable[[BindingProgress], None] | None = None
    """Called when a pod waits at Permit, is bound, or is rejected after a node was found."""


class Observer(Protocol):
    """Sees what becomes of each pod."""

    def decided(self, decision: Decision) -> None: ...

    def progressed(self, progress: BindingProgress) -> None: ...


def observed_by(observers: Sequence[Observer]) -> Observers:
    """Reports to all of them. One that fails is logged and not called any more: a trace or a recording must
    not fail the scheduling of a pod."""
    return Observers(
        decided=_call_each([one.decided for one in observers]),
        progressed=_call_each([one.progressed for one in observers]),
    )


def _call_each(callbacks: Sequence[Callable[[T], None]]) -> Callable[[T], None] | None:
    working = list(callbacks)

    def call(value: T) -> None:
        for one in tuple(working):
            try:
                one(value)
            except Exception:
                working.remove(one)
                _log.exception("An observer of the scheduler failed, it is not called any more: %r", one)

    return call if working else None
