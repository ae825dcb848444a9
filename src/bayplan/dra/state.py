"""Devices and their use in one place, and which nodes have to be searched again after a change.

ResourceSlices come in with the taints of DeviceTaintRules, which administrators add to devices as if the
driver had published them. The inventory assembles the pools of every node (`pools.py`) once, until a slice
changes.

Most slices name their node. They and their pools are indexed by that name; slices for several nodes are
compared with each node. In v1.36 slices with shared counters matter on every node, so the state of pools with
counters is computed once for all nodes that have no devices in them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from bayplan.api.devices import AllocationResult, Device, DeviceTaintRule, ResourceSlice
from bayplan.api.node import Node
from bayplan.api.release import DeviceFeatures
from bayplan.api.releases import DEFAULT_DEVICE_FEATURES
from bayplan.clock import Clock, Log, Topic
from bayplan.dra.allocated import AllocatedState
from bayplan.dra.pools import NodePools, Pool, PoolKey, Slice, SliceDevice, assemble
from bayplan.errors import AllocationError


class TaintRules:
    """All DeviceTaintRules. None applies while the feature gates are off."""

    def __init__(self, features: DeviceFeatures) -> None:
        self._is_on = features.taint_rules and features.device_taints
        self._matches_all = features.rules.taint_rule_without_selector_matches_all
        self._rules: dict[str, DeviceTaintRule] = {}

    def put(self, rule: DeviceTaintRule) -> None:
        self._rules[rule.name] = rule

    def remove(self, name: str) -> None:
        self._rules.pop(name, None)

    def may_taint(self, rules: Iterable[DeviceTaintRule], item: ResourceSlice) -> bool:
        """Whether some of these rules, known or not, select driver and pool of the slice."""
        return self._is_on and any(self._selects_pool(rule, item) for rule in rules)

    def tainted(self, item: ResourceSlice) -> ResourceSlice:
        """The slice with the taints of all rules; itself if there are none."""
        if not self._is_on:
            return item
        rules = [rule for rule in self._rules.values() if self._selects_pool(rule, item)]
        if not rules:
            return item
        # Kubernetes has no order of rules; by name it is at least always the same.
        rules.sort(key=lambda rule: rule.name)
        devices = tuple(_with_taints(device, rules) for device in item.spec.devices)
        return replace(item, spec=replace(item.spec, devices=devices))

    def _selects_pool(self, rule: DeviceTaintRule, item: ResourceSlice) -> bool:
        selector, spec = rule.spec.device_selector, item.spec
        if selector is None:
            return self._matches_all
        return selector.driver in (None, spec.driver) and selector.pool in (None, spec.pool.name)


def _with_taints(device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
    taints = tuple(rule.spec.taint for rule in rules if _selects_device(rule, device))
    return replace(device, taints=(*device.taints, *taints)) if taints else device


def _selects_device(rule: DeviceTaintRule, device: Device) -> bool:
    selector = rule.spec.device_selector
    return selector is None or selector.device in (None, device.name)


def has_equal_taints(one: ResourceSlice, other: ResourceSlice) -> bool:
    """Whether the devices of two versions of a slice have the same taints."""
    return [device.taints for device in one.spec.devices] == [device.taints for device in other.spec.devices]


KeyT = TypeVar("KeyT", bound=Hashable)


class NodeChanges:
    """Where devices, or their use, changed: on some nodes, or on any of them."""

    __slots__ = ("everywhere", "nodes")

    def __init__(self, clock: Clock) -> None:
        self.nodes: Log[str] = Log(clock)
        """Names of nodes."""
        self.everywhere = Topic(clock)

    def record(self, nodes: Collection[str] | None) -> None:
        """Records that the devices of these nodes changed; None: of all nodes."""
        if nodes is None:
            self.everywhere.change()
            return
        for name in nodes:
            self.nodes.record(name)


class Inventory:
    """The published devices. `put` and `remove` are called for changes of ResourceSlices."""

    def __init__(
        self, features: DeviceFeatures = DEFAULT_DEVICE_FEATURES, changes: NodeChanges | None = None
    ) -> None:
        self.features = features
        self.changes = NodeChanges(Clock()) if changes is None else changes
        self._slices: dict[str, Slice] = {}
        self._local: dict[str, dict[str, Slice]] = {}
        """Slices that name their node, by node and name."""
        self._shared: dict[str, Slice] = {}
        """Slices that are compared with every node."""
        self._by_pool: dict[PoolKey, dict[str, Slice]] = {}
        self._counter_slices: dict[PoolKey, dict[str, Slice]] = {}
        """Slices that every node sees, because they have counters."""
        self._elsewhere: dict[PoolKey, Pool] = {}
        """Pools with counters that are incomplete or invalid, as seen by nodes without devices in them."""
        self._nodes: dict[str, NodePools] = {}

    def put(self, item: ResourceSlice) -> None:
        """Adds or replaces a slice."""
        before, after = self._slices.get(item.name), Slice(item, self.features.rules)
        if before is not None:
            self._unindex(before)
        self._index(after)
        self._changed(before, after)

    def remove(self, name: str) -> None:
        """Removes a slice."""
        before = self._slices.get(name)
        if before is not None:
            self._unindex(before)
            self._changed(before)

    def slices(self) -> Iterator[ResourceSlice]:
        return (one.of for one in self._slices.values())

    def devices(self, key: PoolKey) -> Iterator[SliceDevice]:
        """All devices of a pool, of every generation."""
        return (device for one in self._by_pool.get(key, {}).values() for device in one.devices)

    def nodes_of(self, key: PoolKey) -> set[str] | None:
        """The nodes that may use devices of the pool; None if it is not limited to nodes by name."""
        found = {one.of.spec.node_name for one in self._by_pool.get(key, {}).values()}
        return None if "" in found else found

    def pools(self, node: Node) -> NodePools:
        """The pools that the node sees.

        Raises:
            AllocationError: the node selector of a slice cannot be parsed.
        """
        found = self._nodes.get(node.name)
        if found is not None and (found.labels is node.labels or found.labels == node.labels):
            return found
        found = self._nodes[node.name] = NodePools(node, self._assemble(node))
        return found

    def _assemble(self, node: Node) -> Iterator[Pool]:
        partitionable = self.features.partitionable_devices
        relevant: dict[PoolKey, list[Slice]] = {}
        for one in self._local.get(node.name, {}).values():
            if self._is_known(one):
                relevant.setdefault(one.pool_key, []).append(one)
        for one in self._shared.values():
            if self._is_known(one) and self._is_relevant(one, node):
                relevant.setdefault(one.pool_key, []).append(one)
        for key, slices in relevant.items():
            if partitionable:
                slices.extend(self._counter_slices.get(key, {}).values())
            pool = assemble(key, slices, self._by_pool[key].values(), counters=partitionable)
            if pool is not None:
                yield pool
        for key, pool in self._elsewhere.items():
            if key not in relevant:
                yield pool

    def _is_known(self, one: Slice) -> bool:
        """Whether the slice uses only features that are on; the others do not exist for any node."""
        if one.is_ignored:
            return False
        uses_partitions = one.has_counters or one.of.spec.per_device_node_selection
        return self.features.partitionable_devices or not uses_partitions

    def _is_relevant(self, one: Slice, node: Node) -> bool:
        try:
            if one.selection.is_set:
                return one.selection.matches(node)
            if not one.of.spec.per_device_node_selection:
                return False
        except AllocationError as error:
            raise AllocationError(
                f"gather pool information: failed to perform node selection for slice {one.name}: {error}"
            ) from error
        for device in one.devices:
            try:
                if device.selection is not None and device.selection.matches(node):
                    return True
            except AllocationError as error:
                raise AllocationError(
                    "gather pool information: failed to perform node selection for device "
                    f"{device.device.name} in slice {one.name}: {error}"
                ) from error
        return False

    def _index(self, one: Slice) -> None:
        self._slices[one.name] = one
        self._by_pool.setdefault(one.pool_key, {})[one.name] = one
        if one.is_seen_everywhere:
            self._counter_slices.setdefault(one.pool_key, {})[one.name] = one
        elif one.is_local:
            self._local.setdefault(one.of.spec.node_name, {})[one.name] = one
        else:
            self._shared[one.name] = one

    def _unindex(self, one: Slice) -> None:
        del self._slices[one.name]
        _discard(self._by_pool, one.pool_key, one.name)
        if one.is_seen_everywhere:
            _discard(self._counter_slices, one.pool_key, one.name)
        elif one.is_local:
            _discard(self._local, one.of.spec.node_name, one.name)
        else:
            del self._shared[one.name]

    def _changed(self, *slices: Slice | None) -> None:
        nodes: set[str] = set()
        everywhere = False
        for one in slices:
            if one is not None:
                local = self.nodes_of(one.pool_key)
                status_changed = self._update_elsewhere(one.pool_key)
                everywhere |= status_changed or local is None or not one.of.spec.node_name
                nodes |= {one.of.spec.node_name, *(local or ())}
        if everywhere:
            self._nodes.clear()
            self.changes.record(None)
            return
        for name in nodes:
            self._nodes.pop(name, None)
        self.changes.record(nodes)

    def _update_elsewhere(self, key: PoolKey) -> bool:
        """Updates the state of a pool with counters. Returns whether it changed for nodes without its
        devices."""
        before = self._elsewhere.pop(key, None)
        counters: Iterable[Slice] = self._counter_slices.get(key, {}).values()
        if counters and self.features.partitionable_devices:
            pool = assemble(key, list(counters), self._by_pool[key].values(), counters=True)
            if pool is not None and not pool.is_usable:
                self._elsewhere[key] = pool
        after = self._elsewhere.get(key)
        return (before and before.status) != (after and after.status)


def _discard(groups: dict[KeyT, dict[str, Slice]], key: KeyT, name: str) -> None:
    group = groups[key]
    del group[name]
    if not group:
        del groups[key]


class DeviceState:
    """An inventory and the allocated state, with one log of changes.

    A search result depends on the node, the specs of the claims, the device classes, and the devices that the
    node sees. `changes` records where these devices or their use changed. Callers depend on nodes and classes
    themselves.
    """

    __slots__ = ("_slices", "_taint_rules", "allocated", "changes", "inventory")

    def __init__(
        self, features: DeviceFeatures = DEFAULT_DEVICE_FEATURES, clock: Clock | None = None
    ) -> None:
        clock = Clock() if clock is None else clock
        self.changes = NodeChanges(clock)
        self.inventory = Inventory(features, self.changes)
        self.allocated = AllocatedState(features, clock, self._pool_changed)
        self._slices: dict[str, ResourceSlice] = {}
        """As their drivers published them; the inventory has them with the taints of rules."""
        self._taint_rules = TaintRules(features)

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
