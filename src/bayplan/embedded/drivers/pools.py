"""What a pool of devices consists of: its slices, without generation and number, in order."""

from __future__ import annotations

from typing import Any, Final

from bayplan.embedded.drivers.device_file import Driver, expanded
from bayplan.embedded.server.validation.device_slices import MAX_DEVICES, MAX_SPECIAL_DEVICES

Content = dict[str, Any]

_MAX_COUNTER_SETS: Final = 8


def pool_slices(driver: Driver, node: str) -> list[Content]:
    """The specs of a pool's slices; `node` is empty for the pool of the whole cluster.

    Counter sets and devices never share a slice.
    """
    place = {"nodeName": node} if node else {"allNodes": True}
    counters = expanded(driver.shared_counters, node)
    devices = expanded(driver.devices, node)
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = MAX_SPECIAL_DEVICES if special else MAX_DEVICES
    specs = [
        {"driver": driver.name, **place, "sharedCounters": part}
        for part in _parts(counters, _MAX_COUNTER_SETS)
    ]
    specs += [{"driver": driver.name, **place, "devices": part} for part in _parts(devices, limit)]
    return specs or [{"driver": driver.name, **place}]


def _parts(items: list[Content], size: int) -> list[list[Content]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def with_taint_times(spec: Content, old: Content) -> Content:
    """A spec whose taints keep their timeAdded."""
    known = {
        (device["name"], taint.get("key"), taint.get("value"), taint.get("effect")): taint.get("timeAdded")
        for device in old.get("devices") or ()
        for taint in device.get("taints") or ()
    }
    devices = []
    for device in spec.get("devices") or ():
        taints = []
        for taint in device.get("taints") or ():
            same = (device["name"], taint.get("key"), taint.get("value"), taint.get("effect"))
            time = taint.get("timeAdded") or known.get(same)
            taints.append({**taint, "timeAdded": time} if time else taint)
        devices.append({**device, "taints": taints} if taints else device)
    return {**spec, "devices": devices} if devices else spec
