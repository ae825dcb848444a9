"""The device rules of a Kubernetes release, and the feature gates that are on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from bayplan.api.releases import DEFAULT_RELEASE, DeviceRules, Release


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Which parts of the device API are on, and the rules of the release; made by `device_features`.

    Compared by identity, because results for devices are cached by it.
    """

    rules: DeviceRules
    prioritized_list: bool
    """DRAPrioritizedList: requests with alternatives (firstAvailable)."""
    partitionable_devices: bool
    """DRAPartitionableDevices: shared counters and node selection by device."""
    consumable_capacity: bool
    """DRAConsumableCapacity: devices that are allocated several times, and requests for capacity."""
    fractional_ranges: bool
    """DRAFractionalCapacityRange: requested capacity is rounded in thousandths."""
    device_taints: bool
    """DRADeviceTaints."""
    taint_rules: bool
    """DRADeviceTaintRules."""
    binding_conditions: bool
    """DRADeviceBindingConditions and DRAResourceClaimDeviceStatus, which it needs."""


def device_features(release: Release) -> Features:
    """The features of a release with its gates as they are set; the same object for the same release."""
    return _features(release.devices, release.gates)


@lru_cache(maxsize=16)
def _features(rules: DeviceRules, gates: frozenset[str]) -> Features:
    return Features(
        rules=rules,
        prioritized_list="DRAPrioritizedList" in gates,
        partitionable_devices="DRAPartitionableDevices" in gates,
        consumable_capacity="DRAConsumableCapacity" in gates,
        fractional_ranges="DRAFractionalCapacityRange" in gates,
        device_taints="DRADeviceTaints" in gates,
        taint_rules="DRADeviceTaintRules" in gates,
        binding_conditions={"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"} <= gates,
    )


DEFAULT_FEATURES: Final = device_features(DEFAULT_RELEASE)
