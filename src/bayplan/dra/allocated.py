"""The devices that are allocated to claims, as a whole or shared, and how much of their capacity is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from bayplan.api.devices import AllocationResult, DeviceRequestAllocationResult
from bayplan.api.quantity import parse_quantity
from bayplan.api.release import DeviceFeatures
from bayplan.api.releases import DEFAULT_DEVICE_FEATURES
from bayplan.clock import Clock, Topic
from bayplan.dra.pools import DeviceKey, PoolKey

_NOTHING: Final[Mapping[str, int]] = {}


class AllocatedState:
    """The allocations of all claims, those that are about to be written included.

    A claim is identified by its uid; `put` replaces its earlier allocation.
    """

    __slots__ = (
        "_changed",
        "_claims",
        "_clock",
        "_consumers",
        "_features",
        "_pools",
        "shared",
        "taken",
        "used_capacity",
    )

    def __init__(
        self,
        features: DeviceFeatures = DEFAULT_DEVICE_FEATURES,
        clock: Clock | None = None,
        changed: Callable[[PoolKey], None] | None = None,
    ) -> None:
        self._features = features
        self._clock = Clock() if clock is None else clock
        self._changed = changed
        self._claims: dict[str, tuple[str, AllocationResult]] = {}
        self._consumers: dict[DeviceKey, int] = {}
        self._pools: dict[PoolKey, Topic] = {}
        self.taken: dict[DeviceKey, dict[str, int]] = {}
        """Devices that are allocated as a whole, with the uids of their claims."""
        self.shared: dict[DeviceKey, dict[str, int]] = {}
        """Devices of which claims have a share, with their uids and the number of shares."""
        self.used_capacity: dict[DeviceKey, dict[str, int]] = {}
        """Capacity that shares consume, in nano units."""

    def put(self, uid: str, name: str, allocation: AllocationResult | None) -> None:
        """Sets the allocation of a claim (`namespace/name`), or removes it."""
        known = self._claims.get(uid)
        if known is not None and known[1] is allocation:
            return
        if known is not None and allocation is not None and known[1].devices == allocation.devices:
            self._claims[uid] = name, allocation
            return
        self.remove(uid)
        if allocation is not None:
            self._claims[uid] = name, allocation
            self._count(uid, allocation, 1)

    def remove(self, uid: str) -> None:
        """Removes a claim that was deallocated or deleted."""
        known = self._claims.pop(uid, None)
        if known is not None:
            self._count(uid, known[1], -1)

    def uids(self) -> Iterable[str]:
        """Of all claims with an allocation."""
        return self._claims.keys()

    def holders(self, key: DeviceKey) -> tuple[str, ...]:
        """The claims (`namespace/name`) with the device, as a whole or a share of it."""
        uids = (*self.taken.get(key, ()), *self.shared.get(key, ()))
        return tuple(self._claims[uid][0] for uid in uids)

    def is_taken(self, key: DeviceKey) -> bool:
        return key in self.taken

    def is_in_use(self, key: DeviceKey) -> bool:
        return key in self.taken or key in self.shared or key in self.used_capacity

    def taken_among(self, keys: Sequence[DeviceKey]) -> bytes | None:
        """For each of the devices whether it is taken as a whole; None if claims have shares of some."""
        if self.shared and not self.shared.keys().isdisjoint(keys):
            return None
        return bytes(map(self.taken.__contains__, keys))

    def used(self, key: DeviceKey) -> Mapping[str, int]:
        """The capacity of a device that is used, by name."""
        return self.used_capacity.get(key, _NOTHING)

    def pool(self, key: PoolKey) -> Topic:
        """Changes whenever the use of devices of the pool does."""
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Topic(self._clock)
        return found

    def _count(self, uid: str, allocation: AllocationResult, by: int) -> None:
        pools: set[PoolKey] = set()
        for result in allocation.devices.results:
            if result.admin_access:
                continue  # Access for administrators does not count as use of a device.
            key = result.driver, result.pool, result.device
            pools.add((result.driver, result.pool))
            if result.share_id is None or not self._features.consumable_capacity:
                _add(self.taken, key, uid, by)
                continue
            _add(self.shared, key, uid, by)
            if result.consumed_capacity is not None:
                self._consume(key, result, by)
        for pool in pools:
            if pool in self._pools:
                self._pools[pool].change()
            if self._changed is not None:
                self._changed(pool)

    def _consume(self, key: DeviceKey, result: DeviceRequestAllocationResult, by: int) -> None:
        used = self.used_capacity.setdefault(key, {})
        for name, quantity in (result.consumed_capacity or {}).items():
            used[name] = used.get(name, 0) + by * parse_quantity(quantity)
        left = self._consumers[key] = self._consumers.get(key, 0) + by
        if not left:
            del self.used_capacity[key], self._consumers[key]


def _add(holders: dict[DeviceKey, dict[str, int]], key: DeviceKey, uid: str, by: int) -> None:
    counts = holders.setdefault(key, {})
    left = counts.get(uid, 0) + by
    if left:
        counts[uid] = left
    else:
        del counts[uid]
        if not counts:
            del holders[key]
