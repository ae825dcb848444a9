"""The number of devices of a class on each node, and how many are in use: for scores, not for filtering.

Extended resources that are served by devices are scored like others, by the amount that a node has. As
upstream, all devices of all slices of the node count, of any generation, and selectors see them as devices
that can be allocated only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bayplan.api.devices import Device, DeviceClass, ResourceSlice
from bayplan.api.meta import NodeSelector
from bayplan.api.node_selectors import compile_terms_strict
from bayplan.dra.content import device_content, selector_set
from bayplan.errors import SelectorError
from bayplan.state.cluster import Cluster
from bayplan.state.derived import derived
from bayplan.state.devices import DEVICE_KINDS, ClusterDevices
from bayplan.state.node_matching import rows_matching_terms
from bayplan.state.view import BoolColumn, NodeColumns

_Counts = NDArray[np.int64]


class DeviceCount(NamedTuple):
    """Devices of a class by row."""

    capacity: _Counts
    used: _Counts


class DeviceCounts:
    """The counts of every class that was used (`snapshot.derived`)."""

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness((changes.size, *changes.kinds(DEVICE_KINDS)), (changes.nodes,))
        self._counts: dict[str, DeviceCount] = {}
        """By the name of the class."""

    def update(self, cluster: Cluster) -> None:
        if not self._freshness.is_current:
            self._counts.clear()
        self._freshness.mark_current()

    def of(self, cluster: Cluster, device_class: DeviceClass) -> DeviceCount:
        known = self._counts.get(device_class.name)
        if known is None:
            known = self._counts[device_class.name] = _count(cluster, device_class)
        return known


def _count(cluster: Cluster, device_class: DeviceClass) -> DeviceCount:
    expressions = [one.cel.expression for one in device_class.spec.selectors if one.cel is not None]
    selectors = selector_set(expressions, ())
    allocated = derived(cluster, ClusterDevices).allocated
    nodes = NodeColumns(cluster)
    capacity, used = (np.zeros(len(nodes), dtype=np.int64) for _ in range(2))
    errored = np.zeros(len(nodes), dtype=np.bool_)
    for item in cluster.objects.of(ResourceSlice):
        spec = item.spec
        try:
            for devices, rows in _offers(item, nodes):
                for device in devices:
                    content = device_content(spec.driver, replace(device, allow_multiple_allocations=False))
                    matches = content.matches(selectors)
                    if not isinstance(matches, bool):
                        errored |= rows
                    elif matches:
                        capacity += rows
                        if allocated.is_in_use((spec.driver, spec.pool.name, device.name)):
                            used += rows
        except SelectorError:
            errored[:] = True
    capacity[errored] = used[errored] = 0
    return DeviceCount(capacity, used)


def _offers(item: ResourceSlice, nodes: NodeColumns) -> Iterator[tuple[tuple[Device, ...], BoolColumn]]:
    """The devices of a slice, with the rows that can use them."""
    spec = item.spec
    if not spec.per_device_node_selection:
        yield spec.devices, _rows(nodes, spec.node_name, spec.all_nodes, spec.node_selector, otherwise=True)
        return
    for device in spec.devices:
        yield (
            (device,),
            _rows(nodes, device.node_name, device.all_nodes, device.node_selector, otherwise=False),
        )


def _rows(
    nodes: NodeColumns, name: str, all_nodes: bool, selector: NodeSelector | None, *, otherwise: bool
) -> BoolColumn:
    """The rows that the node fields select; `otherwise` if none of them is set."""
    if all_nodes:
        return np.ones(len(nodes), dtype=np.bool_)
    rows = nodes.is_named(name) if name else np.zeros(len(nodes), dtype=np.bool_)
    if selector is not None:
        rows = rows | rows_matching_terms(nodes, compile_terms_strict(selector.node_selector_terms))
    elif not name and otherwise:
        rows = np.ones(len(nodes), dtype=np.bool_)
    return rows


def with_devices(nodes: NodeColumns, resource: str, device_class: DeviceClass) -> tuple[_Counts, _Counts]:
    """The allocatable and used amounts of a resource on each row; devices count if there are no others."""
    cluster = nodes.cluster
    count = derived(cluster, DeviceCounts).of(cluster, device_class)
    allocatable, capacity = nodes.allocatable(resource), nodes.gather(count.capacity)
    by_devices = (allocatable == 0) & (capacity > 0)
    used = np.where(by_devices, nodes.gather(count.used), nodes.requested(resource))
    return np.where(by_devices, capacity, allocatable), used
