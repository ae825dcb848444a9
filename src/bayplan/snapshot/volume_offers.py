"""What storage there is for claims that have none yet: volumes that are free, and room to make new ones.

Of thousands of volumes hardly any is free, and hardly any reserved for the claim in question: `VolumeOffers`
finds those by class and by claim. `StorageRoom` has the capacities that drivers report, by class. When the
objects have changed, both compare them with what they know, and look closely only at those that did.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from bayplan.api.quantity import parse_quantity, value
from bayplan.api.selectors import NOTHING, Operator, Selector, compile_selector
from bayplan.api.storage import STORAGE, CSIStorageCapacity, PersistentVolume
from bayplan.errors import SelectorError
from bayplan.snapshot.assumed import AssumedVolume, expected_volumes
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.node_matching import rows_matching_selector
from bayplan.snapshot.view import BoolColumn, NodeColumns


@dataclass(frozen=True, slots=True)
class Offer:
    """A volume and how large it is, in nano units."""

    volume: PersistentVolume
    capacity: int


class VolumeOffers:
    """Volumes as they will be: those that are nobody's by class, all others by the claim they name."""

    def __init__(self, cluster: Cluster) -> None:
        self._versions: tuple[int, ...] = ()
        self._known: dict[str, PersistentVolume] = {}
        self._free: dict[str, dict[str, Offer]] = {}
        self._reserved: dict[tuple[str, str], dict[str, Offer]] = {}

    def free(self, class_name: str) -> Collection[Offer]:
        """Volumes of a class that are nobody's."""
        return self._free.get(class_name, {}).values()

    def reserved_for(self, namespace: str, name: str) -> Collection[Offer]:
        """Volumes that name a claim, perhaps an earlier one of that name."""
        return self._reserved.get((namespace, name), {}).values()

    def update(self, cluster: Cluster) -> None:
        versions = cluster.objects.versions((PersistentVolume, AssumedVolume))
        if versions == self._versions:
            return
        self._versions = versions
        outdated, self._known = self._known, {}
        fresh: list[PersistentVolume] = []
        for volume in expected_volumes(cluster.objects):
            self._known[volume.name] = volume
            if outdated.get(volume.name) is volume:
                del outdated[volume.name]
            else:
                fresh.append(volume)
        for volume in outdated.values():
            self._withdraw(volume)
        for volume in fresh:
            self._add(volume)

    def _add(self, volume: PersistentVolume) -> None:
        offer = Offer(volume, parse_quantity(volume.spec.capacity.get(STORAGE)))
        reference = volume.spec.claim_ref
        if reference is None:
            self._free.setdefault(volume.class_name, {})[volume.name] = offer
        else:
            self._reserved.setdefault((reference.namespace, reference.name), {})[volume.name] = offer

    def _withdraw(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None:
            self._free[volume.class_name].pop(volume.name)
            return
        key = (reference.namespace, reference.name)
        self._reserved[key].pop(volume.name)
        if not self._reserved[key]:
            del self._reserved[key]


@dataclass(frozen=True, slots=True)
class Room:
    """How large a volume can be made on the nodes with these labels, in bytes."""

    limit_bytes: int
    nodes: Selector


class StorageRoom:
    """The capacities that CSI drivers report, by storage class; without those that can be used nowhere."""

    def __init__(self, cluster: Cluster) -> None:
        self._version = -1
        self._known: dict[tuple[str, str], CSIStorageCapacity] = {}
        self._by_class: dict[str, dict[tuple[str, str], Room]] = {}

    def rows_with_room(self, nodes: NodeColumns, class_name: str, size_bytes: int) -> BoolColumn:
        """Rows where a volume of this size can be made."""
        mask = np.zeros(len(nodes), dtype=np.bool_)
        values: dict[str, set[str]] = {}
        for room in self._by_class.get(class_name, {}).values():
            if room.limit_bytes < size_bytes:
                continue
            demands = room.nodes.requirements
            if len(demands) == 1 and demands[0].operator is Operator.IN:
                # The usual case, a zone or a host: all rooms are then looked up together.
                values.setdefault(demands[0].key, set()).update(demands[0].values)
            else:
                mask |= rows_matching_selector(nodes, room.nodes)
        for key, wanted in values.items():
            mask |= nodes.label(key).isin(wanted)
        return mask

    def update(self, cluster: Cluster) -> None:
        capacities = cluster.objects.of(CSIStorageCapacity)
        if capacities.version == self._version:
            return
        self._version = capacities.version
        outdated, self._known = self._known, {}
        fresh: list[CSIStorageCapacity] = []
        for capacity in capacities:
            key = (capacity.namespace, capacity.name)
            self._known[key] = capacity
            if outdated.get(key) is capacity:
                del outdated[key]
            else:
                fresh.append(capacity)
        for key, capacity in outdated.items():
            self._by_class.get(capacity.storage_class_name, {}).pop(key, None)
        for capacity in fresh:
            room = _room(capacity)
            if room is not None:
                rooms = self._by_class.setdefault(capacity.storage_class_name, {})
                rooms[capacity.namespace, capacity.name] = room


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The size of the largest volume that can be made, in bytes, as far as the driver says."""
    limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return None if limit is None else value(limit)


def _room(capacity: CSIStorageCapacity) -> Room | None:
    limit = volume_limit(capacity)
    if limit is None:
        return None
    try:
        nodes = compile_selector(capacity.node_topology)
    except SelectorError:
        return None
    return None if nodes is NOTHING else Room(limit, nodes)
