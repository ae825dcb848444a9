"""Simulated DRA drivers: they publish the devices of a file as ResourceSlices, node by node.

    drivers = DeviceDrivers(api, read_devices(Path("gpus.yaml")))
    await drivers.run()                  # until cancelled
    drivers.replace(read_devices(path))  # the file has changed

`device_file.py` is the file, `publishing.py` what is written about its devices.
"""

from __future__ import annotations

from bayplan.embedded.controllers import running
from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.drivers.device_file import DeviceFile, read_devices
from bayplan.embedded.drivers.publishing import BindingConditions, Publisher
from bayplan.embedded.server.objects import ObjectAPI

__all__ = ["DeviceDrivers", "DeviceFile", "read_devices"]


class DeviceDrivers:
    """The drivers of one file."""

    def __init__(self, api: ObjectAPI, devices: DeviceFile) -> None:
        self._cluster = Cluster(api)
        self._publisher = Publisher(self._cluster, devices)
        self._binding = BindingConditions(self._cluster, devices)
        self._loop = running.Loop(self._cluster, [self._publisher, self._binding])

    async def run(self) -> None:
        """Publishes devices until cancelled."""
        await self._loop.run()

    @property
    def is_busy(self) -> bool:
        """Whether devices are still to be published."""
        return self._loop.is_busy

    def replace(self, devices: DeviceFile) -> None:
        """Uses a new version of the file."""
        self._binding.devices = devices
        for key in self._publisher.replace(devices):
            self._loop.add(self._publisher, key)
