"""Storage for unbound claims: free volumes, and capacity to provision new ones.

Of thousands of volumes few are free or reserved for a given claim: `VolumeOffers` finds those by class and by
claim. `StorageRoom` has the capacities that drivers report, by class.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from bayplan.api.meta import NodeSelector
from bayplan.api.node_selectors import CompiledTerm, compile_terms
from bayplan.api.quantity import parse_quantity, value
from bayplan.api.selectors import NOTHING, Operator, Selector, compile_selector
from bayplan.api.storage import STORAGE, CSIStorageCapacity, PersistentVolume
from bayplan.errors import SelectorError
from bayplan.state.assumed import AssumedVolume, expected_volume
from bayplan.state.cluster import Cluster
from bayplan.state.derived import Groups, ObjectReader
from bayplan.state.interning import Interner
from bayplan.state.node_matching import rows_matching_selector, rows_matching_terms
from bayplan.state.view import BoolColumn, IntColumn, NodeColumns

Reach = tuple[CompiledTerm, ...]
"""Alternative requirements of a volume on a node's labels."""

EVERYWHERE: Final = -1
"""The id of the reach of volumes without requirements."""


@lru_cache(maxsize=16384)
def reach(affinity: NodeSelector) -> Reach:
    """A volume's node affinity, compiled. It only concerns labels: the name of a node is ignored."""
    return tuple(
        CompiledTerm(expressions=term.expressions, error=term.error)
        for term in compile_terms(affinity.node_selector_terms)
    )


def rows_reached(nodes: NodeColumns, affinity: NodeSelector | None) -> BoolColumn:
    """Rows that a volume with this node affinity can be attached to; without one, all."""
    if affinity is None:
        return np.ones(len(nodes), dtype=np.bool_)
    return rows_matching_terms(nodes, reach(affinity))


@dataclass(frozen=True, slots=True)
class Offer:
    """A volume, with its most used fields."""

    volume: PersistentVolume
    capacity: int
    """In nano units."""
    reach: int
    """The id of its reach among `VolumeOffers.reaches`, or EVERYWHERE."""


class VolumeOffers:
    """Assumed volumes: free ones by class, all others by the claim they name."""

    def __init__(self, cluster: Cluster) -> None:
        kinds = cluster.changes.kinds((PersistentVolume, AssumedVolume))
        self._freshness = cluster.changes.freshness(objects=kinds)
        self._volumes: ObjectReader[PersistentVolume] = ObjectReader(self._freshness)
        self._assumed: ObjectReader[AssumedVolume] = ObjectReader(self._freshness)
        self._known: dict[str, PersistentVolume] = {}
        self._free: Groups[str, Offer] = Groups()
        self._reserved: Groups[tuple[str, str], Offer] = Groups()
        self.reaches: Interner[Reach] = Interner()

    def free(self, class_name: str) -> Collection[Offer]:
        """Free volumes of a class."""
        return self._free.of(class_name)

    def reserved_for(self, namespace: str, name: str) -> Collection[Offer]:
        """Volumes that name a claim, perhaps an earlier one of that name."""
        return self._reserved.of((namespace, name))

    def update(self, cluster: Cluster) -> None:
        if self._freshness.is_current:
            return
        objects = cluster.objects
        with self._freshness:
            names = {
                item.name
                for changed in (
                    *self._volumes.changed(objects.of(PersistentVolume)),
                    *self._assumed.changed(objects.of(AssumedVolume)),
                )
                for item in changed
            }
            for name in names:
                before, now = self._known.pop(name, None), expected_volume(objects, name)
                if before is not None:
                    self._remove(before)
                if now is not None:
                    self._known[name] = now
                    self._add(now)

    def _add(self, volume: PersistentVolume) -> None:
        affinity, reference = volume.spec.node_affinity, volume.spec.claim_ref
        required = affinity.required if affinity is not None else None
        offer = Offer(
            volume,
            capacity=parse_quantity(volume.spec.capacity.get(STORAGE)),
            reach=EVERYWHERE if required is None else self.reaches.intern(reach(required)),
        )
        if reference is None:
            self._free.put(volume.class_name, volume.name, offer)
        else:
            self._reserved.put((reference.namespace, reference.name), volume.name, offer)

    def _remove(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None:
            self._free.discard(volume.class_name, volume.name)
        else:
            self._reserved.discard((reference.namespace, reference.name), volume.name)


@dataclass(frozen=True, slots=True)
class Room:
    """The maximum size of a volume on the nodes with these labels."""

    limit_bytes: int
    nodes: Selector
    capacity_bytes: int
    """What is free in total; 0 if the driver reports only a maximum volume size."""


class StorageRoom:
    """The capacities that CSI drivers report, by storage class; without those that no node can use."""

    def __init__(self, cluster: Cluster) -> None:
        kinds = cluster.changes.kinds((CSIStorageCapacity,))
        self._freshness = cluster.changes.freshness(objects=kinds)
        self._capacities: ObjectReader[CSIStorageCapacity] = ObjectReader(self._freshness)
        self._by_class: Groups[str, Room] = Groups()

    def rows_with_room(self, nodes: NodeColumns, class_name: str, size_bytes: int) -> BoolColumn:
        """Rows where a volume of this size can be provisioned."""
        mask = np.zeros(len(nodes), dtype=np.bool_)
        values: dict[str, set[str]] = {}
        for room in self._by_class.of(class_name):
            if room.limit_bytes < size_bytes:
                continue
            requirements = room.nodes.requirements
            if len(requirements) == 1 and requirements[0].operator is Operator.IN:
                # The usual case, a zone or a host: all capacities are then looked up together.
                values.setdefault(requirements[0].key, set()).update(requirements[0].values)
            else:
                mask |= rows_matching_selector(nodes, room.nodes)
        for key, wanted in values.items():
            mask |= nodes.label(key).isin(wanted)
        return mask

    def capacities(self, nodes: NodeColumns, class_name: str, size_bytes: int) -> IntColumn:
        """The free bytes on rows where a volume of this size can be provisioned; 0 elsewhere.

        If several capacities apply to a row, the one that was reported first is used.
        """
        result = np.zeros(len(nodes), dtype=np.int64)
        is_open = np.ones(len(nodes), dtype=np.bool_)
        for room in self._by_class.of(class_name):
            if room.limit_bytes >= size_bytes and is_open.any():
                here = is_open & rows_matching_selector(nodes, room.nodes)
                result[here] = room.capacity_bytes
                is_open &= ~here
        return result

    def update(self, cluster: Cluster) -> None:
        if self._freshness.is_current:
            return
        with self._freshness:
            removed, added = self._capacities.changed(cluster.objects.of(CSIStorageCapacity))
            for capacity in removed:
                self._by_class.discard(capacity.storage_class_name, capacity.key)
            for capacity in added:
                room = _room(capacity)
                if room is not None:
                    self._by_class.put(capacity.storage_class_name, capacity.key, room)


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The size of the largest volume that can be provisioned, in bytes, if the driver reports it."""
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
    return None if nodes is NOTHING else Room(limit, nodes, value(capacity.capacity))
