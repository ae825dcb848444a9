"""All ResourceSlices, and the pools of every node, assembled once until a slice changes.

Most slices name their node. They and their pools are indexed by that name; slices for several nodes
are compared with each node. In v1.36 slices with shared counters matter on every node, so the state of pools
with counters is computed once for all nodes that have no devices in them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from bayplan.api.devices import ResourceSlice
from bayplan.api.node import Node
from bayplan.api.release import DeviceFeatures
from bayplan.api.releases import DEFAULT_DEVICE_FEATURES
from bayplan.dra.changes import NodeChanges
from bayplan.dra.errors import AllocationError
from bayplan.dra.pools import NodePools, Pool, PoolKey, Slice, SliceDevice, assemble

KeyT = TypeVar("KeyT", bound=Hashable)


class Inventory:
    """The published devices. `put` and `remove` are called for changes of ResourceSlices."""

    def __init__(
        self, features: DeviceFeatures = DEFAULT_DEVICE_FEATURES, changes: NodeChanges | None = None
    ) -> None:
        self.features = features
        self.changes = NodeChanges() if changes is None else changes
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
