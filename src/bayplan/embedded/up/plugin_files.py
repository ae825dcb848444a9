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
from bayplan.files import stamp
from bayplan.framework.plugin_api import Plugin

POLL_SECONDS: Final = 0.5

Loaded = tuple[KubeSchedulerConfiguration | None, tuple[type[Plugin], ...]]
"""A configuration and the plugins that it uses."""

_log = logging.getLogger(__name__)


class WatchedPlugins:
    """Files with plugins, and how to load them again."""

    def __init__(self, paths: Sequence[Path], load: Callable[[], Loaded]) -> None:
        self._load = load
        self._stamps = {path: stamp(path) for path in paths}

    async def watch(self, use: Callable[[Loaded], None]) -> None:
        """Passes each new version to `use`, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check(use)

    def check(self, use: Callable[[Loaded], None]) -> None:
        """Loads the plugins again if a file has changed."""
        changed = []
        for path, before in self._stamps.items():
            now = stamp(path)
            # An editor may have removed it for a moment.
            if now and now != before:
                self._stamps[path] = now
                changed.append(path.name)
        if not changed:
            return
        try:
            use(self._load())
        except BayplanError as error:
            _log.warning("%s: the plugin is kept as it was: %s", ", ".join(changed), error)
            return
        _log.warning("%s: the plugin was loaded again", ", ".join(changed))
