"""Binding conditions: what a driver reports about an allocated device before its pod may be bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bayplan.api.times import seconds_or_1970
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, earliest, with_condition
from bayplan.embedded.drivers.device_file import FAILED, DeviceFile, Driver
from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import RESOURCE_CLAIMS, Resource
from bayplan.embedded.server.validation.device_claims import device_id

_MARKER = b'"bindingConditions"'


class BindingConditions(Controller):
    """Sets the binding conditions of allocated devices, or the failure conditions, after the file's delay."""

    name: ClassVar = "device-driver"

    def __init__(self, cluster: Cluster, devices: DeviceFile) -> None:
        super().__init__(cluster)
        self.devices = devices

    def watches(self) -> dict[Resource, KeyMapper]:
        return {RESOURCE_CLAIMS: self._claim}

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        return (change.key,) if change.after is not None and _MARKER in change.after.body else ()

    def reconcile(self, key: str) -> float | None:
        claim = self.cluster.find(RESOURCE_CLAIMS, key)
        allocation = ((claim or {}).get("status") or {}).get("allocation")
        if claim is None or not allocation:
            return None
        waits = []
        for result in (allocation.get("devices") or {}).get("results") or ():
            driver = self.devices.driver(result["driver"])
            if driver is not None and result.get("bindingConditions"):
                since = seconds_or_1970(allocation.get("allocationTimestamp") or self.api.now())
                left = since + driver.binding_seconds - self.api.time()
                if left > 0:
                    waits.append(left)
                else:
                    self._report(claim, result, driver)
        if claim != self.cluster.find(RESOURCE_CLAIMS, key):
            self.api.update(RESOURCE_CLAIMS, claim, subresource="status")
        return earliest(*waits)

    def _report(self, claim: Content, result: Content, driver: Driver) -> None:
        """Writes the conditions of one device into the status of a claim."""
        devices = claim["status"].setdefault("devices", [])
        entry = next((each for each in devices if device_id(each) == device_id(result)), None)
        if entry is None:
            names = ("driver", "pool", "device", "shareID")
            entry = {name: result[name] for name in names if name in result}
            devices.append(entry)
        failed = driver.binding_result == FAILED
        kinds = result["bindingFailureConditions"][:1] if failed else result["bindingConditions"]
        for kind in kinds:
            reason = "SimulatedFailure" if failed else "Simulated"
            message = f"{driver.name} {'could not prepare' if failed else 'has prepared'} {result['device']}"
            entry["conditions"] = with_condition(
                entry.get("conditions"), kind, "True", reason, message, self.api.now()
            )
