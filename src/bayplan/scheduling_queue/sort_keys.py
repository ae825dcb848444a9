"""Sort keys of a QueueSort plugin that may fail.

A key that cannot be computed or compared must not stop the queue. Keys of plugins that are not built in are
therefore wrapped: pods whose key is unusable come last, in the order in which they entered the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import SortKey
from bayplan.framework.status import describe, traceback_of, wrong_result
from bayplan.runtime.profile import Profile

_log = logging.getLogger(__name__)


def sort_key_of(profile: Profile) -> Callable[[Pod, float], SortKey]:
    """The function that orders the active queue: the plugin's own, if it is built in."""
    step = profile.queue_sorts[0]
    return step.plugin.sort_key if step.built_in else _CheckedKeys(profile)


class _CheckedKeys:
    """Keys as tuples: (0, key), or (1, timestamp) if the key is unusable."""

    def __init__(self, profile: Profile) -> None:
        self._step = profile.queue_sorts[0]
        self._failures = profile.failures
        self._usable: SortKey | None = None
        """The last usable key: others must be comparable with it."""

    def __call__(self, pod: Pod, timestamp: float) -> SortKey:
        step = self._step
        try:
            key: SortKey | None = step.plugin.sort_key(pod, timestamp)
            if key is None:
                raise wrong_result("sort_key", key, "return a number, a string, or a tuple of these")
            other = key if self._usable is None else self._usable
            _ = (key < other, other < key)
        except Exception as error:
            text = f'running QueueSort plugin "{step.name}": {describe(error, step.plugin)}'
            self._failures.log(_log, f"pod {pod.key} is queued last: {text}", traceback_of(error))
            return (1, timestamp)
        self._usable = key
        return (0, key)
