"""Logs which pod and which plugin blocks the scheduler.

A cycle runs to its end before anything else does, so a plugin that computes for minutes stops everything; a
PreBind that blocks instead of awaiting does, too. Timing each call of a plugin would cost more than most
calls take. Instead a thread samples what the loop is doing: a cycle, or a call of a plugin, that is still the
same after a second is logged, while it runs, with the plugin and the line. It costs the loop two assignments
per pod.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from types import FrameType
from typing import Final, Self

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin

CYCLE_BUDGET_SECONDS: Final = 1.0
POLLS_PER_BUDGET: Final = 4

_log = logging.getLogger(__name__)


class Watchdog:
    """Watches the thread in which it is entered, unless `seconds` is 0.

    `pod` is the pod whose scheduling cycle is running,
    None between cycles and while one waits for an extender.
    """

    __slots__ = ("_seconds", "_stopped", "_thread", "_watched", "pod")

    def __init__(self, seconds: float = CYCLE_BUDGET_SECONDS) -> None:
        self.pod: Pod | None = None
        self._seconds = seconds
        self._stopped = threading.Event()
        self._watched = 0
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._watched = threading.get_ident()
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._seconds:
            self._thread.join()

    def _watch(self) -> None:
        before: Pod | FrameType | None = None
        times_seen = 0
        while not self._stopped.wait(self._seconds / POLLS_PER_BUDGET):
            pod, stack = self.pod, sys._current_frames().get(self._watched)
            # The frame itself, not its id: that of a call that has ended may be used again.
            now = pod if pod is not None else _outermost_call(stack)
            times_seen = times_seen + 1 if now is before else 0
            before = now
            if now is None or times_seen != POLLS_PER_BUDGET:
                continue
            where = _plugin_on_stack(stack)
            if pod is not None:
                _log.warning(
                    "scheduling pod %s takes longer than %g s, now in %s", pod.key, self._seconds, where
                )
            else:
                _log.warning(
                    "the scheduler has been blocked for more than %g s, now in %s", self._seconds, where
                )


def _outermost_call(frame: FrameType | None) -> FrameType | None:
    """The call of a plugin that is running, if any."""
    found = None
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), Plugin):
            found = frame
        frame = frame.f_back
    return found


def _plugin_on_stack(frame: FrameType | None) -> str:
    """The innermost method of a plugin that is running: `filter of plugin NodeName (node_name.py:12)`."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Plugin):
            file = os.path.basename(frame.f_code.co_filename)
            return f"{frame.f_code.co_name} of plugin {owner.name} ({file}:{frame.f_lineno})"
        frame = frame.f_back
    return "no plugin"
