"""The files of `--plugin`, with `--reload`: when one changes, the scheduler continues with the new plugin.

The new version is loaded and the configuration is built with it before anything changes. If that fails, the
old plugin stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bayplan.config import KubeSchedulerConfiguration
from bayplan.errors import BayplanError
from bayplan.framework.plugin_api import Plugin

POLL_SECONDS: Final = 0.5

Loaded = tuple[KubeSchedulerConfiguration | None, tuple[type[Plugin], ...]]
"""A configuration and the plugins that it uses."""

_State = tuple[int, int, int]

_log = logging.getLogger(__name__)


class WatchedPlugins:
    """Files with plugins, and how to load them again."""

    def __init__(self, paths: Sequence[Path], load: Callable[[], Loaded]) -> None:
        self._load = load
        self._states = {path: _state(path) for path in paths}

    async def watch(self, use: Callable[[Loaded], None]) -> None:
        """Passes each new version to `use`, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check(use)

    def check(self, use: Callable[[Loaded], None]) -> None:
        """Loads the plugins again if a file has changed."""
        changed = []
        for path, before in self._states.items():
            now = _state(path)
            # An editor may have removed it for a moment.
            if now is not None and now != before:
                self._states[path] = now
                changed.append(path.name)
        if not changed:
            return
        try:
            use(self._load())
        except BayplanError as error:
            _log.warning("%s: the plugin is kept as it was: %s", ", ".join(changed), error)
            return
        _log.warning("%s: the plugin was loaded again", ", ".join(changed))


def _state(path: Path) -> _State | None:
    """What tells two versions of a file apart; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
