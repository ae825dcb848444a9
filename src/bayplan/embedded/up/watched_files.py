"""The files of `--devices` and `--plugin --reload`, which are read again whenever they change.

A new version is loaded completely before anything changes. If that fails, the failure is reported, and the
version before stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from bayplan.config import KubeSchedulerConfiguration
from bayplan.embedded.drivers import DeviceDrivers, read_devices
from bayplan.errors import BayplanError, DecodeError
from bayplan.files import stamp
from bayplan.framework.plugin_api import Plugin

POLL_SECONDS: Final = 0.5

Loaded = tuple[KubeSchedulerConfiguration | None, tuple[type[Plugin], ...]]
"""A configuration and the plugins that it uses."""

_UserT = TypeVar("_UserT")

_log = logging.getLogger(__name__)


class _WatchedFiles(ABC, Generic[_UserT]):
    """Files, and what uses their content."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._stamps = {path: stamp(path) for path in paths}

    async def watch(self, user: _UserT) -> None:
        """Gives each new version to its user, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check(user)

    def check(self, user: _UserT) -> None:
        """Loads the files again if one has changed."""
        changed = []
        for path, before in self._stamps.items():
            now = stamp(path)
            # An editor may have removed it for a moment.
            if now and now != before:
                self._stamps[path] = now
                changed.append(path.name)
        if changed:
            self._load_again(user, ", ".join(changed))

    @abstractmethod
    def _load_again(self, user: _UserT, changed: str) -> None: ...


class WatchedDevices(_WatchedFiles[DeviceDrivers]):
    """A file of devices.

    Raises:
        DecodeError: it is not valid.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__((path,))
        self._path = path
        self.devices = read_devices(path)

    def _load_again(self, user: DeviceDrivers, changed: str) -> None:
        try:
            self.devices = read_devices(self._path)
        except (DecodeError, OSError) as error:
            _log.warning("devices are kept as they were: %s", error)
            return
        user.replace(self.devices)


class WatchedPlugins(_WatchedFiles[Callable[[Loaded], None]]):
    """Files with plugins, and how to load them again: the scheduler continues with the new version."""

    def __init__(self, paths: Sequence[Path], load: Callable[[], Loaded]) -> None:
        super().__init__(paths)
        self._load = load

    def _load_again(self, user: Callable[[Loaded], None], changed: str) -> None:
        try:
            user(self._load())
        except BayplanError as error:
            _log.warning("%s: the plugin is kept as it was: %s", changed, error)
            return
        _log.warning("%s: the plugin was loaded again", changed)
