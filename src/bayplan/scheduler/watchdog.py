"""Logs which pod and which plugin blocks the scheduler.

A cycle runs to its end before anything else does, so a plugin that computes for minutes stops everything.
Timing each call of a plugin would cost more than most calls take. Instead a thread samples what the loop is
doing: a cycle that is still the same after a second is logged, while it runs, with its pod and the plugin
that is on the stack. It costs the loop two assignments per pod.
"""

from __future__ import annotations

import logging
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
        before: Pod | None = None
        times_seen = 0
        while not self._stopped.wait(self._seconds / POLLS_PER_BUDGET):
            pod = self.pod
            times_seen = times_seen + 1 if pod is before else 0
            before = pod
            if pod is not None and times_seen == POLLS_PER_BUDGET:
                plugin = _plugin_on_stack(sys._current_frames().get(self._watched))
                _log.warning(
                    "scheduling pod %s takes longer than %g s, now in %s", pod.key, self._seconds, plugin
                )


def _plugin_on_stack(frame: FrameType | None) -> str:
    """The innermost method of a plugin that is running: `filter of plugin NodeName`."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Plugin):
            return f"{frame.f_code.co_name} of plugin {owner.name}"
        frame = frame.f_back
    return "no plugin"
