"""Volumes for unbound claims: which are free, and what is decided.

Of thousands of volumes few are free or reserved for a given claim: `VolumeOffers` finds those by class and by
claim. `StorageRoom` has the capacities that drivers report for new volumes, by class. `volume_matching.py`
matches free volumes with a pod's claims, on every node at once.

When a pod gets a node, its volumes there are decided too, but writing that to the API server takes a while.
Until then the next pod must not get the same volume: so the decision is an overlay over the object
(`AssumedVolume`, `AssumedClaim`), which the next pod sees. It is valid only while the API server still has
the version of the object that the decision is based on. Decisions are objects of the cluster with kinds of
their own. So a plugin that reads assumed volumes declares these kinds, and its results are stale when a
decision is made or reverted. Volumes that pods already use are in `volumes.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from bayplan.api.meta import NodeSelector, Object
from bayplan.api.node_selectors import CompiledTerm, compile_terms
from bayplan.api.quantity import parse_quantity, value
from bayplan.api.selectors import NOTHING, Operator, Selector, compile_selector
from bayplan.api.storage import STORAGE, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from bayplan.errors import BayplanError, SelectorError
from bayplan.state.cluster import Cluster
from bayplan.state.columns import Interner
from bayplan.state.derived import Groups, ObjectReader
from bayplan.state.node_matching import rows_matching_selector, rows_matching_terms
from bayplan.state.objects import Objects
from bayplan.state.view import BoolColumn, IntColumn, NodeColumns


class AssumedVolume(Object, frozen=True):
    """A decision about a volume. It has the volume's metadata."""

    item: PersistentVolume = PersistentVolume()


class AssumedClaim(Object, frozen=True):
    """A decision about a claim. It has the claim's metadata."""

    item: PersistentVolumeClaim = PersistentVolumeClaim()


ASSUMED_KINDS: Final[tuple[type[Object], ...]] = (AssumedVolume, AssumedClaim)


class OutOfSyncError(BayplanError):
    """A decision is based on a version of an object that is no longer the current one."""


def expected_volume(objects: Objects, name: str) -> PersistentVolume | None:
    """A volume with its decision."""
    actual = objects.of(PersistentVolume).get(name)
    assumed = objects.of(AssumedVolume).get(name)
    return assumed.item if actual and assumed and _is_current(assumed.item, actual) else actual


def expected_claim(objects: Objects, name: str, namespace: str) -> PersistentVolumeClaim | None:
    """A claim with its decision."""
    actual = objects.of(PersistentVolumeClaim).get(name, namespace)
    assumed = objects.of(AssumedClaim).get(name, namespace)
    return assumed.item if actual and assumed and _is_current(assumed.item, actual) else actual


def assume_object(objects: Objects, item: PersistentVolume | PersistentVolumeClaim) -> None:
    """Adds a decision about an object.

    Raises:
        OutOfSyncError: the object has changed since the decision was made, or was deleted.
    """
    stored = objects.of(type(item)).get(item.name, item.namespace)
    if stored is None:
        raise OutOfSyncError(f'{type(item).__name__.lower()}s "{item.key}" not found')
    if not _is_current(item, stored):
        raise OutOfSyncError(
            f'"{item.key}" is out of sync (stored: {stored.metadata.resource_version}, '
            f"assume: {item.metadata.resource_version})"
        )
    decision = _decision(item)
    made = objects.of(type(decision))
    made.put(decision)
    if len(made) & (len(made) - 1) == 0:
        # Decisions that were executed are never reverted. Removing those now and then is enough.
        _forget_outdated(objects, type(decision))


def restore_object(objects: Objects, item: PersistentVolume | PersistentVolumeClaim) -> None:
    """Reverts the decision about an object, if there is one and no newer one."""
    decision = _decision(item)
    made = objects.of(type(decision)).get(item.name, item.namespace)
    if made is not None and _is_current(item, made.item):
        objects.remove(decision)


def _decision(item: PersistentVolume | PersistentVolumeClaim) -> AssumedVolume | AssumedClaim:
    if isinstance(item, PersistentVolume):
        return AssumedVolume(metadata=item.metadata, item=item)
    return AssumedClaim(metadata=item.metadata, item=item)


def _is_current(assumed: Object, actual: Object) -> bool:
    return assumed.metadata.resource_version == actual.metadata.resource_version


def _forget_outdated(objects: Objects, kind: type[AssumedVolume] | type[AssumedClaim]) -> None:
    made = objects.of(kind)
    for decision in list(made):
        actual = objects.of(type(decision.item)).get(decision.name, decision.namespace)
        if actual is None or not _is_current(decision.item, actual):
            made.remove(decision)


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
        self.freshness = cluster.changes.freshness(objects=kinds)
        self._volumes: ObjectReader[PersistentVolume] = ObjectReader(self.freshness)
        self._assumed: ObjectReader[AssumedVolume] = ObjectReader(self.freshness)
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

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        objects = cluster.objects
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
        self.freshness = cluster.changes.freshness(objects=kinds)
        self._capacities: ObjectReader[CSIStorageCapacity] = ObjectReader(self.freshness)
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

    def update(self, cluster: Cluster, rows: set[int]) -> None:
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
