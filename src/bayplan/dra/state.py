"""Devices and their use in one place, and which nodes have to be searched again after a change."""

from __future__ import annotations

from bayplan.api.devices import DeviceTaintRule, ResourceSlice
from bayplan.api.release import DeviceFeatures
from bayplan.api.releases import DEFAULT_DEVICE_FEATURES
from bayplan.api.resource_claims import AllocationResult
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.changes import NodeChanges
from bayplan.dra.inventory import Inventory
from bayplan.dra.pools import PoolKey
from bayplan.dra.taint_rules import TaintRules


class DeviceState:
    """An inventory and the allocated state, with one log of changes.

    A search result depends on the node, the specs of the claims, the device classes, and the devices that the
    node sees. `version` increases when slices or allocations change; `changed_nodes` names the nodes that see
    something else since. Callers compare labels of nodes and classes themselves.
    """

    __slots__ = ("_slices", "_taint_rules", "allocated", "changes", "inventory")

    def __init__(self, features: DeviceFeatures = DEFAULT_DEVICE_FEATURES) -> None:
        self.changes = NodeChanges()
        self.inventory = Inventory(features, self.changes)
        self.allocated = AllocatedState(features, self._pool_changed)
        self._slices: dict[str, ResourceSlice] = {}
        """As their drivers published them; the inventory has them with the taints of rules."""
        self._taint_rules = TaintRules(features)

    @property
    def version(self) -> int:
        return self.changes.version

    def changed_nodes(self, since: int) -> set[str] | None:
        """The nodes whose devices, or their use, changed after this version; None if all may have."""
        return self.changes.since(since)

    def put_slice(self, item: ResourceSlice) -> None:
        self._slices[item.name] = item
        self.inventory.put(self._taint_rules.tainted(item))

    def remove_slice(self, name: str) -> None:
        self._slices.pop(name, None)
        self.inventory.remove(name)

    def put_taint_rule(self, rule: DeviceTaintRule) -> None:
        self._taint_rules.put(rule)
        self._taint_again(rule)

    def remove_taint_rule(self, rule: DeviceTaintRule) -> None:
        self._taint_rules.remove(rule.name)
        self._taint_again(rule)

    def _taint_again(self, rule: DeviceTaintRule) -> None:
        for item in self._slices.values():
            if self._taint_rules.may_taint((rule,), item):
                self.inventory.put(self._taint_rules.tainted(item))

    def put_claim(self, uid: str, name: str, allocation: AllocationResult | None) -> None:
        """Sets the allocation of a claim (`namespace/name`), written or about to be; None: it has none."""
        self.allocated.put(uid, name, allocation)

    def remove_claim(self, uid: str) -> None:
        self.allocated.remove(uid)

    def _pool_changed(self, key: PoolKey) -> None:
        self.changes.record(self.inventory.nodes_of(key))
