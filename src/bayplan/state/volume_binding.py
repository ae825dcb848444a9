"""Volumes for unbound claims: which are free, which go to which claim on which node, and what is decided.

Of thousands of volumes few are free or reserved for a given claim: `VolumeOffers` finds those by class and by
claim. `StorageRoom` has the capacities that drivers report for new volumes, by class. `match_volumes` matches
free volumes with a pod's claims, on every node at once.

When a pod gets a node, its volumes there are decided too, but writing that to the API server takes a while.
Until then the next pod must not get the same volume: so the decision is an overlay over the object
(`AssumedVolume`, `AssumedClaim`), which the next pod sees. It is valid only while the API server still has
the version of the object that the decision is based on. Decisions are objects of the cluster with kinds of
their own. So a plugin that reads assumed volumes declares these kinds, and its results are stale when a
decision is made or reverted. Volumes that pods already use are in `volumes.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np

from bayplan.api.meta import NodeSelector, Object
from bayplan.api.node_selectors import CompiledTerm, compile_terms
from bayplan.api.quantity import parse_quantity, value
from bayplan.api.selectors import EVERYTHING, NOTHING, Operator, Selector, compile_selector
from bayplan.api.storage import STORAGE, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from bayplan.errors import BayplanError, SelectorError
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, Interner
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


AVAILABLE: Final = "Available"
FILESYSTEM: Final = "Filesystem"


def claims_by_size(claims: Iterable[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """The claims in the order in which they are processed, the smallest first."""
    return sorted(claims, key=_size)


@dataclass(frozen=True, slots=True)
class VolumeMatches:
    """The volume of each claim on each row."""

    group_of: IdColumn
    """For each row its group."""
    chosen: list[tuple[PersistentVolume | None, ...]]
    """For each group the volume of each claim, or None."""

    def missing(self, claim: int) -> BoolColumn:
        """Rows without a volume for the claim at this index."""
        table = np.array([volumes[claim] is None for volumes in self.chosen], dtype=np.bool_)
        return table.take(self.group_of)

    def at(self, position: int) -> tuple[PersistentVolume | None, ...]:
        """The volume of each claim on one row."""
        return self.chosen[int(self.group_of[position])]


def match_volumes(
    claims: Sequence[PersistentVolumeClaim], offers: VolumeOffers, nodes: NodeColumns
) -> VolumeMatches:
    """Matches the claims, in the given order, on every row: each gets the smallest suitable volume that
    reaches the node.

    Nodes that no volume distinguishes get the same volumes. So the rows are grouped by the node affinity of
    the volumes, and the claims are processed once for each group: for volumes of three zones that is three
    times, for local disks once for each node that has a free one.

    Raises:
        SelectorError: a claim's selector is malformed; its `object_key` is the claim's.
    """
    candidates = [_Candidates(claim, offers) for claim in claims]
    reaches = {reach: offers.reaches.values[reach] for of_claim in candidates for reach in of_claim.reaches}
    group_of, reached_by = _group_rows(nodes, reaches)
    return VolumeMatches(group_of, [_choose(candidates, reaching) for reaching in reached_by])


class _Candidates:
    """The volumes that could serve one claim, in order of preference."""

    __slots__ = ("_free", "_reserved")

    def __init__(self, claim: PersistentVolumeClaim, offers: VolumeOffers) -> None:
        is_suitable, selector = _Suitability(claim), _selector(claim)
        modes = set(claim.spec.access_modes)
        self._reserved = [
            offer
            for offer in sorted(offers.reserved_for(claim.namespace, claim.name), key=_preference)
            if offer.volume.is_for(claim)
            and offer.volume.class_name == claim.class_name
            and is_suitable(offer)
        ]
        free = [
            offer
            for offer in offers.free(claim.class_name)
            if is_suitable(offer)
            and offer.volume.status.phase == AVAILABLE
            and selector.matches(offer.volume.labels)
            and modes.issubset(offer.volume.spec.access_modes)
        ]
        free.sort(key=_preference)
        self._free: dict[int, list[tuple[int, PersistentVolume]]] = {}
        for rank, offer in enumerate(free):
            self._free.setdefault(offer.reach, []).append((rank, offer.volume))

    @property
    def reaches(self) -> set[int]:
        """The node affinity of their volumes."""
        return {offer.reach for offer in self._reserved}.union(self._free) - {EVERYWHERE}

    def best(self, reaching: frozenset[int], taken: Container[str]) -> PersistentVolume | None:
        """The volume to use where volumes of these reaches are available; `taken` has names of volumes."""
        for offer in self._reserved:
            if offer.volume.name not in taken:
                # If a volume is reserved for the claim, no other is used.
                return offer.volume if offer.reach in reaching or offer.reach == EVERYWHERE else None
        best: tuple[int, PersistentVolume] | None = None
        for reach in (EVERYWHERE, *reaching):
            for rank, volume in self._free.get(reach, ()):
                if volume.name not in taken:
                    if best is None or rank < best[0]:
                        best = (rank, volume)
                    break
        return None if best is None else best[1]


class _Suitability:
    """Whether a volume satisfies a claim, wherever it is."""

    __slots__ = ("_attributes_class", "_mode", "_size")

    def __init__(self, claim: PersistentVolumeClaim) -> None:
        self._size = _size(claim)
        self._mode = claim.spec.volume_mode or FILESYSTEM
        self._attributes_class = claim.spec.volume_attributes_class_name or ""

    def __call__(self, offer: Offer) -> bool:
        volume = offer.volume
        return (
            offer.capacity >= self._size
            and (volume.spec.volume_mode or FILESYSTEM) == self._mode
            and (volume.spec.volume_attributes_class_name or "") == self._attributes_class
            and volume.metadata.deletion_timestamp is None
        )


def _size(claim: PersistentVolumeClaim) -> int:
    return parse_quantity(claim.spec.resources.requests.get(STORAGE))


def _preference(offer: Offer) -> tuple[int, str]:
    """The smallest first. Equals are ordered by name, so that the result does not depend on the order of
    arrival."""
    return offer.capacity, offer.volume.name


def _selector(claim: PersistentVolumeClaim) -> Selector:
    if claim.spec.selector is None:
        return EVERYTHING
    try:
        return compile_selector(claim.spec.selector)
    except SelectorError as error:
        raise error.at(object_key=claim.key) from error.__cause__


def _choose(
    candidates: Iterable[_Candidates], reaching: frozenset[int]
) -> tuple[PersistentVolume | None, ...]:
    chosen: list[PersistentVolume | None] = []
    taken: set[str] = set()
    for of_claim in candidates:
        volume = of_claim.best(reaching, taken)
        chosen.append(volume)
        if volume is not None:
            taken.add(volume.name)
    return tuple(chosen)


def _group_rows(nodes: NodeColumns, reaches: dict[int, Reach]) -> tuple[IdColumn, list[frozenset[int]]]:
    """Groups the rows by the volumes that reach them: each row's group, and each group's reaches."""
    group_of: IdColumn = np.zeros(len(nodes), dtype=np.intp)
    reached_by: list[frozenset[int]] = [frozenset()]

    def refine(answers: IntColumn, meaning: Sequence[Iterable[int]]) -> None:
        nonlocal group_of, reached_by
        distinct, found = np.unique(group_of * len(meaning) + answers, return_inverse=True)
        pairs = [divmod(pair, len(meaning)) for pair in distinct.tolist()]
        group_of = found.astype(np.intp).reshape(-1)
        reached_by = [reached_by[old].union(meaning[answer]) for old, answer in pairs]

    by_label: dict[str, dict[str, list[int]]] = {}
    for number, alternatives in reaches.items():
        label = _only_label(alternatives)
        if label is None:
            refine(rows_matching_terms(nodes, alternatives).astype(np.int64), ((), (number,)))
            continue
        for label_value in alternatives[0].expressions[0].values:
            by_label.setdefault(label, {}).setdefault(label_value, []).append(number)
    for label, by_value in by_label.items():
        # The usual case, a zone or a host: one lookup per distinct value of the label serves all volumes.
        meaning: dict[tuple[int, ...], int] = {(): 0}
        answer = {value: meaning.setdefault(tuple(n), len(meaning)) for value, n in by_value.items()}
        refine(nodes.label(label).map(partial(_answer, answer)), list(meaning))
    return group_of, reached_by


def _answer(answers: dict[str, int], value: str) -> int:
    return answers.get(value, 0)


def _only_label(alternatives: Reach) -> str | None:
    """The label, if the only requirement is that it has one of some values."""
    if len(alternatives) != 1 or alternatives[0].error is not None or len(alternatives[0].expressions) != 1:
        return None
    requirement = alternatives[0].expressions[0]
    return requirement.key if requirement.operator is Operator.IN else None
