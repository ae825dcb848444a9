"""The file of `--devices`, read again whenever it changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from bayplan.embedded.drivers import DeviceDrivers, read_devices
from bayplan.errors import DecodeError
from bayplan.files import stamp

_log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5


class WatchedDevices:
    """A file of devices. An invalid version is reported, and the one before stays in force.

    Raises:
        DecodeError: it is not valid.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = stamp(path)
        self.devices = read_devices(path)

    async def watch(self, drivers: DeviceDrivers) -> None:
        """Gives each new version to the drivers, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check(drivers)

    def check(self, drivers: DeviceDrivers) -> None:
        """Reads the file again if it has changed."""
        found = stamp(self._path)
        if not found or found == self._stamp:
            return  # an editor may have removed it for a moment
        self._stamp = found
        try:
            self.devices = read_devices(self._path)
        except (DecodeError, OSError) as error:
            _log.warning("devices are kept as they were: %s", error)
            return
        drivers.replace(self.devices)
