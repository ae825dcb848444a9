"""Claims whose search is long, whatever is pruned."""

from __future__ import annotations

from bayplan.api.devices import Counter, CounterSet, DeviceCounterConsumption, ResourceClaim, ResourceSlice
from bayplan.testing.builders import (
    make_device,
    make_device_request,
    make_resource_claim,
    make_resource_slice,
)

REQUESTS = 8


def hard_slices(node: str, driver: str = "gpu.example.com") -> list[ResourceSlice]:
    """Partitions with much of one counter and little of the other: eight always exceed one of them."""
    limit = Counter(value=REQUESTS * 33 // 2 - 1)
    counters = CounterSet(name="set", counters={"memory": limit, "cores": limit})
    devices = [
        make_device(
            f"d{size:02}",
            consumes_counters=(
                DeviceCounterConsumption(
                    counter_set="set",
                    counters={"memory": Counter(value=size), "cores": Counter(value=33 - size)},
                ),
            ),
        )
        for size in range(1, 33)
    ]
    return [
        make_resource_slice(f"{node}-devices", *devices, driver=driver, pool=node, node=node, slices=2),
        make_resource_slice(
            f"{node}-counters", driver=driver, pool=node, node=node, slices=2, counters=[counters]
        ),
    ]


def hard_claim(name: str = "hard", device_class: str = "gpu") -> ResourceClaim:
    return make_resource_claim(name, *(make_device_request(f"r{i}", device_class) for i in range(REQUESTS)))
