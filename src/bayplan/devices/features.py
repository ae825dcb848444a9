"""Feature gates that the allocator knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Which parts of the device API are on; the defaults are those of kube-scheduler v1.36."""

    prioritized_list: bool = True
    """DRAPrioritizedList: requests with alternatives (firstAvailable)."""
    partitionable_devices: bool = True
    """DRAPartitionableDevices: shared counters and node selection by device."""
    consumable_capacity: bool = True
    """DRAConsumableCapacity: devices that are allocated several times, and requests for capacity."""
    device_taints: bool = True
    """DRADeviceTaints."""
    binding_conditions: bool = True
    """DRADeviceBindingConditions and DRAResourceClaimDeviceStatus, which it needs."""


DEFAULT_FEATURES = Features()
