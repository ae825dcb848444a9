"""The file of `--devices`, read again whenever it changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from bayplan.embedded.drivers import DeviceDrivers, read_devices
from bayplan.errors import DecodeError

_log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5

_State = tuple[int, int, int]


class WatchedDevices:
    """A file of devices. An invalid version is reported, and the one before stays in force.

    Raises:
        DecodeError: it is not valid.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = self._look()
        self.devices = read_devices(path)

    def _look(self) -> _State | None:
        """What tells two versions of the file apart; None while there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    async def watch(self, drivers: DeviceDrivers) -> None:
        """Gives each new version to the drivers, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check(drivers)

    def check(self, drivers: DeviceDrivers) -> None:
        """Reads the file again if it has changed."""
        state = self._look()
        if state is None or state == self._state:
            return  # an editor may have removed it for a moment
        self._state = state
        try:
            self.devices = read_devices(self._path)
        except (DecodeError, OSError) as error:
            _log.warning("devices are kept as they were: %s", error)
            return
        drivers.replace(self.devices)
