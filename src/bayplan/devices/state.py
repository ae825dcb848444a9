"""Devices and their use in one place, and which nodes have to be searched again after a change."""

from __future__ import annotations

from bayplan.api.devices import ResourceSlice
from bayplan.api.resource_claims import AllocationResult
from bayplan.devices.allocated import AllocatedState
from bayplan.devices.changes import NodeChanges
from bayplan.devices.features import DEFAULT_FEATURES, Features
from bayplan.devices.inventory import Inventory
from bayplan.devices.pools import PoolKey


class DeviceState:
    """An inventory and the allocated state, with one log of changes.

    A search result depends on the node, the specs of the claims, the device classes, and the devices that the
    node sees. `version` goes up when slices or allocations change; `changed_nodes` names the nodes that see
    something else since. Labels of nodes and classes are for the caller to compare.
    """

    __slots__ = ("allocated", "changes", "inventory")

    def __init__(self, features: Features = DEFAULT_FEATURES) -> None:
        self.changes = NodeChanges()
        self.inventory = Inventory(features, self.changes)
        self.allocated = AllocatedState(features, self._pool_changed)

    @property
    def version(self) -> int:
        return self.changes.version

    def changed_nodes(self, since: int) -> set[str] | None:
        """The nodes whose devices, or their use, changed after this version; None if all may have."""
        return self.changes.since(since)

    def put_slice(self, item: ResourceSlice) -> None:
        self.inventory.put(item)

    def remove_slice(self, name: str) -> None:
        self.inventory.remove(name)

    def put_claim(self, uid: str, name: str, allocation: AllocationResult | None) -> None:
        """A claim (`namespace/name`) has this allocation, written or about to be; None: it has none."""
        self.allocated.put(uid, name, allocation)

    def remove_claim(self, uid: str) -> None:
        self.allocated.remove(uid)

    def _pool_changed(self, key: PoolKey) -> None:
        self.changes.record(self.inventory.nodes_of(key))
